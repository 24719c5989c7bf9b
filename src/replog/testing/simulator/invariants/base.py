"""What an invariant is: a name, where the rule comes from, and the occasions on which it looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from replog.marks import version_of
from replog.messages import FetchedEntry, ListedOffset, ProducedEntry, Published
from replog.model import Address, PartitionState
from replog.partition.partition import Partition
from replog.records import BatchHeader, RecordBatch
from replog.testing.simulator.ledger import Copy, Ledger, Violation

if TYPE_CHECKING:
    from replog.ports import Slice
    from replog.testing.simulator.node import Node

__all__ = ["Asked", "Claim", "Copies", "Headers", "Invariant"]

Copies = Mapping[int, Copy]
"""Broker -> the mirror of its copy of one partition."""

Headers = list[BatchHeader] | str
"""The headers in a slice, each verified by itself; or why they cannot be read."""


class Asked:
    """One entry of a Produce, as a client sent it."""

    __slots__ = ("acks", "count", "ledger", "length", "newest_ms", "payload_crc", "producer_epoch", "producer_id", "sequence", "version")

    def __init__(self, ledger: Ledger, acks: int, body: bytes) -> None:
        batch = RecordBatch(body)
        self.ledger = ledger
        self.acks = acks
        self.count = batch.count
        self.length = batch.length
        """Bytes, as it is stored."""
        self.newest_ms = batch.max_timestamp_ms
        self.payload_crc = batch.payload_crc
        self.producer_id = batch.producer_id
        self.producer_epoch = batch.producer_epoch
        self.sequence = batch.base_sequence
        self.version = version_of(batch) if batch.extension_bytes else -1
        """Of the work, if a writer has marked it."""


class Claim(NamedTuple):
    """Some work of a writer that a client puts aside, or wants to be published."""

    producer_id: int
    """What stands for the writer."""
    version: int


class Invariant:
    """A rule that holds after every event. The methods are the occasions to look; most rules look on one or two.

    One object serves one run, so it may remember what it has seen.
    """

    name: ClassVar[str] = ""
    """As RELIABILITY.md 6.4 counts them: S1 to S22; the others are of our own. Two rules may share a number."""
    source: ClassVar[str] = ""
    """Where the rule comes from: a KIP, a bug, a design that broke without it."""
    protocol: ClassVar[tuple[str, ...]] = ()
    """The same or a neighbouring rule in PROTOCOL.md 9.2."""

    # ---- one copy

    def batch(self, ledger: Ledger, copy: Copy, header: BatchHeader) -> None:
        """A stored batch is about to enter a mirror."""

    def cut(self, ledger: Ledger, copy: Copy, offset: int) -> None:
        """A living copy has lost what it had from `offset` on; its mirror has followed."""

    def changed(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """A live copy, its mirror already up to date, differs in something from when it was looked at last."""

    def led(self, ledger: Ledger, copy: Copy, partition: Partition) -> None:
        """A copy has begun to lead an epoch."""

    def committed(self, ledger: Ledger, copies: Copies, copy: Copy, partition: Partition) -> None:
        """A leader's high watermark has moved."""

    def vanished(self, ledger: Ledger, broker: int) -> None:
        """A broker's directory no longer has a log that it had."""

    def parted(self, ledger: Ledger) -> None:
        """An election may have lost something: from `ledger.forks[-1].end` on, the ledger is what its leader takes for committed."""

    # ---- the store

    def stored(self, ledger: Ledger, copies: Copies, before: PartitionState | None) -> None:
        """The store has another state of the partition; also looked at when copies were lost."""

    def signed(self, ledger: Ledger, controller_epoch: int) -> None:
        """The store has another state, written while the seat was at this epoch."""

    def epoch(self, what: str, before: int, after: int) -> None:
        """An epoch of the store, as `what` says, has become another."""

    def registered(self, broker: int, broker_epoch: int, stored: int) -> None:
        """A process believes in a broker epoch; the newest that the store gave is `stored`."""

    # ---- what brokers say and hear

    def received(self, node: Node, sender: Address, message: Any) -> None:
        """An actor of a broker is about to handle a message."""

    def asked(self, asked: Asked) -> None:
        """A client's append reaches a broker, which may refuse it."""

    def handled(self, node: Node) -> None:
        """The broker has handled something, and its tick is over; what it says is still in its outbox."""

    def said(self, node: Node, to: Address, message: Any) -> None:
        """A broker sends a message."""

    def shipped(self, ledger: Ledger, copy: Copy, piece: Slice, headers: Headers) -> None:
        """A broker sends stored batches, to whomever. `headers` is what stands in them, or why that cannot be read."""

    def produced(self, ledger: Ledger, partition: Partition | None, entry: ProducedEntry, asked: Asked) -> None:
        """A broker confirms an append to a client; it may have dropped the partition meanwhile."""

    def published(self, ledger: Ledger, partition: Partition | None, answer: Published, claim: Claim) -> None:
        """A broker tells a client that some work is done, and where it is."""

    def shown(self, reader: Address, ledger: Ledger, partition: Partition | None, entry: FetchedEntry, found: Sequence[Headers]) -> None:
        """A broker answers a client's fetch of one partition without an error. `found` are the headers of each slice."""

    def listed(self, reader: Address, ledger: Ledger, partition: Partition | None, entry: ListedOffset) -> None:
        """A broker tells a client an offset."""

    # ---- the run

    def passed(self, second: int, events: int, members: int) -> None:
        """One more event: so many in this second of virtual time."""

    def fail(self, ledger: Ledger, why: str) -> NoReturn:
        """Report a violation about one partition."""
        raise Violation(self.name, f"partition {ledger.topic}-{ledger.identity.partition}: {why}")

    def broken(self, why: str) -> NoReturn:
        """Report a violation about no partition in particular."""
        raise Violation(self.name, why)
