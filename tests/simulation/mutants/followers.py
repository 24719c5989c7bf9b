"""Bugs of followers, and of leaders towards them: truncation, epochs of fetches, fetch loops."""

from __future__ import annotations

from typing import Any

import attrs
from tests.simulation.mutants.entry import Mutant, Patch

from replog.broker.fetching import Fetcher, Fetching
from replog.errors import Code
from replog.messages import FetchedEntry, FetchEntry
from replog.partition.following import Followed, Following
from replog.partition.leading import Leading
from replog.partition.partition import Partition

__all__ = ["MUTANTS"]

SAFETY = ("S1", "S2", "S3", "S9", "S11")
"""What may speak first when something committed is lost or replaced."""


def truncates_to_high_watermark(patch: Patch) -> None:
    """A follower drops what lies above its high watermark at each change of leader."""
    become = Partition.become

    def mutant(self: Partition, notice: Any, now_ms: int) -> int:
        epoch = self.leader_epoch
        error = become(self, notice, now_ms)
        if not error and self.following is not None and self.leader_epoch > epoch:
            self.log.truncate_to(max(self.high_watermark, self.log.start_offset))
        return error

    patch.setattr(Partition, "become", mutant)


def falls_back_to_high_watermark(patch: Patch) -> None:
    """A leader that lacks the follower's last epoch cannot help it: the follower cuts at its high watermark."""
    take = Following.take

    def mutant(self: Following, entry: FetchedEntry, high_watermark: int) -> tuple[Followed, int]:
        log = self.log
        asked = entry.leader_epoch == self.leader_epoch and entry.offset == log.end_offset and not entry.error
        if asked and 0 <= entry.diverging_epoch != log.last_epoch:
            log.truncate_to(max(high_watermark, log.start_offset))
            return Followed.TRUNCATED, min(high_watermark, log.end_offset)
        return take(self, entry, high_watermark)

    patch.setattr(Following, "take", mutant)


def follows_already(patch: Patch) -> None:
    """A notice to follow the leader that is followed already is ignored, whatever its epoch."""
    become = Partition.become

    def mutant(self: Partition, notice: Any, now_ms: int) -> int:
        if self.following is not None and self.following.leader is not None and self.following.leader == notice.state.leader:
            return Code.NONE
        return become(self, notice, now_ms)

    patch.setattr(Partition, "become", mutant)


def fences_no_fetch(patch: Patch) -> None:
    """A leader takes fetches of another epoch for acknowledgements."""
    acknowledge = Partition.acknowledge

    def mutant(self: Partition, replica_id: int, broker_epoch: int, entry: Any, contact: Any, now_ms: int) -> Any:
        return acknowledge(self, replica_id, broker_epoch, attrs.evolve(entry, leader_epoch=self.leader_epoch), contact, now_ms)

    patch.setattr(Partition, "acknowledge", mutant)
    patch.setattr(Partition, "check_epoch", lambda self, leader_epoch: Code.NONE)


def counts_diverging_fetches(patch: Patch) -> None:
    """A fetch that is told where the logs part counts as an acknowledgement all the same."""
    acknowledge = Leading.acknowledge

    def mutant(self: Leading, replica_id: int, broker_epoch: int, entry: FetchEntry, contact: Any, now_ms: int) -> Any:
        error, parted = acknowledge(self, replica_id, broker_epoch, entry, contact, now_ms)
        if parted is not None:
            replica = self.replicas[replica_id]
            replica.broker_epoch = broker_epoch
            replica.end_offset = entry.offset
            replica.reached(entry.offset, self.log.end_offset, now_ms)
        return error, parted

    patch.setattr(Leading, "acknowledge", mutant)


def believes_every_watermark(patch: Patch) -> None:
    """A follower takes the leader's high watermark although it has not got so far."""
    take = Following.take

    def mutant(self: Following, entry: FetchedEntry, high_watermark: int) -> tuple[Followed, int]:
        outcome, watermark = take(self, entry, high_watermark)
        return outcome, max(watermark, entry.high_watermark) if outcome.name in ("APPENDED", "KEPT_UP") else watermark

    patch.setattr(Following, "take", mutant)


def fetches_again_for_every_answer(patch: Patch) -> None:
    """Each answer, a repeated or a superseded one too, starts another fetch."""
    answered = Fetching.answered

    def mutant(self: Fetching, fetcher: Fetcher, fetched: Any, now_ms: int) -> bool:
        taken = answered(self, fetcher, fetched, now_ms)
        fetcher.request = None
        return taken

    patch.setattr(Fetching, "answered", mutant)


LATE: dict[str, Any] = {
    "brokers": 3, "replicas": 3, "partitions": 1, "clients": 1, "min_isr": 2, "flush": "os", "files": False, "workloads": ("append",),
    "session_ms": 1_500, "slow": 0.1, "slow_ms": 6_000, "think_ms": 150,
}
MUTANTS = (
    Mutant(
        "M01", "a follower truncates to its high watermark", "V3 C; KIP-101", truncates_to_high_watermark,
        SAFETY, scenarios=("P-01", "P-03", "P-04"), explored=True,
    ),
    Mutant(
        "P-04", "an epoch the leader lacks is cut at the high watermark", "KIP-279, KAFKA-6361", falls_back_to_high_watermark,
        SAFETY, scenarios=("P-04",),
    ),
    Mutant(
        "P-06", "who follows a leader already ignores its next epoch", "KAFKA-7164", follows_already,
        ("L2", "L3", "L4"), {"only": ("expire", "expire", "slow_link", "isolate"), **LATE}, scenarios=("P-06",),
    ),
    Mutant(
        "M05", "a leader takes fetches of an older epoch", "KIP-320", fences_no_fetch,
        (*SAFETY, "S14"), scenarios=("P-08",), explored=True,
    ),
    Mutant(
        "P-10", "a diverging fetch counts", "KAFKA-13141", counts_diverging_fetches,
        SAFETY, scenarios=("P-10",),
    ),
    Mutant(
        "M16", "a follower's high watermark may be beyond its end", "V3 G", believes_every_watermark, ("S7", "S9"), explored=True,
    ),
    Mutant(
        "M24", "each repeated answer starts another fetch loop", "own", fetches_again_for_every_answer,
        ("S20", "S21", "L2", "L3", "L4", "L7"),
    ),
)
