"""Where the log of a new leader parts from what a reader has read: found out by asking, epoch by epoch (KIP-320, KIP-101)."""

from __future__ import annotations

from collections.abc import Iterable

from replog.log.epochs import EpochTable, truncation_point
from replog.ports import EpochEnd

__all__ = ["Parting"]


class Parting:
    """What a reader does with a leader's answers to "where does this epoch end in your log?", once one has shown that the log is another.

    The reader is in the place of a follower that truncates: where the leader answers with an epoch of which the reader has read nothing,
    what it has read of earlier ones may end sooner in the leader's log. So the leader is asked again, about the largest of those. Each
    round is about an earlier epoch than the one before.
    """

    __slots__ = ("_end", "_epochs", "leader_epoch")

    def __init__(self, leader_epoch: int, epochs: Iterable[tuple[int, int]], end: int) -> None:
        self.leader_epoch = leader_epoch
        """Whose log it is: that of another leader may part elsewhere."""
        self._epochs = EpochTable(epochs)
        """Of what may still be as it was read: everything in front of `_end`."""
        self._end = end

    @property
    def asks(self) -> int:
        """The epoch that the leader is asked about next."""
        latest = self._epochs.latest
        assert latest is not None
        return latest.epoch

    def answered(self, epoch: int, end: int) -> int | None:
        """The first offset that may have changed; None if the leader has to be asked once more.

        `epoch` -1: the leader knows of none as old any more, so that all that was read of the one it was asked about may have changed.
        """
        latest = self._epochs.latest
        assert latest is not None
        if epoch < 0:
            return latest.start
        at, is_all = truncation_point(self._epochs, self._end, EpochEnd(min(epoch, latest.epoch), end))
        self._epochs.truncate(at)
        self._end = at
        return at if is_all or self._epochs.latest is None else None
