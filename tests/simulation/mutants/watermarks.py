"""Bugs of the high watermark: when records count as committed, who is told so, and who may read them."""

from __future__ import annotations

from typing import Any

from tests.simulation.mutants.entry import Mutant, Patch
from tests.simulation.mutants.followers import SAFETY
from tests.simulation.reading import ReadToEnd

from replog.broker import durability
from replog.broker.appending import Appending
from replog.broker.broker import Broker
from replog.broker.due import Due
from replog.broker.upkeep import Upkeep
from replog.client.client import Client
from replog.client.fetching import FetchOp
from replog.client.reading import Reading
from replog.messages import FetchEntry
from replog.model import PartitionId
from replog.partition.following import Following
from replog.partition.leading import Leading
from replog.partition.partition import Partition
from replog.partition.replica import Contact
from replog.ports import Log

__all__ = ["MUTANTS"]


def acknowledges_at_append(patch: Patch) -> None:
    """acks=all is answered as soon as the leader has the batch."""
    patch.setattr(Appending, "_counts", lambda self, partition, append: True)


def keeps_positions(patch: Patch) -> None:
    """What followers acknowledged in an earlier leadership of the same process still counts."""
    lead, acknowledge = Partition._lead, Leading.acknowledge
    remembered: dict[Log, dict[int, int]] = {}

    def noting(self: Leading, replica_id: int, *args: Any) -> Any:
        found = acknowledge(self, replica_id, *args)
        remembered[self.log] = {r.broker_id: r.position for r in self.replicas.values()}
        return found

    def mutant(self: Partition, state: Any, notice: Any, now_ms: int) -> None:
        lead(self, state, notice, now_ms)
        assert self.leading is not None
        for broker_id, position in remembered.get(self.log, {}).items():
            if broker_id in self.leading.replicas:
                self.leading.replicas[broker_id].position = min(position, self.log.end_offset)
        self._advance(now_ms)

    patch.setattr(Leading, "acknowledge", noting)
    patch.setattr(Partition, "_lead", mutant)


def shows_uncommitted(patch: Patch) -> None:
    """Clients read up to the end of the log."""

    def mutant(self: Partition, offset: int, max_bytes: int) -> Any:
        end = self.log.end_offset
        return (self.log.read(offset, end, max_bytes) if offset < end else []), end

    patch.setattr(Partition, "read_committed", mutant)


def trusts_unflushed(patch: Patch) -> None:
    """Under flush="ack" a fetch counts although nothing was flushed."""
    acknowledge = Leading.acknowledge

    def mutant(self: Leading, replica_id: int, broker_epoch: int, entry: FetchEntry, contact: Contact, now_ms: int) -> Any:
        answer = acknowledge(self, replica_id, broker_epoch, entry, contact, now_ms)
        if answer == (0, None):
            self.replicas[replica_id].reached(entry.offset, self.log.end_offset, now_ms)
        return answer

    patch.setattr(Leading, "acknowledge", mutant)


def moves_back(patch: Patch) -> None:
    """The high watermark follows the slowest member of the ISR, also backwards."""

    def mutant(self: Leading, now_ms: int) -> bool:
        target = max(self.log.start_offset, self.policy.high_watermark(self.log.end_offset, self.counted))
        moved = target != self.high_watermark
        self.high_watermark = target
        return moved

    patch.setattr(Leading, "advance", mutant)


def leaves_tails_unflushed(patch: Patch) -> None:
    """Under flush="ack" nobody flushes the tail that a restart has found."""
    patch.setattr(Upkeep, "recovered", lambda self, partition: None)


def reports_flushes_once(patch: Patch) -> None:
    """A follower tells how far it is flushed only while that is above the high watermark."""
    is_heard = durability.is_heard

    def mutant(partition: Partition, following: Following) -> bool:
        return is_heard(partition, following) or partition.log.flushed_end <= partition.high_watermark

    patch.setattr(durability, "is_heard", mutant)


def reports_flushes_without_repeating(patch: Patch) -> None:
    """How far a follower is flushed is not said again when the report was lost."""

    class Never(Due):
        def put(self, partition: Partition, at_ms: int) -> None:
            pass

    patch.setattr(durability, "Due", Never)


def tells_every_watermark(patch: Patch) -> None:
    """A new leader tells its high watermark as the latest offset before it covers what the last one committed."""
    patch.setattr(Partition, "latest_offset", lambda self: None if self.leading is None else self.high_watermark)


class _Ended(Exception):
    """The read is over."""


def reads_to_the_first_watermark(patch: Patch) -> None:
    """`read()` ends where a new leader's high watermark happens to be, short of where it was to end."""
    partition, do = Reading._partition, Client._do

    def impatient(self: Client, op: Any) -> Any:
        result = do(self, op)
        if isinstance(op, FetchOp) and op.expected is not None and result.next_offset == op.offset:
            raise _Ended
        return result

    def mutant(self: Reading, *given: Any) -> Any:
        try:
            yield from partition(self, *given)
        except _Ended:
            return

    patch.setattr(Client, "_do", impatient)
    patch.setattr(Reading, "_partition", mutant)

def answers_all_of_a_poll(patch: Patch) -> None:
    """Of two appends to a log that come before the broker has its turn, the second is answered as if the first had counted."""
    produce, counts, tick = Appending.on_produce, Appending._counts, Broker.tick
    polled: dict[int, set[PartitionId]] = {}

    def on_produce(self: Appending, sender: Any, message: Any, now_ms: int) -> None:
        produce(self, sender, message, now_ms)
        polled.setdefault(id(self), set()).update(entry.partition for entry in message.entries)

    def mutant(self: Appending, partition: Any, append: Any) -> bool:
        return (partition.identity in polled.get(id(self), ()) and partition.leading is not None) or counts(self, partition, append)

    def ticked(self: Broker, now_ms: int, wall_ms: int) -> None:
        polled.pop(id(self._appending), None)
        tick(self, now_ms, wall_ms)

    patch.setattr(Appending, "on_produce", on_produce)
    patch.setattr(Appending, "_counts", mutant)
    patch.setattr(Broker, "tick", ticked)



ACK: dict[str, Any] = {"flush": "ack", "brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "clients": 1, "files": False}
WIDE: dict[str, Any] = {
    "brokers": 5, "replicas": 5, "min_isr": 2, "partitions": 1, "files": False, "workloads": ("append",),
    "lag_ms": 500, "delay_ms": 50, "think_ms": 20,
}
LEADERS: dict[str, Any] = {
    "brokers": 3, "replicas": 3, "min_isr": 2, "partitions": 1, "clients": 3, "files": False, "think_ms": 60,
    "delay_ms": 50, "slow": 0.05, "slow_ms": 2_000, "retention_bytes": 0, "retention_ms": 0,
}
MUTANTS = (
    Mutant(
        "M02", "acks=all is answered at the append", "classic", acknowledges_at_append,
        ("S12",), scenarios=("P-01", "P-20", "P-106"),
    ),
    Mutant(
        "M08", "acknowledgements of an earlier leadership count", "KIP-966", keeps_positions,
        (*SAFETY, "S4"), {"only": ("lag", "kill", "expire", "churn", "isolate"), **WIDE}, explored=True,
    ),
    Mutant("M10", "clients read what is not committed", "docs", shows_uncommitted, ("S13",), scenarios=("P-48", "P-106")),
    Mutant(
        "M12", "what is not flushed counts as flushed", "NATS, KIP-966", trusts_unflushed,
        SAFETY, {"only": ("power", "flush"), "flush": "ack", "min_isr": 2, "replicas": 3, "brokers": 3},
    ),
    Mutant("M17", "the high watermark moves back", "V3 G", moves_back, ("S4", "S7", "S8"), explored=True),
    Mutant(
        "X01", "the tail a restart finds is never flushed", "own", leaves_tails_unflushed,
        ("L2", "L3", "L4"), {"only": ("kill", "flush"), **ACK},
    ),
    Mutant(
        "X84", "appends of one poll share one look", "own", answers_all_of_a_poll,
        ("S12",), {"poll_ms": 10, "workloads": ("append", "burst"), "clients": 3},
    ),
    Mutant("X02", "a flush is reported once", "own", reports_flushes_once, ("L2", "L3", "L4"), ACK),
    Mutant(
        "X120", "a report of a flush that is lost is not said again", "own", reports_flushes_without_repeating,
        tests=("tests/unit/broker/test_flush_reports.py::test_what_is_lost_is_said_again_until_the_leader_confirms_it",),
    ),
    Mutant(
        "X03", "a new leader's high watermark is taken for the end", "KAFKA-725", tells_every_watermark,
        ("offsets",), {"only": ("churn", "expire", "kill"), "workloads": ("append", "offsets"), **LEADERS}, scenarios=("P-48",),
    ),
    Mutant(
        "X04", "read() stops at a new leader's first high watermark", "own", reads_to_the_first_watermark,
        ("read",), {"only": ("churn", "expire", "kill"), "workloads": ("append", ReadToEnd.name), **LEADERS},
        tests=("tests/unit/client/test_reading.py::test_a_read_waits_for_a_new_leader_whose_high_watermark_is_behind",),
    ),
)
