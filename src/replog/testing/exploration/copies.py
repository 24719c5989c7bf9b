"""What happens between two copies: a fetch, and how far a follower counts. Functions of the two cores alone, hence tables."""

from __future__ import annotations

from replog.testing.exploration.logs import UNANSWERABLE, Logs, Table
from replog.testing.exploration.rules import Rules
from replog.testing.exploration.state import FOLLOWS, LEADS, Layout

__all__ = ["NOTHING", "Copies"]

NOTHING = -1
"""No effect, or no position."""


class Copies:
    """The rules of fetching, looked up by (follower's core) << core bits | (leader's core).

    That the follower takes the other for its leader is for the caller to know.
    """

    def __init__(self, layout: Layout, logs: Logs, rules: Rules) -> None:
        self._layout = layout
        self._logs = logs
        self._rules = rules
        self._bits = layout.core_bits
        self._mask = (1 << layout.core_bits) - 1
        self.fetched: Table[int, int] = Table(self._fetch)
        """The follower's core after a fetch of at most one record; NOTHING if the fetch is refused or changes nothing."""
        self.position: Table[int, int] = Table(self._position)
        """Up to where the leader may count the follower; NOTHING if not at all."""

    def _fetch(self, pair: int) -> int:
        layout, logs, rules = self._layout, self._logs, self._rules
        follower, leader = pair >> self._bits, pair & self._mask
        _, agreed, role, epoch, watermark, start, log = layout.core[follower]
        _, _, their_role, their_epoch, their_watermark, _, their_log = layout.core[leader]
        if role != FOLLOWS or their_role != LEADS:
            return NOTHING
        same = epoch == their_epoch
        compares = rules.truncate_by_epoch and (rules.compare_on_each_fetch or not agreed)
        if compares:
            cut = self._parted(follower, leader)
            if cut is not None:
                if cut == UNANSWERABLE or not (same or not rules.fence_truncation):
                    return NOTHING
                after = layout.make_core(0, agreed, role, epoch, min(watermark, cut), start, log % logs.powers[cut])
                return after if after != follower else NOTHING
            if not rules.compare_on_each_fetch:
                return layout.make_core(0, 1, role, epoch, watermark, start, log) if same or not rules.fence_truncation else NOTHING
        if not same and rules.fence_fetch:
            return NOTHING
        end = logs.length[log]
        if end < logs.length[their_log]:
            log += their_log % logs.powers[end + 1] - their_log % logs.powers[end]
            end += 1
        after = layout.make_core(0, agreed, role, epoch, max(watermark, min(their_watermark, end)), start, log)
        return after if after != follower else NOTHING

    def _position(self, pair: int) -> int:
        layout, rules = self._layout, self._rules
        follower, leader = pair >> self._bits, pair & self._mask
        _, agreed, role, epoch, _, _, log = layout.core[follower]
        _, _, their_role, their_epoch, _, _, _ = layout.core[leader]
        if role != FOLLOWS or their_role != LEADS or (epoch != their_epoch and rules.fence_position):
            return NOTHING
        if rules.truncate_by_epoch and rules.forget_diverging_offset:
            if rules.compare_on_each_fetch:
                if self._parted(follower, leader) is not None:
                    return NOTHING
            elif not agreed:
                return NOTHING
        return self._logs.length[log]

    def _parted(self, follower: int, leader: int) -> int | None:
        core = self._layout.core
        _, _, _, epoch, _, start, their_log = core[leader]
        return self._logs.parted(core[follower][6], their_log, (epoch, start))
