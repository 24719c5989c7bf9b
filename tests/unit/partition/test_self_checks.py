"""What a running broker finds wrong with itself: each check fires at what it forbids, and a sound broker never notices it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from tests.unit.partition.copies import IDENTITY, batch, leading, log_of, notice, partition_of

from replog.broker.broker import Broker
from replog.config import BrokerConfig
from replog.errors import InvariantViolated, ReplogError
from replog.log.epochs import EpochTable
from replog.log.memory import MemoryLogDirectory
from replog.messages import Fetch, Fetched, FetchedEntry, FetchEntry, LeaderAndIsr, Produce, Produced, ProduceEntry, Registered
from replog.model import PartitionId
from replog.partition.partition import Partition
from replog.partition.self_checks import SelfChecks
from replog.ports import FlushDone, FlushToken, MemorySlice, Outbox
from replog.records import encode_records
from replog.testing.clock import SeededIds


class Watched:
    """A leader of epoch 5 with two records, one of them committed, and its checks."""

    def __init__(self) -> None:
        self.partition = leading(log_of(("a", 1), ("b", 4)), isr=(1, 2))
        self.partition.high_watermark = 1
        self.outbox = Outbox()
        self.partitions = {IDENTITY: self.partition}
        self.handled: list[Any] = []
        self.handlers: dict[type, Any] = {kind: lambda sender, message, now_ms: self.handled.append(message) for kind in (Fetch, FlushDone)}
        self.checks = SelfChecks(1, self.partitions, self.outbox, self.handlers)
        self.checks.run()

    @property
    def lead(self) -> Any:
        return self.partition.leading

    @property
    def log(self) -> Any:
        return self.partition.log


def shown(high_watermark: int, end: int, session: int = 0, error: int = 0) -> Callable[[Watched], None]:
    slices = [MemorySlice(n, n + 1, batch("x", n, 5).to_bytes()) for n in range(end)]
    entry = FetchedEntry(IDENTITY, 5, 0, error, high_watermark=high_watermark, slices=slices)
    return lambda watched: watched.outbox.messages.append(("client", Fetched(1, session, 0, 0, [entry])))


def step_down(watched: Watched) -> None:
    watched.partition.become(notice(2, 6, (1, 2), partition_epoch=1), 0)
    watched.partition.high_watermark = 0


_BROKEN: dict[str, tuple[str, Callable[[Watched], Any]]] = {
    "outside its ISR": ("I8", lambda w: setattr(w.lead, "isr", evolve(w.lead.isr, isr=(2, 3)))),
    "a stranger in the ISR": ("I8", lambda w: setattr(w.lead, "isr", evolve(w.lead.isr, isr=(1, 9)))),
    "watermark beyond the end": ("I10", lambda w: setattr(w.partition, "high_watermark", 3)),
    "watermark below the start": ("I10", lambda w: setattr(w.log, "start_offset", 2)),
    "flushed beyond the end": ("I10", lambda w: setattr(w.log, "flushed_end", 3)),
    "watermark goes back": ("I11", lambda w: setattr(w.partition, "high_watermark", 0)),
    "epoch table beyond the end": ("I12", lambda w: setattr(w.log, "epochs", EpochTable([(1, 0), (5, 3)]))),
    "another last epoch": ("I12", lambda w: setattr(w.log, "last_epoch", 6)),
    "epoch table not strict": ("I12", lambda w: setattr(w.log.epochs, "_starts", (0, 0))),
    "leader epoch goes back": ("I13", lambda w: setattr(w.partition, "leader_epoch", 4)),
    "partition epoch goes back": ("I13", lambda w: setattr(w.partition, "partition_epoch", -1)),
    "uncommitted records shown": ("I17", shown(1, 2)),
    "another watermark shown": ("I17", shown(2, 1)),
}
_SOUND: dict[str, Callable[[Watched], Any]] = {
    "nothing": lambda w: None,
    "watermark at the end": lambda w: setattr(w.partition, "high_watermark", 2),
    "everything flushed": lambda w: setattr(w.log, "flushed_end", 2),
    "a follower takes over and goes back": step_down,
    "a failed copy": lambda w: (w.partition.fail("its disk is gone"), setattr(w.partition, "high_watermark", 9)),
    "taken away and given again": lambda w: w.partitions.update({IDENTITY: partition_of(log_of(("a", 1)))}),
    "committed records shown": shown(1, 1),
    "a follower is given all": shown(2, 2, session=7),
    "an error": shown(2, 0, error=1),
}


@pytest.mark.parametrize(("invariant", "spoil"), _BROKEN.values(), ids=_BROKEN)
def test_what_is_impossible_is_found(invariant: str, spoil: Callable[[Watched], Any]) -> None:
    watched = Watched()
    spoil(watched)
    with pytest.raises(InvariantViolated, match=f"t-0: invariant {invariant} does not hold") as caught:
        watched.checks.run()
    assert (caught.value.invariant, caught.value.partition) == (invariant, "t-0")
    assert isinstance(caught.value, ReplogError)
    (event,) = watched.outbox.events
    assert event.name == "invariant_violated"
    assert {"broker": 1, "invariant": invariant, "partition": "t-0"}.items() <= event.fields.items()


@pytest.mark.parametrize("change", _SOUND.values(), ids=_SOUND)
def test_what_is_sound_is_not(change: Callable[[Watched], Any]) -> None:
    watched = Watched()
    change(watched)
    watched.checks.run()
    watched.checks.run()
    assert watched.outbox.events == []


def test_the_partitions_of_a_message_are_looked_at_and_one_more_in_turn() -> None:
    looked: list[PartitionId] = []

    class Noting(SelfChecks):
        def check(self, partition: Partition) -> None:
            looked.append(partition.identity)

    copies = {IDENTITY._replace(partition=n): partition_of(log_of(("a", 1))) for n in range(4)}
    for identity, partition in copies.items():
        partition.identity = identity
    handled: list[Any] = []
    handlers: dict[type, Any] = {kind: lambda sender, message, now_ms: handled.append(message) for kind in (Fetch, FlushDone, Registered)}
    checks = Noting(1, copies, Outbox(), handlers)
    fetch = Fetch(1, 2, 2, 0, 0, 0, 0, 0, [FetchEntry(IDENTITY, 5, 0, 0, 1), FetchEntry(IDENTITY._replace(partition=9), 5, 0, 0, 1)])
    done = FlushDone(FlushToken(IDENTITY._replace(partition=1), 0, 1, lambda: None))
    for message in (fetch, done, Registered(1, 1)):
        handlers[type(message)](None, message, 0)
    assert handled == [fetch, done, Registered(1, 1)]
    checks.run()
    assert [identity.partition for identity in looked] == [0, 1, 3]
    looked.clear()
    for _ in range(5):
        checks.run()
    assert [identity.partition for identity in looked] == [2, 1, 0, 3, 2]


class Running:
    """A broker that leads a partition alone."""

    def __init__(self, *, self_checks: bool) -> None:
        config = BrokerConfig(self_checks=self_checks)
        self.broker = Broker(1, MemoryLogDirectory(limits=config, directory_id="d" * 32), config=config, ids=SeededIds(1))
        self.tell(Registered(1, 1))
        self.tell(LeaderAndIsr(1, 1, 1, 0, True, 1_000, [notice(1, 0, (1,), replicas=(1,))], as_of=0))

    def tell(self, message: Any) -> list[Any]:
        self.broker.outbox.messages.clear()
        self.broker.receive("client", message, 1)
        self.broker.tick(1, 1)
        return [message for _, message in self.broker.outbox.messages]


@pytest.mark.parametrize("self_checks", [True, False])
def test_a_broker_checks_itself_only_if_it_is_told_to(self_checks: bool) -> None:
    running = Running(self_checks=self_checks)
    append = Produce(-1, 1_000, [ProduceEntry(1, IDENTITY, encode_records(["x"], now_ms=0))])
    (confirmed,) = running.tell(append)
    assert isinstance(confirmed, Produced)
    assert confirmed.entries[0].error == 0
    running.broker.partitions[IDENTITY].log.epochs = EpochTable([(0, 0), (7, 9)])  # type: ignore[assignment]
    if self_checks:
        with pytest.raises(InvariantViolated, match="I12"):
            running.tell(append)
    else:
        assert running.tell(append)
        assert running.broker._handlers[Produce] == running.broker._appending.on_produce
    assert not BrokerConfig().self_checks
