"""What must hold in every state of the model.

Leader completeness and more (StrongIsr): each member of the stored ISR has everything that was ever committed, so that no
clean election can lose it. What was committed stays: below each copy's high watermark is what the ledger has.
Log matching. One leader per epoch, a leader in its ISR, and an ISR of at least one. High watermark at most log end. Epochs
never fall along a log.
"""

from __future__ import annotations

from itertools import combinations

from replog.testing.exploration.logs import Logs, Table
from replog.testing.exploration.state import LEADS, Layout, State

__all__ = ["Soundness"]


class Soundness:
    """The invariants over one layout."""

    def __init__(self, layout: Layout, logs: Logs) -> None:
        self._layout = layout
        self._logs = logs
        self._n = layout.n
        self._wrong: Table[int, str | None] = Table(self._what_is_wrong)
        self._lacks: Table[int, bool] = Table(lambda pair: not logs.begins_with(pair >> self._log_bits, pair & self._log_mask))
        self._log_bits = (logs.count - 1).bit_length()
        self._log_mask = (1 << self._log_bits) - 1
        self._pairs = list(combinations(range(layout.n), 2))
        self._disagree: Table[int, bool] = Table(
            lambda pair: not logs.matching[pair >> self._log_bits, pair & self._log_mask] if pair >= 0 else False
        )

    def check(self, state: State) -> str | None:
        """What is wrong with this state; None if nothing is."""
        n, layout, bits = self._n, self._layout, self._log_bits
        isr, leader, _, _, _, committed = layout.store[state[n]]
        if not isr:
            return "the ISR is empty: nobody can be elected any more"
        if leader < n and not isr >> leader & 1:
            return f"leader in ISR: {leader} leads and is not in it"
        shift, log_shift = layout.rest_bits, layout.log_at
        cores = [replica >> shift for replica in state[:n]]
        for r, core in enumerate(cores):
            wrong = self._wrong[core << bits | committed]
            if wrong is not None:
                return f"{wrong} (replica {r})"
            if isr >> r & 1 and self._lacks[core >> log_shift << bits | committed]:
                return f"leader completeness: {r} is in the ISR and lacks what was committed"
        for a, b in self._pairs:
            one, other = cores[a], cores[b]
            if self._disagree[one >> log_shift << bits | other >> log_shift]:
                return f"log matching: {a} and {b} have different records of one epoch at one offset"
            if one >> layout.role_at & 3 == LEADS == other >> layout.role_at & 3 and layout.core[one][3] == layout.core[other][3]:
                return f"one leader per epoch: {a} and {b} lead the same"
        return None

    def lost(self, state: State) -> str | None:
        """What users lose in this state: of all that `check` tells, only that committed records are gone, or may be after an election."""
        layout, logs = self._layout, self._logs
        isr, committed = layout.store[state[self._n]][0], layout.store[state[self._n]][5]
        records = logs.records[committed]
        for r, replica in enumerate(state[: self._n]):
            _, _, _, _, watermark, _, log = layout.core[replica >> layout.rest_bits]
            if isr >> r & 1 and not logs.begins_with(log, committed):
                return f"leader completeness: {r} is in the ISR and lacks what was committed"
            if logs.records[log][:watermark] != records[:watermark]:
                return f"committed records changed: below the high watermark of {r} is something else than was committed"
        return None

    def _what_is_wrong(self, key: int) -> str | None:
        """With one copy alone, given what was committed."""
        logs = self._logs
        _, _, _, _, watermark, _, log = self._layout.core[key >> self._log_bits]
        committed = logs.records[key & self._log_mask]
        if watermark > logs.length[log]:
            return "the high watermark is beyond the log end"
        if logs.records[log][:watermark] != committed[:watermark]:
            return "committed records changed: below the high watermark is something else than was committed"
        if not logs.is_ordered(log):
            return "epochs fall along the log"
        return None
