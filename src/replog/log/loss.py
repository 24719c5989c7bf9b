"""What may have been lost when a directory's last life ended: judged from what was found, never assumed.

* Stopped cleanly: nothing.
* Killed under the same boot id: nothing, because the page cache has survived.
* Another boot id (power): every log may have lost its unflushed end, except those flushed before each acknowledgement
  whose recovered end reaches what is known to have been flushed, without anything valid behind a break.
* Records below the recovery point bad or missing: that log has, whatever the boot id says.
* An older life than the controller has let in: the directory was put back to an image of it, and every log may lack what came since.
  The directory itself cannot know: it tells which lives it goes on from, and the controller judges (`Broker.has_lost`).
* An fsync has failed, or the note of the last life is gone: every log, likewise. That holds beside a clean stop as well: the note may have
  told of losses that count still.

What was found counts until the broker hears that it was let in: a second crash before that must not make it forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import frozen

from replog.config import TopicConfig
from replog.log.recovery import LogState
from replog.model import PartitionId
from replog.ports import LossKind, LossReport

__all__ = ["Life", "gravest", "judge"]

LIVES_KEPT: Final = 16
"""Lives that a directory names: so often its broker may end before it hears that it was let in. Of more, the one that was let in last
as far as it knows, and the newest."""
_GRAVITY: tuple[LossKind, ...] = ("none", "process", "power", "replaced", "corrupt")


@frozen
class Life:
    """What a directory notes about the life that has it open: under which boot, and which losses are not reported yet."""

    boot_id: str = ""
    kind: LossKind = "none"
    lossy: tuple[PartitionId, ...] = ()
    flush_failed: bool = False
    """An fsync has failed: what is in the cache may not be on the disk, and no later fsync brings it there. Every log is lossy."""
    lives: tuple[str, ...] = ()
    """Incarnations of this life and of those before it since which nothing was lost but `lossy`, newest first; the last one was let in, as
    far as is known. Noted before this life is known to anybody: whatever a controller lets in, the next one can name it."""
    since: str = ""
    """The life that has reported `lossy` first; "" before one does."""

    def to_plain(self) -> list[Any]:
        """As plain values."""
        return [self.boot_id, self.kind, [list(identity) for identity in self.lossy], self.flush_failed, list(self.lives), self.since]

    @classmethod
    def from_plain(cls, value: list[Any] | None) -> Life:
        """What `to_plain` described; a missing or torn note is one of a boot that nobody knows, hence of another, and whatever
        it told of losses is not known."""
        if value is None:
            return cls(flush_failed=True)
        boot_id, kind, lossy, flush_failed, lives, since = value
        return cls(boot_id, kind, tuple(PartitionId(*identity) for identity in lossy), flush_failed, tuple(lives), since)

    def let_in(self) -> Life:
        """The note once a controller has let this life in: what was lost before has been dealt with, and no earlier life counts."""
        return Life(self.boot_id, lives=self.lives[:1])

    @staticmethod
    def begun(boot_id: str, incarnation: str, loss: LossReport) -> Life:
        """The note of a life that begins with this report."""
        lives = (incarnation, *loss.lives)
        kept = lives if len(lives) <= LIVES_KEPT else (*lives[: LIVES_KEPT - 1], lives[-1])
        return Life(boot_id, loss.kind, loss.lossy, lives=kept, since=loss.since or incarnation if loss.lossy else "")


def judge(
    configs: Mapping[PartitionId, TopicConfig],
    states: Mapping[PartitionId, LogState],
    flushed_ends: Mapping[PartitionId, int],
    last: Life,
    *,
    clean: bool,
    power: bool,
) -> LossReport:
    """The report of a life that `last` began and that ended cleanly or not."""
    corrupt = {identity for identity, state in states.items() if state.corrupt}
    found = corrupt | set(configs if last.flush_failed else ())
    if power:
        for identity, config in configs.items():
            state = states.get(identity)
            reached = state.end_offset if state is not None else 0
            flushed_end = flushed_ends.get(identity, 0)
            if state is not None and state.marker is not None:
                flushed_end = min(flushed_end, state.marker.recovery_max)  # what was cut on purpose is not missing
            complete = config.flush == "ack" and not (state and state.hole) and reached >= flushed_end
            if not complete:
                found.add(identity)
    lossy = found.union(last.lossy).intersection(configs)
    is_damaged = corrupt or (clean and last.flush_failed and lossy)  # no life that stops cleanly leaves that note
    kinds: list[LossKind] = ["corrupt" if is_damaged else "power" if power else "process" if not clean else "none"]
    if last.lossy:
        kinds.append(last.kind)
    since = "" if found else last.since
    return LossReport(gravest(kinds), tuple(sorted(lossy)), last.lives, since)


def gravest(kinds: Iterable[LossKind]) -> LossKind:
    """What is reported of several lives, none of which was let in."""
    return max(kinds, key=_GRAVITY.index)
