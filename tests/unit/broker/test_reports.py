"""What a broker says unasked: a copy that has failed, or could never be made, is said until it is dealt with (R14, X-02, X-04)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from attrs import evolve
from tests.unit.partition.copies import IDENTITY, notice

from replog.broker.broker import Broker
from replog.broker.commands import TOPIC_DELETED
from replog.config import BrokerConfig
from replog.errors import Code, LogFull
from replog.log.memory import MemoryLogDirectory
from replog.messages import Heartbeat, LeaderAndIsr, LeaderAndIsrAnswer, Registered, ReplicasFailed, StopEntry, StopReplica
from replog.model import PartitionId
from replog.ports import Log, LogStart
from replog.testing.clock import SeededIds

A, B, C = (IDENTITY._replace(partition=n) for n in range(3))
FSYNC = "fsync failed"


class Desk:
    """A broker with a copy of A, if it has one, whose directory has failed while nobody was looking."""

    def __init__(self, *there: PartitionId) -> None:
        config = BrokerConfig()
        self.directory = MemoryLogDirectory(directory_id="d" * 32)
        self.broker = Broker(1, self.directory, config=config, ids=SeededIds(1))
        self.now_ms = 0
        self.tell(Registered(1, 1))
        self.command(0, *there, complete=True)
        self.directory.fail(FSYNC)

    def tell(self, message: Any) -> list[Any]:
        """Hand a message over; what is said at once."""
        self.broker.outbox.messages.clear()
        self.broker.receive("x", message, self.now_ms)
        return [said for _, said in self.broker.outbox.messages]

    def command(self, number: int, *named: PartitionId, complete: bool = False, epoch: int = 1, life: int = 1) -> list[Any]:
        entries = [evolve(notice(1, 0, (1,)), partition=identity) for identity in named]
        return self.tell(LeaderAndIsr(9, epoch, life, number, complete, 1_000, entries, as_of=number))

    def reported(self) -> list[tuple[int, str, list[PartitionId]]]:
        """What goes with the next heartbeat: (broker epoch, reason, copies); each to the controller."""
        self.broker.outbox.messages.clear()
        self.now_ms += self.broker.config.heartbeat_ms
        self.broker.tick(self.now_ms, 0)
        said = list(self.broker.outbox.messages)
        assert [to for to, message in said if isinstance(message, Heartbeat)] == [("controller", 9)]
        assert all(to == ("controller", 9) for to, _ in said)
        return [(m.broker_epoch, m.reason, m.partitions) for _, m in said if isinstance(m, ReplicasFailed)]


@pytest.mark.parametrize("there", [(), (A,)])
def test_a_copy_that_could_not_be_made_is_reported_with_every_heartbeat(there: tuple[PartitionId, ...]) -> None:
    desk = Desk(*there)
    answer = desk.command(1, B, C)[-1]
    assert isinstance(answer, LeaderAndIsrAnswer)
    assert answer.errors == [(B, Code.STORAGE_ERROR), (C, Code.STORAGE_ERROR)]
    assert desk.broker._commands.notice == 1  # it is over: nobody sends it again
    for _ in range(3):
        assert desk.reported() == [(1, FSYNC, [*there, B, C])]
    desk.command(2, B)
    assert desk.reported() == [(1, FSYNC, [*there, B, C])]


def test_a_healthy_broker_reports_nothing() -> None:
    desk = Desk()
    desk.directory._failed = ""
    desk.command(1, B)
    assert desk.reported() == []


def test_the_next_controller_hears_it_too() -> None:
    desk = Desk()
    desk.command(1, B, C)
    desk.command(3, epoch=2)  # it says something, and its complete notice is still under way
    assert desk.reported() == [(1, FSYNC, [B, C])]
    desk.command(0, B, complete=True, epoch=2)  # C went to another broker, or away
    assert desk.reported() == [(1, FSYNC, [B])]


@pytest.mark.parametrize(
    ("command", "left"),
    [
        (StopReplica(9, 1, 1, 6, [StopEntry(B, TOPIC_DELETED, True)], as_of=6), [C]),
        (StopReplica(9, 1, 1, 6, [StopEntry(B, 0, False)], as_of=6), [C]),
        (StopReplica(9, 1, 1, 4, [StopEntry(B, 0, False)], as_of=4), [B, C]),  # late: it was wanted again since
        (LeaderAndIsr(9, 1, 1, 6, True, 1_000, [], as_of=6), []),
        (LeaderAndIsr(9, 1, 1, 4, True, 1_000, [], as_of=4), [B, C]),  # late: it speaks about its own time
        (LeaderAndIsr(9, 0, 1, 6, True, 1_000, [], as_of=6), [B, C]),  # of a controller that was replaced
        (Registered(1, 2), []),  # the complete notice of the new life names it, and is repeated until it is answered
    ],
)
def test_until_it_is_dealt_with(command: Any, left: list[PartitionId]) -> None:
    desk = Desk()
    desk.command(5, B, C)
    desk.tell(command)
    assert [copies for _, _, copies in desk.reported()] == ([left] if left else [])


def test_a_late_notice_makes_no_wish_older_than_it_is() -> None:
    desk = Desk()
    desk.command(5, B)
    desk.command(3, B)
    desk.command(4, complete=True)
    assert desk.reported() == [(1, FSYNC, [B])]


def test_a_copy_that_there_is_no_room_for_yet_has_not_failed() -> None:
    desk = Desk()

    def full(starts: Iterable[LogStart]) -> list[Log]:
        raise LogFull("no space left")

    desk.directory.create = full  # type: ignore[method-assign]
    assert desk.command(1, B)[-1].errors == [(B, Code.LOG_DIRECTORY_FULL)]
    assert desk.reported() == []


def test_in_its_next_life_a_broker_reports_it_under_its_new_epoch() -> None:
    desk = Desk()
    desk.command(5, B)
    desk.tell(Registered(1, 2))
    desk.command(0, B, complete=True, life=2)
    assert desk.reported() == [(2, FSYNC, [B])]


def test_a_copy_that_was_made_after_all_is_reported_no_more() -> None:
    desk = Desk()
    desk.command(1, B, C)
    desk.directory._failed = ""  # another backend may get over it
    desk.command(2, B)
    assert desk.reported() == [(1, FSYNC, [C])]


@pytest.mark.parametrize("there", [(), (A,)])
def test_a_failed_directory_is_told_once_to_people_with_or_without_copies(there: tuple[PartitionId, ...]) -> None:
    desk = Desk(*there)
    desk.command(1, B)
    desk.command(2, C)
    told = [event.name for event in desk.broker.outbox.events]
    assert told.count("directory_failed") == 1
    assert told.count("replica_failed") == len(there)


def test_a_reason_that_names_a_folder_which_is_no_utf_8_can_be_sent() -> None:
    desk = Desk(A)
    desk.command(1, B)
    desk.broker._commands.problem = "log directory /srv/\udcff: a flush failed"
    assert desk.reported() == [(1, "log directory /srv/\\udcff: a flush failed", [A, B])]
