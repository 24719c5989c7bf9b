"""Where logs start: retention alone moves that, and leaves what the topic says."""

from __future__ import annotations

from replog.partition.partition import Partition
from replog.testing.simulator.invariants.base import Invariant
from replog.testing.simulator.ledger import Copy, Ledger

__all__ = ["StartsAreEarned"]


class StartsAreEarned(Invariant):
    """A log starts no later than some copy may start by the retention of its topic: at offset 0 if there is none.

    Every copy takes retention by itself, leaders and followers, and by size it keeps that many bytes; or it follows a leader
    that has done so. What else moves a start hides committed records from everybody who compares logs from there on.
    """

    name = "S23"
    source = "Kafka UnifiedLog, deleteRetentionSizeBreachedSegments; KAFKA-9491"
    protocol = ("I10",)

    def __init__(self) -> None:
        self._earned: dict[Ledger, int] = {}
        """The latest start that retention allowed somebody."""

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """A start may have moved: what is there says whether it was allowed to."""
        start = copy.start
        if start <= self._earned.get(ledger, 0):
            return
        limit = ledger.retention_bytes
        if not copy.unreadable and ledger.retention_ms is None:  # ages are not in the mirror
            if limit is None:
                self.fail(ledger, f"broker {copy.broker} starts at {start}, and nothing was ever to be removed")
            kept = copy.bytes_from(start)
            if kept < limit:
                known = self._earned.get(ledger, 0)
                self.fail(
                    ledger, f"broker {copy.broker} starts at {start}, keeps {kept} bytes of {limit}, and nobody started above {known} yet"
                )
        self._earned[ledger] = start
