"""What every log directory must do, as tests: its logs through clean stops, kills and power cuts, and what it reports of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from replog.config import BrokerConfig, TopicConfig
from replog.errors import LogClosed, LogCorrupt, UsageError
from replog.model import PartitionId
from replog.ports import Log, LogDirectory, LogStart
from replog.testing.contract_traits import ContractTraits, asked_if
from replog.testing.log_samples import FIRST, SECOND, SMALL, TOPIC_ID, Ending, Lives, append, batch_of, entries_of, flush, shown

__all__ = ["LogDirectoryContract"]


class LogDirectoryContract(ContractTraits):
    """The contract of `LogDirectory`."""

    is_locked = True
    """Whether a directory that is open is refused to whoever opens it too: see `Lives.open`. Also to the same process: it may run several
    brokers. False only for one in memory that nobody but its owner can reach."""

    @pytest.fixture
    def lives(self) -> Lives:
        """A directory that was never opened."""
        raise NotImplementedError

    @pytest.fixture
    def directory(self, lives: Lives) -> Iterator[LogDirectory]:
        """Its first life."""
        directory = lives.open()
        yield directory
        directory.close(clean=False)

    @pytest.fixture
    def log(self, directory: LogDirectory) -> Log:
        """A log with small segments."""
        return directory.create([LogStart(FIRST, "orders", SMALL)])[0]

    def test_logs_are_made_once(self, directory: LogDirectory) -> None:
        made = directory.create([LogStart(SECOND, "orders", SMALL), LogStart(FIRST, "orders", SMALL)])
        again = directory.create([LogStart(FIRST, "orders", SMALL)])
        assert again[0] is made[1]
        assert directory.identities() == [FIRST, SECOND]
        assert directory.get(SECOND) is made[0]
        assert directory.get(PartitionId(TOPIC_ID, 0, 1)) is None
        assert directory.topic_of(FIRST) == "orders"
        assert len(directory.directory_id) == 32

    @asked_if("is_locked")
    def test_an_open_directory_is_refused_to_everybody_else(self, lives: Lives, directory: LogDirectory, log: Log) -> None:
        append(log, 2)
        for _ in range(2):  # twice: to be refused does not take the lock from who has it
            with pytest.raises(UsageError):
                lives.open()
            append(log, 2)
            directory.create([LogStart(SECOND, "orders", SMALL)])
        lives.end("clean")
        next_life = lives.open()
        assert next_life.loss.lives == (directory.incarnation,), "who was refused was no life"
        assert (next_life.loss.kind, next_life.identities()) == ("none", [FIRST, SECOND])
        found = next_life.get(FIRST)
        assert found is not None
        assert len(shown(found)) == 6
        with pytest.raises(UsageError):
            lives.open()
        lives.end("clean")

    def test_a_new_configuration_is_taken_over(self, lives: Lives, directory: LogDirectory, log: Log) -> None:
        directory.create([LogStart(FIRST, "orders", TopicConfig(flush="ack"))])
        assert log.config.flush == "ack"
        lives.end("process")
        reopened = lives.open().get(FIRST)
        assert reopened is not None
        assert reopened.config == TopicConfig(flush="ack")

    @pytest.mark.parametrize("how", ["clean", "process", "power"])
    def test_another_life_finds_what_was_left(self, lives: Lives, directory: LogDirectory, log: Log, how: Ending) -> None:
        directory.registered(17)
        directory.create([LogStart(SECOND, "orders", TopicConfig())])
        for number in range(12):
            append(log, 3, epoch=number // 4, producer=(number % 2, 0, 3 * (number // 2)))
        flush(log)
        append(log, 3, epoch=5)
        log.enter_epoch(6)
        directory.high_watermarks[FIRST] = 30
        directory.checkpoint()
        directory.high_watermarks[FIRST] = 33
        lives.end(how)
        next_life = lives.open()
        assert next_life.directory_id == directory.directory_id
        assert next_life.identities() == [FIRST, SECOND]
        found = next_life.get(FIRST)
        assert found is not None
        end = 36 if how == "power" else 39
        assert (found.start_offset, found.end_offset) == (0, end)
        assert len(shown(found)) == end
        assert entries_of(found) == [(0, 0), (1, 12), (2, 24), (5, 36)][: 3 if how == "power" else 4]
        producer = found.producers.get(1)
        assert producer is not None
        assert [w.base_offset for w in producer.recent] == [9, 15, 21, 27, 33]
        assert not found.producers.forgetful
        assert next_life.high_watermarks == {FIRST: 33 if how == "clean" else 30}
        assert next_life.loss.kind == {"clean": "none", "process": "process", "power": "power"}[how]
        assert next_life.loss.lossy == ((FIRST, SECOND) if how == "power" else ())
        append(found, 1, epoch=7)
        assert len(shown(found)) == end + 1

    def test_what_is_flushed_before_each_answer_is_not_lossy(self, lives: Lives, directory: LogDirectory) -> None:
        safe, _ = directory.create([LogStart(FIRST, "safe", TopicConfig(flush="ack")), LogStart(SECOND, "other", TopicConfig())])
        append(safe, 3)
        flush(safe)
        append(safe, 3)  # never flushed, hence never acknowledged
        lives.end("power")
        next_life = lives.open()
        assert next_life.loss.lossy == (SECOND,)
        found = next_life.get(FIRST)
        assert found is not None
        assert found.end_offset == 3

    @pytest.mark.parametrize(("cut", "end"), [("truncate_to", 6), ("reset_to", 4)])
    def test_what_was_cut_on_purpose_is_not_lost(self, lives: Lives, directory: LogDirectory, cut: str, end: int) -> None:
        (log,) = directory.create([LogStart(FIRST, "orders", TopicConfig(flush="ack"))])
        directory.registered(1)
        for _ in range(5):
            append(log, 2)
        flush(log)
        directory.checkpoint()
        getattr(log, cut)(end)
        lives.end("power")
        directory = lives.open()
        found = directory.get(FIRST)
        assert found is not None
        assert (found.end_offset, directory.loss.kind, directory.loss.lossy) == (end, "power", ())

    def test_what_is_no_longer_flushed_before_each_answer_is_lossy(self, lives: Lives, directory: LogDirectory) -> None:
        (log,) = directory.create([LogStart(FIRST, "orders", TopicConfig(flush="ack"))])
        append(log, 3)
        flush(log)
        directory.create([LogStart(FIRST, "orders", TopicConfig(flush="os"))])
        append(log, 3)  # acknowledged as it is
        lives.end("power")
        assert lives.open().loss.lossy == (FIRST,)

    def test_what_is_flushed_before_each_answer_from_now_on_is_not_lossy_once_all_of_it_is(
        self, lives: Lives, directory: LogDirectory
    ) -> None:
        started = [LogStart(one, "orders", TopicConfig(flush="os")) for one in (FIRST, SECOND)]
        first, second = directory.create(started)
        for log in (first, second):
            append(log, 3)
        altered = [start._replace(config=TopicConfig(flush="ack")) for start in started]
        early = second.flush()
        append(second, 2)
        directory.create(altered)
        assert first.config.flush == "ack"
        directory.record_flushes()
        flush(first)
        append(first, 2)  # never flushed, hence never acknowledged
        assert early is not None
        second.flushed(early.run())  # this much is on the disk, and what came before the change is more
        directory.record_flushes()
        directory.create(altered)  # nothing new
        lives.end("power")
        next_life = lives.open()
        assert next_life.loss.lossy == (SECOND,)
        configs = {one: found.config.flush for one in (FIRST, SECOND) if (found := next_life.get(one)) is not None}
        assert configs == {FIRST: "ack", SECOND: "os"}

    @pytest.mark.parametrize("is_flushed", [False, True])
    def test_a_change_that_was_not_recorded_yet_begins_anew_in_the_next_life(
        self, lives: Lives, directory: LogDirectory, is_flushed: bool
    ) -> None:
        start = LogStart(FIRST, "orders", TopicConfig(flush="os"))
        (log,) = directory.create([start])
        append(log, 3)
        directory.create([start._replace(config=TopicConfig(flush="ack"))])
        lives.end("process")
        directory = lives.open()
        (log,) = directory.create([start._replace(config=TopicConfig(flush="ack"))])
        if is_flushed:
            flush(log)
            append(log, 3)
        directory.record_flushes()
        directory.registered(1)
        lives.end("power")
        assert lives.open().loss.lossy == (() if is_flushed else (FIRST,))

    def test_a_change_that_is_taken_back_is_never_recorded(self, lives: Lives, directory: LogDirectory) -> None:
        weak = LogStart(FIRST, "orders", TopicConfig(flush="os"))
        (log,) = directory.create([weak])
        append(log, 3)
        directory.create([weak._replace(config=TopicConfig(flush="ack"))])
        directory.create([weak])
        flush(log)
        directory.record_flushes()
        append(log, 3)
        lives.end("power")
        assert lives.open().loss.lossy == (FIRST,)

    def test_a_log_that_was_cut_is_flushed_when_what_is_left_of_it_is(self, lives: Lives, directory: LogDirectory) -> None:
        start = LogStart(FIRST, "orders", TopicConfig(flush="os"))
        (log,) = directory.create([start])
        for _ in range(3):
            append(log)
        directory.create([start._replace(config=TopicConfig(flush="ack"))])
        log.truncate_to(1)
        flush(log)
        directory.record_flushes()
        lives.end("power")
        assert lives.open().loss.lossy == ()

    def test_a_loss_stays_until_it_was_reported(self, lives: Lives, directory: LogDirectory, log: Log) -> None:
        append(log)
        lives.end("power")
        lives.open()
        lives.end("process")  # before anybody was told
        second = lives.open()
        assert second.loss.lossy == (FIRST,)
        second.registered(5)
        lives.end("process")
        assert lives.open().loss.lossy == ()

    def test_a_life_names_those_that_it_goes_on_from(self, lives: Lives, directory: LogDirectory, log: Log) -> None:
        append(log)
        assert directory.loss.lives == ()
        known = [directory.incarnation]
        ends: tuple[Ending, ...] = ("clean", "process", "process", "clean", "process")
        for how in ends:
            lives.end(how)
            directory = lives.open()
            assert directory.loss.lives == tuple(reversed(known)), "told of anything or not"
            assert directory.incarnation not in known
            known.append(directory.incarnation)

    def test_lives_before_the_one_that_was_let_in_are_named_no_more(self, lives: Lives, directory: LogDirectory, log: Log) -> None:
        append(log)
        lives.end("process")
        directory = lives.open()
        directory.registered(5)
        known = [directory.incarnation]
        lives.end("process")
        directory = lives.open()
        assert directory.loss.lives == tuple(known)
        for _ in range(30):  # started again and again while there is no controller
            known.append(directory.incarnation)
            lives.end("process")
            directory = lives.open()
        assert directory.loss.lives == (*reversed(known[-15:]), known[0]), "the newest, and the one that was let in"

    def test_a_loss_is_reported_with_the_life_that_has_reported_it_first(self, lives: Lives, directory: LogDirectory, log: Log) -> None:
        append(log)
        directory.registered(5)
        known = [directory.incarnation]
        ends: tuple[tuple[Ending, int | None], ...]
        ends = ("power", None), ("process", 1), ("clean", 1), ("power", None), ("process", 4)
        for how, first in ends:
            lives.end(how)
            directory = lives.open()
            since = "" if first is None else known[first]
            assert (directory.loss.lossy, directory.loss.lives, directory.loss.since) == ((FIRST,), tuple(reversed(known)), since)
            known.append(directory.incarnation)
        directory.registered(7)
        lives.end("process")
        loss = lives.open().loss
        assert (loss.lossy, loss.lives, loss.since) == ((), (known[-1],), "")

    def test_a_high_watermark_never_leaves_the_log(self, lives: Lives, directory: LogDirectory, log: Log) -> None:
        for _ in range(4):
            append(log, 3)
        directory.high_watermarks[FIRST] = 100
        directory.checkpoint()
        lives.end("process")
        assert lives.open().high_watermarks == {FIRST: 12}

    @pytest.mark.parametrize("how", ["process", "power"])
    @pytest.mark.parametrize("flushed", [False, True])
    @pytest.mark.parametrize(("cut", "end"), [("truncate_to", 3), ("truncate_to", 0), ("reset_to", 2)])
    def test_a_high_watermark_does_not_outlive_what_it_was_of(
        self, lives: Lives, directory: LogDirectory, log: Log, cut: str, end: int, flushed: bool, how: Ending
    ) -> None:
        """Other records are in the place of those that were cut, and nobody has called them committed."""
        for _ in range(4):
            append(log, 3)
        if flushed:
            flush(log)
        directory.high_watermarks[FIRST] = 12
        directory.checkpoint()
        getattr(log, cut)(end)
        for _ in range(5):
            append(log, 3, epoch=1)
        flush(log)
        for _ in range(2):
            lives.end(how)
            directory = lives.open()
            assert directory.high_watermarks == {FIRST: end}
            found = directory.get(FIRST)
            assert found is not None
            assert found.end_offset == end + 15
            append(found, 3, epoch=2)
            found.truncate_to(end + 15)

    @pytest.mark.parametrize("how", ["clean", "process"])
    def test_another_life_knows_that_producers_were_dropped(self, lives: Lives, how: Ending) -> None:
        """A producer that was one too many goes on: nobody may call it new."""
        limits = BrokerConfig(producers_max=2)
        (log,) = lives.open(limits=limits).create([LogStart(FIRST, "t", TopicConfig())])
        for producer in range(3):
            append(log, 2, producer=(producer, 0, 0))
        assert log.producers.forgetful
        lives.end(how)
        found = lives.open(limits=limits).get(FIRST)
        assert found is not None
        assert found.producers.get(0) is None
        assert found.producers.forgetful

    def test_a_high_watermark_is_not_that_of_a_log_made_anew(self, lives: Lives, directory: LogDirectory, log: Log) -> None:
        append(log, 2)
        directory.high_watermarks[FIRST] = 2
        directory.checkpoint()
        directory.quarantine(FIRST, 5)
        (log,) = directory.create([LogStart(FIRST, "t", TopicConfig())])
        append(log, 2, epoch=3)
        lives.end("process")
        assert lives.open().high_watermarks.get(FIRST, 0) == 0

    @pytest.mark.parametrize("how", ["clean", "process", "power"])
    def test_trimming_and_resetting_last(self, lives: Lives, directory: LogDirectory, log: Log, how: Ending) -> None:
        (other,) = directory.create([LogStart(SECOND, "orders", SMALL)])
        for number in range(20):
            append(log, 3, epoch=number // 5)
            append(other, 3)
        flush(log)
        log.trim_to(40)
        flush(log)
        directory.checkpoint()
        other.reset_to(500)
        lives.end(how)
        next_life = lives.open()
        trimmed, reset = next_life.get(FIRST), next_life.get(SECOND)
        assert trimmed is not None
        assert reset is not None
        assert (trimmed.start_offset, trimmed.end_offset) == (39, 60)
        assert entries_of(trimmed) == [(2, 39), (3, 45)]
        assert (reset.start_offset, reset.end_offset) == (500, 500)
        assert entries_of(reset) == []
        assert reset.producers.forgetful
        append(reset, 2, epoch=4)
        assert len(shown(reset)) == 2

    def test_what_is_put_aside_is_read_piece_by_piece(self, directory: LogDirectory) -> None:
        staging = directory.staging
        bodies = [bytes([n]) * (n * 700) for n in range(1, 9)]
        for n, body in enumerate(bodies):
            assert staging.put(1, body) == n
            assert staging.put(2, body[::-1] + b"2") == n
        buffer = bytearray(b"in a buffer")
        assert staging.put(3, memoryview(buffer)) == 0  # type: ignore[arg-type]
        buffer[:] = b"used again."
        assert [staging.read(1, n) for n in (7, 0, 3, 3)] == [bodies[n] for n in (7, 0, 3, 3)]
        staging.drop(1)
        staging.drop(1)
        staging.drop(99)
        assert [staging.read(2, n) for n in range(8)] == [body[::-1] + b"2" for body in bodies]
        assert staging.read(3, 0) == b"in a buffer"
        assert staging.put(1, b"anew") == 0
        assert staging.read(1, 0) == b"anew"

    @pytest.mark.parametrize("how", ["clean", "process", "power"])
    def test_nothing_that_was_put_aside_outlives_its_directory(self, lives: Lives, directory: LogDirectory, how: Ending) -> None:
        for stage in range(5):
            directory.staging.put(stage, b"earlier")
        lives.end(how)
        staging = lives.open().staging
        for stage in (3, 4, 5):
            with pytest.raises(LogCorrupt):
                staging.read(stage, 0)
            assert staging.put(stage, b"now") == 0
            assert staging.read(stage, 0) == b"now"

    @pytest.mark.parametrize("how", ["clean", "process", "power"])
    def test_quarantine_takes_a_log_out_of_service(self, lives: Lives, directory: LogDirectory, log: Log, how: Ending) -> None:
        (other,) = directory.create([LogStart(SECOND, "orders", SMALL)])
        append(log)
        directory.high_watermarks[FIRST] = 1
        directory.quarantine(FIRST, 5_000)
        directory.quarantine(FIRST, 6_000)
        directory.quarantine(SECOND, 7_000)  # which never had a record
        for _ in range(2):
            assert directory.identities() == []
            assert directory.get(FIRST) is None
            assert directory.quarantined() == {FIRST: 5_000, SECOND: 7_000}
            assert FIRST not in directory.high_watermarks
            lives.end(how)
            directory = lives.open()
        for dead in (log, other):
            with pytest.raises(LogClosed):
                append(dead)
        (anew,) = directory.create([LogStart(FIRST, "orders", SMALL)])
        assert anew.end_offset == 0
        append(anew, 2)
        directory.purge(FIRST)
        directory.purge(FIRST)
        directory.purge(SECOND)
        assert directory.quarantined() == {}
        assert len(shown(anew)) == 2
        lives.end(how)
        directory = lives.open()
        assert directory.quarantined() == {}
        assert directory.identities() == [FIRST]

    def test_a_closed_directory_refuses_everything(self, directory: LogDirectory, log: Log) -> None:
        append(log)
        directory.close(clean=True)
        directory.close(clean=False)
        batch = batch_of(1)
        batch.stamp(FIRST, 1, 0)
        calls: list[Callable[[], object]] = [
            lambda: log.append(batch),
            lambda: log.append_many([batch]),
            lambda: log.read(0, 1, 100),
            lambda: log.truncate_to(0),
            lambda: log.trim_to(1),
            lambda: log.reset_to(4),
            lambda: log.retain(0, 0),
            lambda: log.flush(),
            lambda: log.enter_epoch(9),
            lambda: log.offset_for_time(0),
            lambda: directory.create([LogStart(SECOND, "orders", SMALL)]),
            lambda: directory.quarantine(FIRST, 1),
            lambda: directory.purge(FIRST),
            lambda: directory.checkpoint(),
            lambda: directory.registered(3),
        ]
        for call in calls:
            with pytest.raises(LogClosed):
                call()
        log.close()
        assert issubclass(LogClosed, UsageError)
