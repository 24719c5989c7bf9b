"""The end of a run: everything is read once, and compared with what was confirmed, committed and wished."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve
from tests.simulation.checks.situations import booted, entry, holds, violates

from replog.model import PartitionId
from replog.ports import LossReport
from replog.testing.simulator import ending
from replog.testing.simulator.clients import Acknowledged
from replog.testing.simulator.ending import finish
from replog.testing.simulator.ledger import Ledger
from replog.testing.simulator.liveness import EveryPartitionIsLed, recover
from replog.testing.simulator.world import World

pytestmark = pytest.mark.simulation


def recovered() -> World:
    world = booted(drop=0.0, repeat=0.0, slow=0.0, delay_ms=3, unsure=0.0, flush="os", absent=0)
    recover(world)  # with a probe of each client
    return world


def told(world: World) -> Acknowledged:
    return next(iter(world.clients.values())).acknowledged[0]


def another_value(world: World) -> None:
    told(world).values = [b"other"]


def another_place(world: World) -> None:
    told(world).base_offset += 1_000


def longer_ledger(world: World) -> None:
    next(iter(world.checks.ledgers.values())).entries.append(entry(1_000))


def another_wish(world: World) -> None:
    for topic in world.wishes.topics.values():
        topic.entry = evolve(topic.entry, next_creation=9)


@pytest.mark.parametrize(
    ("spoil", "name"),
    [(another_value, "readable"), (another_place, "readable"), (longer_ledger, "readable"), (another_wish, "asked")],
)
def test_what_is_read_is_what_was_confirmed(spoil: Callable[[World], None], name: str) -> None:
    world = recovered()
    holds(finish, world)
    world = recovered()
    spoil(world)
    violates(name, finish, world)


def test_only_what_retention_has_removed_need_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who answers may say that the log starts where it ends."""
    world = recovered()
    (ledger,) = world.checks.ledgers.values()
    monkeypatch.setattr(ending, "_earliest", lambda *asked: ledger.end)
    violates("readable", finish, world)
    world = recovered()
    (ledger,) = world.checks.ledgers.values()
    ledger.removed = ledger.end
    holds(finish, world)


@pytest.mark.parametrize(
    ("topic", "elr", "last_known", "anew", "waits"),
    [
        ("other", (1,), (), 0, True),
        ("other", (1, 2), (), 0, False),
        ("t", (1,), (), 0, False),
        ("other", (), (), 0, False),  # nobody may ever lead
        ("other", (), (2, 3), 0, False),  # all who are to be asked are there
        ("other", (), (2, 3), 3, True),  # of whom one has begun anew
        ("other", (), (2, 3), 1, False),
        ("t", (), (2, 3), 3, False),
        ("other", (), (1, 2), 0, True),
        ("other", (2,), (1, 2), 2, False),
    ],
)
def test_a_partition_of_absent_brokers_alone_waits_for_them(
    topic: str, elr: tuple[int, ...], last_known: tuple[int, ...], anew: int, waits: bool
) -> None:
    """But not the topic that every run has."""
    world = recovered()
    found = next(iter(world.checks.ledgers.values()))
    assert found.state is not None
    ledger = Ledger(PartitionId(b"o" * 16, 0, 0))
    ledger.topic, ledger.replicas, ledger.state = topic, (1, 2, 3), evolve(found.state, leader=None, isr=(), elr=elr, last_known=last_known)
    world.checks.expected = lambda: [ledger]  # type: ignore[method-assign]
    assert list(EveryPartitionIsLed().missing(world))
    world.absent = frozenset({1})
    for broker, node in world.nodes.items():
        node.directory.loss = LossReport("power", lives=() if broker == anew else ("an earlier one",))
    assert (not list(EveryPartitionIsLed().missing(world))) == waits
