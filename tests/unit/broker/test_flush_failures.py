"""A flush that failed is final for its directory, whatever has become of the copy it was of (R14, S22)."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest
from attrs import evolve

from replog.broker.broker import Broker
from replog.config import BrokerConfig, TopicConfig
from replog.errors import Code, LogDamaged, LogFull
from replog.log.directory import FileLogDirectory
from replog.log.memory import MemoryLogDirectory
from replog.messages import (
    ClusterView,
    LeaderAndIsr,
    LeaderAndIsrAnswer,
    PartitionNotice,
    Produce,
    Produced,
    ProduceEntry,
    Registered,
    ReplicasFailed,
    ReplicaState,
    ReplicaStates,
    ReplicaStatesAnswer,
    StopEntry,
    StopReplica,
    StopReplicaAnswer,
    UpdateMetadata,
)
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.ports import FlushDone, FlushToken, LogStart
from replog.records import encode_records
from replog.testing.clock import SeededIds
from replog.testing.disk import SimulatedDisk

A, B = (PartitionId(bytes(16), n, 0) for n in (0, 1))


class Desk:
    """A broker that leads A and B alone, with flush="ack"."""

    def __init__(self) -> None:
        config = BrokerConfig()
        self.directory = MemoryLogDirectory(limits=config, directory_id="d" * 32)
        self.broker = Broker(1, self.directory, config=config, ids=SeededIds(1))
        self.tell(Registered(1, 1))
        self.tell(LeaderAndIsr(1, 1, 1, 0, True, 1_000, [self.notice(A), self.notice(B)], as_of=0))

    def notice(self, identity: PartitionId) -> PartitionNotice:
        config = TopicConfig(min_isr=1, flush="ack")
        return PartitionNotice(identity, "t", PartitionState(1, 0, (1,)), Assignment((1,)), config)

    def tell(self, message: Any) -> list[Any]:
        """Hand a message over; what is said to it."""
        self.broker.outbox.messages.clear()
        self.broker.receive("client", message, 1)
        self.broker.tick(1, 1)
        return [said for _, said in self.broker.outbox.messages]

    def append(self, identity: PartitionId) -> FlushToken:
        """Append one record; the flush it waits for."""
        self.tell(Produce(-1, 1_000, [ProduceEntry(1, identity, encode_records(["x"], now_ms=0))]))
        (token,), self.broker.outbox.flushes = self.broker.outbox.flushes, []
        return token

    def stop(self, *, delete: bool) -> None:
        self.tell(StopReplica(1, 1, 1, 1, [StopEntry(A, 1, delete)], as_of=1))


def failed(token: FlushToken) -> FlushDone:
    token.error = OSError(5, "fsync failed")
    return FlushDone(token)


def without_descriptors(token: FlushToken) -> FlushDone:
    token.error = OSError(errno.EMFILE, "no descriptors")
    return FlushDone(token)


def codes(said: list[Any]) -> list[int]:
    return [entry.error for message in said if isinstance(message, Produced) for entry in message.entries]


def assert_all_is_over(desk: Desk, waiting: FlushToken, said: list[Any]) -> None:
    assert codes(said) == [Code.STORAGE_ERROR]  # the append to B that waited
    assert "fsync failed" in (desk.broker.partitions[B].failed or "")
    assert desk.tell(FlushDone(waiting.run())) == []
    with pytest.raises(LogDamaged, match="fsync failed"):
        desk.directory.create([LogStart(PartitionId(bytes(16), 2, 0), "t", TopicConfig(min_isr=1))])


@pytest.mark.parametrize("delete", [False, True])
def test_of_a_copy_that_is_no_longer_served(delete: bool) -> None:
    desk = Desk()
    token, waiting = desk.append(A), desk.append(B)
    desk.stop(delete=delete)
    assert_all_is_over(desk, waiting, desk.tell(failed(token)))


def test_of_a_copy_that_has_failed_already() -> None:
    desk = Desk()
    token, waiting = desk.append(A), desk.append(B)
    desk.broker._fail(desk.broker.partitions[A], "a read failed")
    assert desk.broker.partitions[B].failed is None
    assert_all_is_over(desk, waiting, desk.tell(failed(token)))


def test_one_that_has_run_does_no_harm_to_others_when_its_copy_is_gone() -> None:
    desk = Desk()
    token, waiting = desk.append(A), desk.append(B)
    desk.stop(delete=True)
    desk.tell(FlushDone(token.run()))
    assert codes(desk.tell(FlushDone(waiting.run()))) == [Code.NONE]


def test_one_that_has_run_counts_for_a_copy_that_is_only_kept() -> None:
    desk = Desk()
    token = desk.append(A)
    desk.stop(delete=False)
    desk.tell(FlushDone(token.run()))
    log = desk.directory.get(A)
    assert log is not None
    assert log.flushed_end == 1


def test_it_says_nothing_about_another_log_under_the_same_identity() -> None:
    desk = Desk()
    token = desk.append(A)
    desk.stop(delete=True)
    notice = desk.notice(A)
    desk.tell(LeaderAndIsr(1, 1, 1, 2, False, 1_000, [notice], as_of=2))
    desk.broker.outbox.flushes.clear()
    desk.tell(Produce(-1, 1_000, [ProduceEntry(2, A, encode_records(["y"], now_ms=0))]))
    assert codes(desk.tell(FlushDone(token.run()))) == []
    assert desk.broker.partitions[A].log.flushed_end == 0
    (token,) = desk.broker.outbox.flushes
    assert codes(desk.tell(FlushDone(token.run()))) == [Code.NONE]


def test_a_failed_directory_tells_the_next_controller_so() -> None:
    desk = Desk()
    desk.tell(failed(desk.append(A)))
    (said,) = desk.tell(LeaderAndIsr(2, 2, 1, 0, True, 1_000, [desk.notice(A), desk.notice(B)], as_of=0))
    assert said.errors == [(A, Code.STORAGE_ERROR), (B, Code.STORAGE_ERROR)]


def test_a_loss_report_that_cannot_be_taken_back_for_want_of_space_stays() -> None:
    desk = Desk()

    def full(broker_epoch: int) -> None:
        raise LogFull("no space left")

    desk.directory.registered = full  # type: ignore[method-assign]
    (said,) = desk.tell(LeaderAndIsr(1, 1, 1, 1, True, 1_000, [desk.notice(A), desk.notice(B)], as_of=1))
    assert said.errors == []


@pytest.mark.parametrize("delete", [False, True])
def test_one_that_found_no_descriptors_harms_nobody(delete: bool) -> None:
    desk = Desk()
    token, waiting = desk.append(A), desk.append(B)
    desk.stop(delete=delete)
    desk.tell(without_descriptors(token))
    assert codes(desk.tell(FlushDone(waiting.run()))) == [Code.NONE]


@pytest.mark.parametrize("flush", ["ack", "interval"])
def test_one_that_found_no_descriptors_is_done_later(flush: str) -> None:
    """Nothing was tried, so that nothing can be lost: no fsync has failed. It is not repeated at once: others are to close some first."""
    desk = DeskWithFiles(flush=flush)
    desk.tell(Produce(-1, 9_000, [ProduceEntry(1, A, encode_records(["x"], now_ms=0))]))
    desk.broker.tick(1_001, 1_001)
    (token,), desk.broker.outbox.flushes = desk.broker.outbox.flushes, []
    desk.broker.receive("client", without_descriptors(token), 1_001)
    desk.broker.tick(1_001, 1_001)
    desk.broker.tick(2_000, 2_000)
    assert (desk.broker.outbox.flushes, desk.broker.partitions[A].failed) == ([], None)
    desk.broker.tick(2_101, 2_101)
    (token,) = desk.broker.outbox.flushes
    answers = codes(desk.tell(FlushDone(token.run())))
    assert answers == ([Code.NONE] if flush == "ack" else [])
    assert desk.broker.partitions[A].log.flushed_end == 1


class DeskWithFiles(Desk):
    """The same over files, on a disk that can be told to fail."""

    def __init__(self, *, flush: str = "ack") -> None:
        self.flush = flush
        self.disk = SimulatedDisk(random.Random(1))
        config = BrokerConfig(checkpoint_interval_ms=100)
        self.directory = FileLogDirectory("/d", limits=config, fs=self.disk)  # type: ignore[assignment]
        self.broker = Broker(1, self.directory, config=config, ids=SeededIds(1))
        self.tell(Registered(1, 1))
        self.tell(LeaderAndIsr(1, 1, 1, 0, True, 1_000, [self.notice(A), self.notice(B)], as_of=0))

    def notice(self, identity: PartitionId) -> PartitionNotice:
        config = TopicConfig(min_isr=1, flush=self.flush, flush_interval_ms=1_000)  # type: ignore[arg-type]
        return PartitionNotice(identity, "t", PartitionState(1, 0, (1,)), Assignment((1,)), config)


def test_a_topic_that_is_deleted_while_it_is_flushed_harms_nobody() -> None:
    """Its folder has another name by then: that is no failure of the disk."""
    desk = DeskWithFiles()
    token = desk.append(A)
    desk.stop(delete=True)
    token.error = token.run().error
    desk.tell(FlushDone(token))
    assert desk.broker.partitions[B].failed is None
    waiting = desk.append(B)
    assert codes(desk.tell(FlushDone(waiting.run()))) == [Code.NONE]


@pytest.mark.parametrize("flush", ["ack", "interval"])
def test_a_copy_that_cannot_be_made_ends_all_of_a_failed_directory(flush: str) -> None:
    desk = DeskWithFiles(flush=flush)
    desk.tell(Produce(-1, 1_000, [ProduceEntry(1, A, encode_records(["x"], now_ms=0))]))
    desk.disk.arm("fsync_error", times=1)
    other = desk.notice(PartitionId(bytes(16), 2, 0))
    (answer,) = [m for m in desk.tell(LeaderAndIsr(1, 1, 1, 1, False, 1_000, [other], as_of=1)) if hasattr(m, "errors")]
    assert [error for _, error in answer.errors] == [Code.STORAGE_ERROR]
    assert all(desk.broker.partitions[identity].failed for identity in (A, B))
    desk.broker.tick(5_000, 5_000)  # and nothing is flushed that cannot be


def test_a_flush_that_cannot_begin_fails_the_copy_and_nothing_else() -> None:
    desk = DeskWithFiles(flush="interval")
    desk.tell(Produce(-1, 1_000, [ProduceEntry(1, A, encode_records(["x"], now_ms=0))]))
    desk.directory.get(A).fail("its files are gone")  # type: ignore[union-attr]
    for now_ms in (2_000, 3_000):
        desk.broker.tick(now_ms, now_ms)
    assert desk.broker.partitions[A].failed == "its files are gone"
    assert desk.broker.partitions[B].failed is None


@pytest.mark.parametrize("who", ["let in", "fenced", "another life", "nobody"])
def test_without_room_to_note_that_a_life_was_let_in_it_is_noted_later(who: str) -> None:
    """Or a clean stop would report, once more, what the controller has dealt with. Before that it is reported again."""
    desk = DeskWithFiles()
    waiting = desk.append(A)
    desk.tell(FlushDone(waiting.run()))
    desk.broker.upkeep.save()
    desk.directory.close(clean=False)
    desk.disk.kill()
    for path in desk.disk.paths("/d/logs"):
        if "-0-0/" in path:
            desk.disk.unlink(f"/{path}")
    again = FileLogDirectory("/d", fs=desk.disk)
    assert again.loss.lossy == (A,)
    broker = Broker(1, again, config=BrokerConfig(checkpoint_interval_ms=100), ids=SeededIds(2))
    broker.receive("m", Registered(1, 2), 0)
    broker.receive("c", LeaderAndIsr(1, 1, 2, 0, True, 1_000, [desk.notice(A), desk.notice(B)], as_of=0), 1)
    desk.disk.arm("no_space")
    seen = {"let in": [BrokerInfo(1, 2)], "fenced": [BrokerInfo(1, 2, fenced=True)], "another life": [BrokerInfo(1, 1)], "nobody": []}[who]
    broker.receive("c", UpdateMetadata(1, 1, 2, ClusterView(1, 1, -1, 1, seen, [])), 1)
    broker.tick(1, 1)
    desk.disk.disarm()
    for now_ms in range(100, 1_000, 100):
        broker.tick(now_ms, now_ms)
    broker.upkeep.save()
    again.close(clean=True)
    loss = FileLogDirectory("/d", fs=desk.disk).loss
    if who == "let in":
        assert (loss.kind, loss.lossy, loss.lives) == ("none", (), (again.incarnation,))
    else:
        assert (loss.lossy, loss.since) == ((A,), again.incarnation)


def refused(desk: Desk, number: int, *, complete: bool = False) -> list[tuple[PartitionId, int]]:
    """What is wrong with A, once it is to follow broker 2."""
    follows = evolve(desk.notice(A), state=PartitionState(2, number, (2,)), assignment=Assignment((2, 1)))
    said = desk.tell(LeaderAndIsr(1, 1, 1, number, complete, 1_000, [follows], as_of=number))
    (answer,) = [message for message in said if isinstance(message, LeaderAndIsrAnswer)]
    return answer.errors


def put_away(desk: Desk, number: int) -> list[tuple[PartitionId, int]]:
    said = desk.tell(StopReplica(1, 1, 1, number, [StopEntry(A, number, True)], as_of=number))
    (answer,) = [message for message in said if isinstance(message, StopReplicaAnswer)]
    return answer.errors


def states(desk: Desk) -> list[ReplicaState]:
    (answer,) = [m for m in desk.tell(ReplicaStates(1, 1, 1, 9, [A])) if isinstance(m, ReplicaStatesAnswer)]
    return answer.replicas


def reported(desk: Desk, now_ms: int) -> list[PartitionId]:
    desk.broker.outbox.messages.clear()
    desk.broker.tick(now_ms, now_ms)
    return [one for _, message in desk.broker.outbox.messages if isinstance(message, ReplicasFailed) for one in message.partitions]


@pytest.mark.parametrize("kind", [Desk, DeskWithFiles])
def test_a_copy_that_has_failed_and_cannot_be_put_away_is_not_served_again(kind: type[Desk]) -> None:
    """X-15: the controller would take an answer without an error for a copy that was made anew."""
    desk = kind()
    desk.tell(failed(desk.append(A)))
    assert put_away(desk, 2) == [(A, Code.STORAGE_ERROR)]
    assert states(desk) == []
    assert refused(desk, 3) == [(A, Code.STORAGE_ERROR)]
    assert A in reported(desk, 5_000)


@pytest.mark.parametrize("how", ["stopped", "stray"])
def test_nor_is_one_that_was_not_served_when_its_directory_failed(how: str) -> None:
    desk = Desk()
    waiting = desk.append(B)
    if how == "stopped":
        desk.stop(delete=False)
    else:
        desk.tell(LeaderAndIsr(1, 1, 1, 1, True, 1_000, [desk.notice(B)], as_of=1))
    assert A not in desk.broker.partitions
    desk.tell(failed(waiting))
    assert states(desk) == []
    assert refused(desk, 3) == [(A, Code.STORAGE_ERROR)]
    assert reported(desk, 5_000) == [B, A]


def test_one_that_was_put_away_at_last_is_made_anew() -> None:
    desk = Desk()
    desk.broker._fail(desk.broker.partitions[A], "a read failed")
    put = desk.directory.quarantine_each

    def full(identities: Any, wall_ms: int) -> None:
        raise LogFull("no space left")

    desk.directory.quarantine_each = full  # type: ignore[method-assign]
    assert put_away(desk, 2) == [(A, Code.STORAGE_ERROR)]
    assert refused(desk, 3) == [(A, Code.STORAGE_ERROR)]
    desk.directory.quarantine_each = put  # type: ignore[method-assign]
    assert put_away(desk, 4) == []
    assert states(desk) == [ReplicaState(A, -1, 0)]
    assert reported(desk, 5_000) == []
    assert refused(desk, 5) == []
    assert desk.broker.partitions[A].role == "follower"


def test_a_failed_copy_that_the_controller_does_not_know_is_not_served_when_it_does() -> None:
    """Its topic could not be read, and was mended."""
    desk = Desk()
    desk.broker._fail(desk.broker.partitions[A], "a read failed")
    desk.tell(LeaderAndIsr(1, 1, 1, 1, True, 1_000, [desk.notice(B)], as_of=1))
    assert refused(desk, 2) == [(A, Code.STORAGE_ERROR)]


def told_without_room(desk: Desk, notice: PartitionNotice, number: int) -> list[tuple[PartitionId, int]]:
    make = desk.directory.create

    def full(starts: Any) -> list[Any]:
        raise LogFull("no space left")

    desk.directory.create = full  # type: ignore[method-assign]
    said = desk.tell(LeaderAndIsr(1, 1, 1, number, False, 1_000, [notice], as_of=number))
    (answer,) = [message for message in said if isinstance(message, LeaderAndIsrAnswer)]
    desk.directory.create = make  # type: ignore[method-assign]
    return answer.errors


def test_a_deposed_leader_without_room_for_another_flush_acknowledges_nothing_more() -> None:
    desk = Desk()
    waiting = desk.append(A)
    config = TopicConfig(min_isr=1)
    deposed = evolve(desk.notice(A), state=PartitionState(2, 1, (2,), partition_epoch=1), assignment=Assignment((1, 2)), config=config)
    assert told_without_room(desk, deposed, 1) == [(A, Code.LOG_DIRECTORY_FULL)]
    partition = desk.broker.partitions[A]
    assert (partition.role, partition.leader_epoch, partition.config.flush) == ("idle", 1, "ack")
    assert Code.NONE not in codes(desk.tell(FlushDone(waiting.run())))
    assert codes(desk.tell(Produce(-1, 1_000, [ProduceEntry(2, A, encode_records(["y"], now_ms=0))]))) == [Code.NOT_LEADER_OR_FOLLOWER]
    desk.tell(LeaderAndIsr(1, 1, 1, 1, False, 1_000, [deposed], as_of=1))
    assert (partition.role, partition.config.flush) == ("follower", "os")


def test_one_that_is_elected_without_room_for_another_flush_leads_once_there_is_some() -> None:
    desk = Desk()
    elected = evolve(desk.notice(A), state=PartitionState(1, 1, (1,), partition_epoch=1), config=TopicConfig(min_isr=1))
    assert told_without_room(desk, elected, 1) == [(A, Code.LOG_DIRECTORY_FULL)]
    assert desk.broker.partitions[A].role == "idle"
    desk.tell(LeaderAndIsr(1, 1, 1, 1, False, 1_000, [elected], as_of=1))
    assert desk.broker.partitions[A].role == "leader"


def test_a_leader_without_room_for_another_flush_leads_on_until_it_hears_of_a_later_epoch() -> None:
    """Within its epoch nobody else can lead, and it could not begin again."""
    desk = Desk()
    waiting = desk.append(A)
    assert told_without_room(desk, evolve(desk.notice(A), config=TopicConfig(min_isr=1)), 1) == [(A, Code.LOG_DIRECTORY_FULL)]
    assert codes(desk.tell(FlushDone(waiting.run()))) == [Code.NONE]
