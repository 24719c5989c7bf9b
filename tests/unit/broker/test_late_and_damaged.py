"""Late, repeated and damaged: schedules that must not leave a broker in a state it never gets out of."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest
from tests.unit.broker import test_publishing as publishing

from replog.broker.broker import Broker
from replog.broker.sessions import Sessions
from replog.broker.waiting import WaitingAppend, WaitingAppends
from replog.config import BrokerConfig, TopicConfig
from replog.errors import Code, LogCorrupt
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.log.memory import MemoryLog, MemoryLogDirectory
from replog.marks import WriterMark, marked
from replog.messages import (
    Fetch,
    Fetched,
    FetchedEntry,
    FetchEntry,
    LeaderAndIsr,
    LeaderAndIsrAnswer,
    ListOffsets,
    ListOffsetsEntry,
    PartitionNotice,
    Produce,
    Produced,
    ProduceEntry,
    Registered,
)
from replog.model import ACKS_ALL, ACKS_LEADER, Assignment, BrokerInfo, PartitionId, PartitionState
from replog.partition.partition import Partition
from replog.ports import Log, LogStart, MemorySlice, Outbox
from replog.records import Record, RecordBatch, encode_records
from replog.testing.clock import SeededIds
from replog.testing.disk import SimulatedDisk
from replog.testing.disk.memory import MemoryFs
from replog.testing.log_samples import append, append_group, batch_of, flush

P, Q = PartitionId(bytes(16), 0, 0), PartitionId(bytes(16), 1, 0)


def led(identity: PartitionId, *values: str, min_isr: int = 2, log: Log | None = None) -> Partition:
    """A partition that broker 1 leads in epoch 5 with 2 and 3, holding these records of epoch 3."""
    log = log or MemoryLog(identity)
    for value in values:
        batch = RecordBatch(encode_records([Record(value)], now_ms=0))
        batch.stamp(identity, log.end_offset, 3)
        log.append(batch)
    brokers = {n: BrokerInfo(n, n) for n in (1, 2, 3)}
    partition = Partition(identity, "t", log, broker_id=1, limits=BrokerConfig(), brokers=brokers)
    state = PartitionState(leader=1, leader_epoch=5, isr=(1, 3))
    notice = PartitionNotice(identity, "t", state, Assignment((1, 2, 3)), TopicConfig(min_isr=min_isr))
    assert partition.become(notice, 0) == Code.NONE
    return partition


class Desk:
    """Sessions over some partitions, and what went out."""

    def __init__(self, *partitions: Partition, bytes_max: int = 4096) -> None:
        self.outbox = Outbox()
        self.failed: list[str] = []
        self.full: list[str] = []
        by_identity = {partition.identity: partition for partition in partitions}
        self.sessions = Sessions(
            self.outbox, by_identity, BrokerConfig(fetch_bytes_max=bytes_max),
            moved=self._moved, failed=self._fail, full=lambda partition, why: self.full.append(str(why)), event=lambda name, **_: None,
        )  # fmt: skip

    def _moved(self, partition: Partition, before: int, now_ms: int) -> None:
        if partition.high_watermark != before:
            self.sessions.committed(partition)

    def _fail(self, partition: Partition, reason: str) -> None:
        partition.fail(reason)
        self.failed.append(reason)

    def ask(self, request: int, replica: int, *entries: FetchEntry, session: tuple[int, int] = (0, 0), verify: bool = False) -> None:
        fetch = Fetch(request, replica, replica, *session, 500, 1, 4096, list(entries), verify=verify)
        self.sessions.on_fetch(replica, fetch, 0)

    def answers(self, reader: int) -> list[Fetched]:
        self.sessions.answer_waiting(0)
        found = [message for to, message in self.outbox.messages if to == reader]
        self.outbox.messages = [(to, message) for to, message in self.outbox.messages if to != reader]
        return found


def test_a_divergence_is_heard_before_any_high_watermark() -> None:
    big, forked = led(P, *["x" * 5000] * 3), led(Q, "m0", "new1", "new2")
    desk = Desk(big, forked)
    # Broker 2 asks for the big one, and for the other with a record of epoch 4 that this leader never had.
    desk.ask(1, 2, FetchEntry(P, 5, 0, -1, 4096), FetchEntry(Q, 5, 3, 4, 4096))
    desk.ask(1, 3, FetchEntry(Q, 5, 3, 3, 4096))  # in the same poll broker 3 commits all of it
    assert forked.high_watermark == 3
    (first,) = desk.answers(2)
    assert [entry.partition for entry in first.entries] == [P]  # the answer is full
    desk.ask(2, 2, FetchEntry(P, 5, 1, 3, 10), session=(first.session, 1))
    (second,) = desk.answers(2)
    assert [(e.partition, e.diverging_epoch) for e in second.entries if e.partition == Q] == [(Q, 3)]


def test_late_requests_about_a_replaced_session_change_nothing() -> None:
    partition = led(P, "m0")
    desk = Desk(partition)
    desk.ask(1, 2, FetchEntry(P, 5, 0, -1, 4096))
    (opened,) = desk.answers(2)
    desk.ask(2, 2, FetchEntry(P, 5, 1, 3, 4096), session=(opened.session, 1))
    desk.ask(1, 2, FetchEntry(P, 5, 0, -1, 4096))  # the opening fetch again
    desk.ask(3, 2, session=(opened.session + 7, -1))  # a close of another session
    batch = RecordBatch(encode_records([Record("m1")], now_ms=0))
    assert partition.append(batch, 1, 0).error == Code.NONE
    desk.sessions.appended(partition)
    (answer,) = desk.answers(2)
    assert (answer.request, answer.error, len(answer.entries)) == (2, Code.NONE, 1)


def test_a_repetition_waits_for_its_original_only() -> None:
    partition = led(P, "m0", "m1", min_isr=1)
    outbox = Outbox()
    waiting = WaitingAppends(outbox, 10)
    for request, end in ((1, 1), (2, 2), (3, 1)):  # the third repeats the first
        assert waiting.park(partition, WaitingAppend("c", request, ACKS_ALL, end - 1, end, 1_000))
    partition.high_watermark = 1
    waiting.wake(partition)
    answered = [entry.request for _, message in outbox.messages if isinstance(message, Produced) for entry in message.entries]
    assert answered == [1, 3]


def test_what_came_before_the_damage_is_flushed() -> None:
    directory = MemoryLogDirectory(directory_id="d")
    broker = Broker(2, directory, config=BrokerConfig(), ids=SeededIds(1))
    broker.receive("membership", Registered(2, 2), 0)
    state = PartitionState(leader=1, leader_epoch=5, isr=(1, 2))
    config = TopicConfig(min_isr=1, flush="ack")
    notice = PartitionNotice(P, "t", state, Assignment((1, 2)), config)
    broker.receive(("controller", 1), LeaderAndIsr(1, 1, 2, 0, True, 1_000, [notice], as_of=0), 0)
    broker.tick(0, 0)
    (fetch,) = [message for _, message in broker.outbox.messages if isinstance(message, Fetch)]
    batch = RecordBatch(encode_records([Record("m0")], now_ms=0))
    batch.stamp(P, 0, 5)
    piece = MemorySlice(0, 2, batch.to_bytes() + b"damage" * 20)
    entry = FetchedEntry(P, 5, 0, high_watermark=0, start_offset=0, end_offset=2, slices=[piece])
    broker.receive(1, Fetched(fetch.request, 7, 0, Code.NONE, [entry]), 0)
    broker.tick(0, 0)
    assert broker.partitions[P].log.end_offset == 1
    assert [token.end for token in broker.outbox.flushes] == [1]


def test_a_leader_that_reads_damage_gives_its_copy_up() -> None:
    partition = led(P, "m0")
    log = partition.log
    assert isinstance(log, MemoryLog)
    damaged = bytearray(log._frames[0])
    damaged[-1] ^= 1
    log._frames[0] = bytes(damaged)
    log.forget_tail()
    log._tail.clear()
    desk = Desk(partition)
    desk.ask(1, 2, FetchEntry(P, 5, 0, -1, 4096))
    (unchecked,) = desk.answers(2)
    assert unchecked.entries[0].error == Code.NONE  # the follower will find out
    desk.ask(2, 2, FetchEntry(P, 5, 0, -1, 4096), session=(unchecked.session, 1), verify=True)
    (checked,) = desk.answers(2)
    assert (checked.entries[0].error, checked.entries[0].slices) == (Code.STORAGE_ERROR, [])
    assert "checksum" in desk.failed[0]


def test_a_leader_that_is_asked_to_verify_notices_a_batch_in_another_place() -> None:
    partition = led(P, "m0", "m1")
    log = partition.log
    assert isinstance(log, MemoryLog)
    log._frames[0] = log._frames[1]
    log.forget_tail()
    log._tail.clear()
    desk = Desk(partition)
    desk.ask(1, 2, FetchEntry(P, 5, 0, -1, 4096), verify=True)
    (answer,) = desk.answers(2)
    assert (answer.entries[0].error, answer.entries[0].slices) == (Code.STORAGE_ERROR, [])
    assert "a batch at offset 1 where 0 is expected" in desk.failed[0]


@pytest.mark.parametrize("replica", [2, -1], ids=["follower", "client"])
def test_what_is_in_front_of_damage_is_sent_before_the_copy_is_given_up(replica: int) -> None:
    """Whoever asks for it gets it, whatever is asked for at once; whoever goes on there has the leader notice."""
    fs = MemoryFs()
    (log,) = FileLogDirectory("/d", fs=fs, limits=BrokerConfig()).create([LogStart(P, "t", TopicConfig())])
    length = append(log, ["m"], epoch=3).length
    for _ in range(5):
        append(log, ["m"], epoch=3)
    (path,) = [path for path in fs.paths() if path.endswith(".log")]
    fs.content(f"/{path}")[4 * length] ^= 1
    log.forget_tail()
    partition = led(P, log=log)
    partition.high_watermark = 6
    desk = Desk(partition)
    desk.ask(1, replica, FetchEntry(P, 5, 0, -1, 5 * length))
    (served,) = desk.answers(replica)
    assert [(piece.base_offset, piece.end_offset) for piece in served.entries[0].slices] == [(0, 4)]
    assert not desk.failed
    session = (served.session, 1) if replica >= 0 else (0, 0)
    desk.ask(2, replica, FetchEntry(P, 5, 4, 3, 5 * length), session=session)
    (refused,) = desk.answers(replica)
    assert (refused.entries[0].error, refused.entries[0].slices) == (Code.STORAGE_ERROR, [])
    assert "the batch at offset 4 is not at position" in desk.failed[0]


@pytest.mark.parametrize("replica", [2, -1], ids=["follower", "client"])
def test_a_leader_that_cannot_open_a_file_for_now_keeps_its_copy(replica: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFs()
    (log,) = FileLogDirectory("/d", fs=fs, limits=BrokerConfig()).create([LogStart(P, "t", TopicConfig())])
    assert isinstance(log, FileLog)
    for _ in range(3):
        append(log, ["m"], epoch=3)
    partition = led(P, log=log)
    partition.high_watermark = 3
    log.forget_tail()
    log._storage.files.close(log._segments[0])
    desk = Desk(partition)

    def none_left(path: str, *, create: bool = False) -> int:
        raise OSError(errno.EMFILE, "Too many open files", path)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "open", none_left)
        desk.ask(1, replica, FetchEntry(P, 5, 0, -1, 4096))
        (refused,) = desk.answers(replica)
    assert [(one.error, one.slices) for one in refused.entries] == [(Code.LOG_DIRECTORY_FULL, [])], "its reader pauses, and asks again"
    assert (desk.failed, partition.failed, partition.role) == ([], None, "leader")
    assert ["Too many open files" in why for why in desk.full] == [True]
    session = (refused.session, 1) if replica >= 0 else (0, 0)
    desk.ask(2, replica, FetchEntry(P, 5, 0, -1, 4096), session=session)
    (served,) = desk.answers(replica)
    assert [(piece.base_offset, piece.end_offset) for piece in served.entries[0].slices] == [(0, 3)]


def test_a_broker_tells_now_and_then_of_a_log_that_it_cannot_read_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFs()
    desk = publishing.Desk(FileLogDirectory("/d", fs=fs, limits=BrokerConfig()))
    desk.tell(desk.append("x"))
    log, place = desk.partition.log, desk.identity
    assert isinstance(log, FileLog)
    log.forget_tail()
    log._storage.files.close(log._segments[0])

    def none_left(path: str, *, create: bool = False) -> int:
        raise OSError(errno.ENFILE, "Too many open files in system", path)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "open", none_left)
        read = desk.tell(Fetch(1, -1, -1, 0, -1, 0, 1, 1_000, [FetchEntry(place, -1, 0, -1, 1_000)]))
        found = desk.tell(ListOffsets(2, [ListOffsetsEntry(place, -1, 0)]))
    assert [one.entries[0].error for one in (*read, *found)] == [Code.LOG_DIRECTORY_FULL] * 2
    (told,) = [event.fields for event in desk.broker.outbox.events if event.name == "log_full"]
    assert "cannot be read now" in told["problem"]
    found = desk.tell(ListOffsets(3, [ListOffsetsEntry(place, -1, 0)]))
    assert [(one.entries[0].error, one.entries[0].offset) for one in found] == [(Code.NONE, 0)]


def test_a_leader_that_finds_damage_where_it_would_append_gives_its_copy_up() -> None:
    """The end of a segment whose index is not in memory any more is looked for in the batches themselves."""
    fs = MemoryFs()
    directory = FileLogDirectory("/d", fs=fs, limits=BrokerConfig())
    broker = Broker(1, directory, config=BrokerConfig(), ids=SeededIds(1))
    broker.receive("membership", Registered(1, 5), 0)
    state = PartitionState(leader=1, leader_epoch=0, isr=(1,))
    for number, partition in enumerate((P, Q)):
        entry = PartitionNotice(partition, "t", state, Assignment((1,)), TopicConfig(min_isr=1))
        broker.receive(("controller", 1), LeaderAndIsr(1, 1, 5, number, False, 1_000, [entry], as_of=number), 0)
    body = RecordBatch(encode_records([Record("m")], now_ms=0)).body
    for partition in (P, P, Q):
        broker.receive("client", Produce(ACKS_LEADER, 1_000, [ProduceEntry(1, partition, body)]), 0)
    log = broker.partitions[P].log
    assert isinstance(log, FileLog)
    log._segments[0].index = None
    content = fs.content(str(log._segments[0].path))
    content[: len(content) // 2] = content[len(content) // 2 :]
    broker.outbox.messages.clear()
    for partition in (P, Q, P):
        broker.receive("client", Produce(ACKS_LEADER, 1_000, [ProduceEntry(2, partition, body)]), 0)
    answers = [entry.error for _, message in broker.outbox.messages if isinstance(message, Produced) for entry in message.entries]
    assert answers == [Code.STORAGE_ERROR, Code.NONE, Code.STORAGE_ERROR]
    assert broker.partitions[P].failed
    assert "not at position" in broker.partitions[P].failed


def test_whoever_waits_for_records_is_answered_when_its_time_is_over() -> None:
    """Not with the next heartbeat; and until then nobody has to ask this broker for anything."""
    broker = Broker(1, MemoryLogDirectory(), config=BrokerConfig(heartbeat_ms=60_000, replica_lag_ms_max=600_000), ids=SeededIds(1))
    broker.receive("membership", Registered(1, 5), 0)
    state = PartitionState(leader=1, leader_epoch=0, isr=(1,))
    entry = PartitionNotice(P, "t", state, Assignment((1,)), TopicConfig(min_isr=1))
    broker.receive(("controller", 1), LeaderAndIsr(1, 1, 5, 0, True, 600_000, [entry], as_of=0), 0)
    broker.tick(0, 0)
    broker.outbox.messages.clear()
    broker.receive("c", Fetch(1, -1, -1, 0, -1, 70, 1, 4096, [FetchEntry(P, 0, 0, -1, 4096)]), 10)
    broker.tick(10, 0)
    assert [message for to, message in broker.outbox.messages if to == "c"] == []
    assert broker.deadline_ms() == 80
    broker.tick(80, 0)
    (answer,) = [message for to, message in broker.outbox.messages if to == "c"]
    assert [(e.partition, e.error, e.slices) for e in answer.entries] == [(P, 0, [])]
    due = broker.deadline_ms()
    assert due is None or due > 80


class Elected:
    """Broker 1, whose copy ends with half of a group that its leader has not finished, and which is elected while its disk is full."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(random.Random(1))
        self.directory = FileLogDirectory("/d", fs=self.disk)
        self.broker = Broker(1, self.directory, config=BrokerConfig(), ids=SeededIds(1))
        self.broker.receive("m", Registered(1, 5), 0)
        self.notices = 0
        assert self.told(2, 1, complete=True) == ([], "follower", 0)
        log = self.directory.get(P)
        assert log is not None
        for body in (encode_records(["plain"], now_ms=0), marked(encode_records(["half"], now_ms=0), WriterMark("w", 1, 0), is_last=False)):
            batch = RecordBatch(body)
            batch.stamp(P, log.end_offset, 1)
            log.append(batch)
        flush(log)
        self.directory.checkpoint()
        self.disk.arm("no_space")

    def told(self, leader: int | None, epoch: int, *, complete: bool = False, again: bool = False) -> tuple[list[Any], str, int]:
        """What the broker answers to this state, which role it has then, and up to where notices count."""
        self.notices += not (again or complete)
        state = PartitionState(leader, epoch, (1, 2), partition_epoch=epoch)
        entry = PartitionNotice(P, "t", state, Assignment((1, 2)), TopicConfig(min_isr=1, flush="ack"))
        self.broker.outbox.messages.clear()
        self.broker.receive(("controller", 9), LeaderAndIsr(9, 1, 5, self.notices, complete, 1_000, [entry], as_of=self.notices), epoch)
        (answer,) = [said for _, said in self.broker.outbox.messages if isinstance(said, LeaderAndIsrAnswer)]
        return answer.errors, self.broker.partitions[P].role, self.broker._commands.notice

    def events(self) -> list[str]:
        return [event.name for event in self.broker.outbox.events]


FULL = [(P, Code.LOG_DIRECTORY_FULL)]


def test_a_copy_that_is_elected_on_a_full_disk_leads_once_there_is_room() -> None:
    desk = Elected()
    assert desk.told(1, 2) == (FULL, "idle", 0)
    assert desk.told(1, 2, again=True) == (FULL, "idle", 0)
    assert desk.events() == ["log_full"]
    assert desk.broker.partitions[P].append(batch_of(1), ACKS_LEADER, 0).error == Code.NOT_LEADER_OR_FOLLOWER
    desk.disk.disarm()
    assert desk.told(1, 2, again=True) == ([], "leader", 1)
    log = desk.broker.partitions[P].log
    assert (log.end_offset, log.last_epoch, desk.broker.partitions[P].failed) == (1, 2, None)


def test_without_a_leader_it_says_that_there_is_room_only_when_there_is() -> None:
    """Else it is elected again, and refuses again, for as long as the disk is full."""
    desk = Elected()
    assert desk.told(1, 2) == (FULL, "idle", 0)
    assert desk.told(None, 3) == (FULL, "idle", 0)
    desk.disk.disarm()
    assert desk.told(None, 3, again=True)[:2] == ([], "follower")
    assert desk.told(1, 4)[:2] == ([], "leader")
    assert desk.broker.partitions[P].log.end_offset == 1


def test_a_copy_without_room_to_lead_follows_another() -> None:
    desk = Elected()
    assert desk.told(1, 2) == (FULL, "idle", 0)
    assert desk.told(2, 3)[:2] == ([], "follower")
    assert desk.broker.partitions[P].log.end_offset == 2
    assert desk.told(None, 4)[:2] == ([], "follower")


def test_a_leader_that_finds_no_room_in_its_next_epoch_leads_no_longer() -> None:
    """Not in the old epoch either, of which everybody knows that it is over."""
    desk = Elected()
    desk.disk.disarm()
    assert desk.told(1, 2)[:2] == ([], "leader")
    partition = desk.broker.partitions[P]
    partition.publish([RecordBatch(marked(encode_records(["half"], now_ms=0), WriterMark("w", 1, 0), is_last=False))], 0)
    flush(partition.log)
    desk.directory.checkpoint()
    desk.disk.arm("no_space")
    assert desk.told(1, 3)[:2] == (FULL, "idle")
    partition.check()
    desk.disk.disarm()
    assert desk.told(1, 3, again=True)[:2] == ([], "leader")
    assert partition.log.end_offset == 1


def test_a_high_watermark_that_was_cut_is_in_no_checkpoint_any_more() -> None:
    """Whoever writes one: the next that the broker writes because it has moved may come too late."""
    directory = MemoryLogDirectory(directory_id="d" * 32)
    broker = Broker(1, directory, config=BrokerConfig(), ids=SeededIds(1))
    broker.receive("m", Registered(1, 5), 0)
    (log,) = directory.create([LogStart(P, "t", TopicConfig())])
    for _ in range(3):
        append(log, 1, epoch=3)
    directory.high_watermarks[P] = 3
    state = PartitionState(2, 5, (2,))
    notice = PartitionNotice(P, "t", state, Assignment((1, 2)), TopicConfig(min_isr=1))
    broker.receive("c", LeaderAndIsr(9, 1, 5, 0, True, 1_000, [notice], as_of=0), 0)
    partition = broker.partitions[P]
    broker._take(partition, FetchedEntry(P, 5, 3, diverging_epoch=3, diverging_end=1), 0)
    assert (partition.high_watermark, log.end_offset, directory.high_watermarks) == (1, 1, {P: 1})


def test_nor_is_one_that_was_not_taken_over_by_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is below it could not be read when the copy was made, which began at the start: nothing of its own falls with the cut."""
    disk, config = MemoryFs(), TopicConfig(min_isr=1)
    directory = FileLogDirectory("/d", fs=disk)
    (log,) = directory.create([LogStart(P, "t", config)])
    for _ in range(3):
        append(log, 1, epoch=3)
    directory.high_watermarks[P] = 3
    directory.checkpoint()
    broker = Broker(1, directory, config=BrokerConfig(), ids=SeededIds(1))
    broker.receive("m", Registered(1, 5), 0)

    def unreadable(log: FileLog, offset: int) -> int:
        raise LogCorrupt("a batch is damaged")

    with monkeypatch.context() as damaged:
        damaged.setattr(FileLog, "group_floor", unreadable)
        notice = PartitionNotice(P, "t", PartitionState(2, 5, (2,)), Assignment((1, 2)), config)
        broker.receive("c", LeaderAndIsr(9, 1, 5, 0, True, 1_000, [notice], as_of=0), 0)
    partition = broker.partitions[P]
    assert partition.high_watermark == 0
    broker._take(partition, FetchedEntry(P, 5, 3, diverging_epoch=3, diverging_end=1), 0)
    directory.checkpoint()
    for _ in range(2):
        append(log, 1, epoch=5)
    directory.close(clean=False)
    assert FileLogDirectory("/d", fs=disk).high_watermarks[P] <= 1


def test_nor_is_one_above_the_group_that_a_leader_has_cut() -> None:
    """After a power cut its copy ends within a group, below the watermark that it had: what it takes there next is not committed."""
    disk, config = MemoryFs(), TopicConfig(min_isr=2, flush="interval")
    directory = FileLogDirectory("/d", fs=disk)
    (log,) = directory.create([LogStart(P, "t", config)])
    append(log, 3, epoch=3)
    append_group(log, 3, key="w", epoch=3, whole=False)
    flush(log)
    append(log, 1, epoch=3)
    directory.high_watermarks[P] = log.end_offset
    directory.checkpoint()
    directory.close(clean=False)
    disk.cut_power()
    directory = FileLogDirectory("/d", fs=disk)
    found = directory.get(P)
    assert found is not None
    assert directory.high_watermarks[P] == found.end_offset == 6
    broker = Broker(1, directory, config=BrokerConfig(), ids=SeededIds(1))
    broker.receive("m", Registered(1, 5), 0)
    alone = PartitionState(1, 6, (1,), recovering=True, last_known=(1, 2))
    broker.receive("c", LeaderAndIsr(9, 1, 5, 0, True, 1_000, [PartitionNotice(P, "t", alone, Assignment((1, 2)), config)], as_of=0), 0)
    assert (found.end_offset, broker.partitions[P].high_watermark) == (3, 3)
    directory.checkpoint()
    for _ in range(6):
        append(found, 1, epoch=6)
    directory.close(clean=False)
    assert FileLogDirectory("/d", fs=disk).high_watermarks[P] <= 3
