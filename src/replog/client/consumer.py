"""`Consumer`: follows partitions from a position on, for as long as it is asked. One thread owns it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from replog.client.absent import TopicOp
from replog.client.arguments import Position, check_count, check_timeout, parse_position
from replog.client.delivery import run_callbacks
from replog.client.fetching import FetchOp
from replog.client.followed import Followed
from replog.client.offsets import OffsetOp
from replog.client.operations import AT_EARLIEST, AT_LATEST, Operation, PartitionOp
from replog.client.silence import Silence
from replog.client.unreached import whom_not_reached
from replog.config import check_partition_number, check_topic_name
from replog.errors import Code, ReplogError, TimedOut, Unavailable, UnknownTopicOrPartition, UsageError, rejection
from replog.model import PartitionId
from replog.records import Record

if TYPE_CHECKING:
    from replog.client.client import Client

__all__ = ["Consumer"]

_ROUNDS_MAX: Final = 4
"""Brokers in this process answer at once: with a position, with what is passed over there, with records. After so many rounds a call
looks at its time limit."""
_TOPICS_S: Final = 30
"""A call without a time limit waits for so long to be told which partitions there are."""


class Consumer:
    """Follows topics: iterate it, or `poll`. Committed records only, in order within each partition.

    It belongs to the thread that first uses it. Which partitions there are is asked at first use, and then where "latest" and times are:
    what is appended after the first `poll`, or after a `seek` there, is handed out. So these calls wait until leaders have said it, also
    with `timeout_s=0`, for `unanswered_ms` (of the client, 3 s) at most. Where none has by then the consumer starts at the end that there
    is when one does, and no later poll waits for that: it finds nothing (KIP-266). Calls without a time limit raise TimedOut after 30 s
    without an answer. "earliest" and offsets are the same at any time: nothing waits for them. After an unclean
    election that removed what was read, or what was in front of a position that was looked up, `poll` raises LogTruncated; after the topic
    was deleted and created again, UnknownTopicId; at a batch that is intact and cannot be decoded, UndecodableBatch, once what is in front
    of it was handed out. `seek` to go on: until then the position stays, and the error is raised again, in turns with records of other
    partitions.
    Partitions that are added are read from their beginning. For one that is removed `poll` raises UnknownTopicOrPartition: once, if
    whole topics are followed; the next call goes on with the others. So it does for a topic that is deleted, if others are followed: one
    that is made again under its name is read from its beginning; the same one, when it is seen again, from where this consumer was.
    """

    def __init__(self, client: Client, topics: list[str], partitions: list[int] | None, start: Position) -> None:
        self._client = client
        self._topics = topics
        self._chosen = partitions
        self._start = parse_position(start, "start")
        self._partitions: dict[tuple[str, int], Followed] = {}
        self._gone: dict[tuple[str, int], Followed] = {}
        """What is followed no longer because no broker knew it: with its position, should it be seen again (rules, a late broker)."""
        self._sought: dict[str, TopicOp] = {}
        """At first use, until all are answered: the question for each topic. It goes on between calls."""
        self._serial = -1
        self._turn = 0
        self._silence = Silence()
        self._patience_ms: int = client._core.config.unanswered_ms
        """For how long polls, all together, may still wait to be told where to start: as long as a client waits for a broker before it
        holds that it stands still. 0: nothing is left to be told, or they have waited for long enough."""
        self._returned: Sequence[tuple[Followed, tuple[list[Record], int, int | None]]] = ()
        """The partitions that the last poll has returned records of, if several, and where each is behind these; not there yet."""
        self._has_raised = False
        """The last thing that was handed out was what a partition has failed with: now it is the turn of records, if others have some."""
        self._owner: int | None = None
        self._closed = False

    # ----------------------------------------------------------------------------------------------------------- reading

    def poll(self, max_records: int = 500, timeout_s: float | None = 0) -> list[Record]:
        """Up to `max_records`, as soon as there are any; an empty list after `timeout_s` without one (None: wait for ever), whether or not
        the cluster is there, and at once if the consumer is closed meanwhile.

        Until "latest", or a time, is known for every partition it waits for that first, `unanswered_ms` at most in all calls together.
        """
        check_count("max_records", max_records, 1)
        timeout_s = check_timeout(timeout_s)
        self._enter()
        driver = self._client._driver
        deadline_ms = None if timeout_s is None else driver.now_ms() + int(timeout_s * 1000)
        while not self._closed:
            ready: list[tuple[Followed, list[Record]]] = []
            is_assigned = self._assign()
            if is_assigned:
                self._step()
            patience_s = self._left_for_starts_s()
            if is_assigned and not patience_s and not self._closed:
                ready = self._ready(max_records)
            if ready:
                self._has_raised = False
                self._silence.broken()
                if len(ready) == 1:
                    [(partition, found)] = ready
                    partition.hand_out(len(found))
                else:
                    found = [record for _, records in ready for record in records]
                    self._returned = [(partition, partition.behind(len(records))) for partition, records in ready]
                return found
            now_ms = driver.now_ms()
            quiet_s = self._silence.goes_on(now_ms, self._standing)
            left_s = max(patience_s, quiet_s if deadline_ms is None else (deadline_ms - now_ms) / 1000)
            if left_s <= 0:
                return []
            driver.wait(lambda: self._closed or self._progressed(), min(left_s, quiet_s, self._rest_s()))
            self._patience_ms = max(0, self._patience_ms - (driver.now_ms() - now_ms))
            run_callbacks(self._client._core)
        self._forget_all()
        return []

    def __iter__(self) -> Iterator[Record]:
        """Every record from the position on, for ever: ends only when the consumer is closed."""
        while not self._closed:
            try:
                found = self.poll(max_records=1, timeout_s=None)
            except ReplogError:
                if not self._closed:  # else in the middle of that call, and perhaps its client as well
                    raise
                return
            yield from found
            self._move_on()
            for partition in list(self._partitions.values()):
                while not partition.paused and not self._closed and partition.unpack():
                    yield from self._unpacked(partition)
                    self._move_on()

    def _move_on(self) -> None:
        """Have each partition behind what was returned of it: at the next call, so that nothing interrupts it between two of them."""
        for partition, place in self._returned:
            partition.buffer, partition.at, partition.offset = place
        self._returned = ()

    def _unpacked(self, partition: Followed) -> Iterator[Record]:
        """What is unpacked of a partition, until the application polls, moves or pauses it, or closes this. No call for each record."""
        buffer, at = partition.buffer, partition.at
        while partition.buffer is buffer and partition.at == at < len(buffer):
            if partition.paused or self._closed or self._returned:
                return
            record = buffer[at]
            at += 1
            if at < len(buffer):
                partition.at, partition.offset = at, record.offset + 1
            else:
                partition.hand_out(1)
            yield record

    def _left_for_starts_s(self) -> float:
        """For how many seconds a poll has still to wait for somebody to say where it starts. 0 also while a partition has failed: that is
        kept back for a moment, so that others can hand out what they have."""
        if self._patience_ms:
            partitions = self._partitions.values()
            if not any(p.lacks_start for p in partitions) if partitions else self._start[1] in (None, AT_EARLIEST):
                self._patience_ms = 0
            elif any(p.failure is not None for p in partitions):
                return 0
        return self._patience_ms / 1000

    def _progressed(self) -> bool:
        if self._sought:
            return all(op.done for op in self._sought.values())
        return any(p.op is not None and p.op.done for p in self._partitions.values())

    def _rest_s(self) -> float:
        """How long to wait for answers at most: whoever was answered at once that there is nothing is asked again after a pause."""
        is_unasked = any(p.lacks_question for p in self._partitions.values())
        return self._client._core.config.retry_backoff_ms / 1000 if is_unasked else float("inf")

    def _step(self) -> None:
        """Take in what was answered, and ask for what is missing, as long as answers come at once and move a position; then, without the
        lock, unpack one batch where nothing is at hand. Raises what a partition failed with, unless that was just done and there are
        records to hand out."""
        client = self._client
        with client._driver.lock, client._driver.changing:
            core, now_ms = client._core, client._driver.now_ms()
            for asked_before in range(_ROUNDS_MAX):
                for partition in self._partitions.values():
                    moved = self._collect(partition)
                    if partition.lacks_question and (moved or not asked_before):
                        self._ask(partition, now_ms)
                client._driver.run()
                if not self._progressed():
                    break
        if core.finished:
            run_callbacks(core)
        for partition in self._partitions.values():
            if not partition.paused:
                partition.unpack()
        failed = next((partition for partition in self._partitions.values() if partition.failure is not None), None)
        if failed is not None and not (self._has_raised and any(p.is_unpacked and not p.paused for p in self._partitions.values())):
            self._has_raised = True
            self._raise_failure(failed)

    def _ask(self, partition: Followed, now_ms: int) -> None:
        op = self._question(partition, now_ms)
        self._client._core.submit(op, now_ms)
        partition.op = op  # now that somebody will answer it, whatever interrupts this

    def _question(self, partition: Followed, now_ms: int) -> PartitionOp:
        config, deadline_ms = self._client._core.config, self._given_up_ms(now_ms)
        if partition.wanted is not None:
            return OffsetOp(partition.topic, partition.number, partition.wanted, deadline_ms)
        return FetchOp(
            partition.topic,
            partition.number,
            partition.fetch_offset,
            max_bytes=config.fetch_bytes,
            wait_ms=config.fetch_wait_ms,
            deadline_ms=deadline_ms,
            known_epoch=partition.known_epoch,
            epochs=partition.epochs,
            expected=partition.identity,
        )

    def _given_up_ms(self, now_ms: int) -> int:
        """When a question is given up on that is asked now; then it is asked anew."""
        config = self._client._core.config
        return int(now_ms + config.fetch_wait_ms + 2 * config.request_timeout_ms)

    def _collect(self, partition: Followed) -> bool:
        """Take in the answer, if there is one and it is no failure. Returns whether the position is known now, or is another one."""
        op = partition.op
        if op is None or not op.done or partition.failure is not None:
            return False
        if op.error is not None:
            partition.op, partition.trouble = None, str(op.error)
            return False  # nobody answered: asked again at the next step
        partition.trouble = ""
        if isinstance(op, OffsetOp):
            partition.located(op)
            return True
        if op.place is not None:
            partition.identity = op.place.identity
        before = partition.fetch_offset
        partition.fetched(op.result)
        return partition.fetch_offset != before

    def _raise_failure(self, partition: Followed) -> None:
        """Raise what a partition has failed with. It is asked again at the next step, from where it is."""
        error = partition.failure
        if error is None:
            return
        partition.op, partition.undecodable, partition.trouble = None, None, str(error)
        if isinstance(error, UnknownTopicOrPartition):
            self._leave_out_what_is_gone(partition)  # said once: then it goes on with those that there are
        raise error

    def _leave_out_what_is_gone(self, partition: Followed) -> None:
        """Follow a partition no longer that was removed, or a topic that was deleted, unless nothing else is followed."""
        topic = self._client._core.view.topics.get(partition.topic)
        gone: list[Followed] = []
        if topic is None:
            if any(name != partition.topic for name, _ in self._partitions):
                gone = [p for p in self._partitions.values() if p.topic == partition.topic and not p.at_hand]
        elif self._chosen is None and partition.number not in topic.partitions:
            gone = [partition]
        for one in gone:
            self._drop(one)
            self._gone[one.topic, one.number] = one
            del self._partitions[one.topic, one.number]

    def _ready(self, max_records: int) -> list[tuple[Followed, list[Record]]]:
        """What each partition has, in turn, beginning with another one each time. None of it is handed out yet."""
        ready: list[tuple[Followed, list[Record]]] = []
        partitions, room = list(self._partitions.values()), max_records
        self._turn += 1
        for n in range(len(partitions)):
            partition = partitions[(self._turn + n) % len(partitions)]
            if room and not partition.paused and (records := partition.some(room)):
                ready.append((partition, records))
                room -= len(records)
        return ready

    def _standing(self) -> Iterator[str]:
        """Of each partition that is followed: who would have to say something, and what is known. Those that nobody leads come first,
        and those whose leader did not answer."""
        for op in self._sought.values():
            yield f"{op.topic}: waits for {op.waiting_for(self._client._core)}{whom_not_reached(self._client._core.unreached)}"
        places = {one: self._client._core.view.place(*key) for key, one in self._partitions.items() if not one.paused}
        leaders = {one: None if place is None else place.leader for one, place in places.items()}
        for one in sorted(leaders, key=lambda one: leaders[one] is not None and not one.trouble):
            yield one.stands(leaders[one])

    # --------------------------------------------------------------------------------------------------------- positions

    def seek(self, topic: str, partition: int, position: Position) -> None:
        """Go on at an offset, an end or a time in one partition. Waits until the leader has said where "latest" or the time is,
        `unanswered_ms` at most; from there on records are handed out then, otherwise from where it is when a later call hears of it."""
        self._enter()
        start = parse_position(position)
        self._move([self._find(topic, partition, self._client._deadline(_TOPICS_S))], start)

    def seek_to_beginning(self) -> None:
        """Go on at the first record kept, in every partition."""
        self._seek_all(AT_EARLIEST)

    def seek_to_end(self) -> None:
        """Go on at the high watermark, in every partition; it is asked for as in `seek`."""
        self._seek_all(AT_LATEST)

    def position(self, topic: str, partition: int, *, timeout_s: float | None = 30) -> int:
        """Offset of the next record that will be handed out. Asks the leader if "latest" or a time was not looked up yet."""
        self._enter()
        timeout_s = check_timeout(timeout_s)
        deadline_ms = self._client._deadline(timeout_s)
        found = self._find(topic, partition, deadline_ms)
        self._settle(found, timeout_s, deadline_ms)
        assert found.offset is not None
        return found.offset

    def pause(self, topic: str, partition: int) -> None:
        """Hand out nothing of a partition until `resume`; its position stays."""
        self._enter()
        self._find(topic, partition, self._client._deadline(_TOPICS_S)).paused = True

    def resume(self, topic: str, partition: int) -> None:
        """Undo `pause`."""
        self._enter()
        self._find(topic, partition, self._client._deadline(_TOPICS_S)).paused = False

    def _settle(self, partition: Followed, timeout_s: float | None, deadline_ms: int) -> None:
        while partition.wanted is not None:
            if not isinstance(partition.op, OffsetOp):
                self._drop(partition)
                op = OffsetOp(partition.topic, partition.number, partition.wanted, deadline_ms)
                self._client._do(op)
                partition.located(op)
                continue
            asked = partition.op
            if not self._wait(lambda asked=asked: asked.done, deadline_ms):  # type: ignore[misc]
                raise TimedOut(f"waited {timeout_s:g} s for the position of {partition.topic}-{partition.number}")
            self._raise_failure(partition)
            self._collect(partition)

    def _wait(self, done: Callable[[], bool], deadline_ms: int) -> bool:
        driver = self._client._driver
        is_done = driver.wait(lambda: self._closed or done(), check_timeout(max(0, deadline_ms - driver.now_ms()) / 1000))
        if self._closed:
            self._forget_all()
            raise UsageError("this Consumer is closed")
        return is_done

    def _seek_all(self, wanted: int) -> None:
        self._enter()
        self._await_partitions(self._client._deadline(_TOPICS_S))
        self._move((self._gone | self._partitions).values(), (None, wanted))

    def _move(self, partitions: Iterable[Followed], start: tuple[int | None, int | None]) -> None:
        for partition in partitions:
            self._drop(partition)
            partition.seek(*start, self._seen(partition.topic, partition.number) or partition.log)
        self._find_starts([one for one in partitions if one.lacks_start and self._partitions.get((one.topic, one.number)) is one])

    def _find_starts(self, partitions: list[Followed]) -> None:
        """Ask where each is to begin, and wait for that as a first poll does. What fails the next call raises."""
        if not partitions:
            return
        driver = self._client._driver
        with driver.lock, driver.changing:
            now_ms = driver.now_ms()
            for partition in partitions:
                self._ask(partition, now_ms)
            driver.run()
        self._wait(lambda: all(p.op is None or p.op.done for p in partitions), now_ms + self._client._core.config.unanswered_ms)
        for partition in partitions:
            self._collect(partition)

    def _seen(self, topic: str, number: int) -> PartitionId | None:
        place = self._client._core.view.place(topic, number)
        return None if place is None else place.identity

    def _drop(self, partition: Followed) -> None:
        op, partition.op = partition.op, None
        if op is not None:
            self._forget([op])

    # -------------------------------------------------------------------------------------------------------------- life

    def close(self) -> None:
        """Stop. From any thread, and from a signal handler: whoever iterates it, or waits in `poll`, is let go. Idempotent."""
        if not self._closed:
            self._closed = True
            if self._owner == threading.get_ident():
                self._move_on()
            self._forget_all()
            self._client._driver.wake()

    def _forget_all(self) -> None:
        """Have nothing asked any more. What its own thread may be looking at just now stays as it is."""
        self._forget([*self._sought.values(), *(op for p in list(self._partitions.values()) if (op := p.op) is not None)])

    def _forget(self, ops: Iterable[Operation]) -> None:
        with self._client._driver.lock, self._client._driver.changing:
            for op in ops:
                self._client._core.forget(op)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _enter(self) -> None:
        if self._closed:
            raise UsageError("this Consumer is closed")
        self._client._check_open()
        self._owner = self._owner or threading.get_ident()
        if self._owner != threading.get_ident():
            raise UsageError("a Consumer belongs to the thread that first used it; make one per thread")
        self._move_on()

    def _assign(self) -> bool:
        """Find the partitions; those that were added later too, from their beginning. False: nobody has said yet which there are."""
        core = self._client._core
        if self._serial == core.view.serial and self._partitions:
            return True
        serial, first = core.view.serial, not self._partitions
        if first and not self._seek_topics():
            return False
        found: dict[tuple[str, int], Followed] = {}
        for topic in self._topics:
            known = core.view.topics.get(topic)
            if known is None:
                if not first:
                    continue  # deleted: whoever follows it is told when it is asked for
                known = self._sought[topic].result
            for number in self._wanted_numbers(topic, known.numbers()):
                seen = self._seen(topic, number)
                if (topic, number) in self._partitions or not (first or seen):
                    continue
                partition = self._gone.get((topic, number))
                if partition is None or partition.log != seen:
                    partition = Followed(topic, number, self._start if first else (None, AT_EARLIEST), seen)
                found[topic, number] = partition
        self._partitions |= found  # all or none: a first call that was interrupted is the first again
        self._sought = {}
        for key in found:
            self._gone.pop(key, None)
        self._serial = serial
        return True

    def _seek_topics(self) -> bool:
        """Ask for each topic, without waiting, until somebody has answered. Returns whether all are known. Raises what is refused."""
        driver, core = self._client._driver, self._client._core
        with driver.lock, driver.changing:
            now_ms = driver.now_ms()
            for topic in self._topics:
                asked = self._sought.get(topic)
                if asked is None or isinstance(asked.error, Unavailable):
                    asked = TopicOp(topic, self._given_up_ms(now_ms))
                    core.submit(asked, now_ms)
                    self._sought[topic] = asked
            driver.run()
        for asked in self._sought.values():
            if asked.error is not None and not isinstance(asked.error, Unavailable):
                self._drop_sought()  # the next call is the first again
                raise asked.error
        return all(asked.done and asked.error is None for asked in self._sought.values())

    def _drop_sought(self) -> None:
        sought, self._sought = self._sought, {}
        self._forget(sought.values())

    def _await_partitions(self, deadline_ms: int) -> None:
        """Wait to be told which there are. Raises TimedOut, and what is refused."""
        driver, core = self._client._driver, self._client._core
        while not self._assign():
            if not self._wait(self._progressed, deadline_ms):
                late = next((asked for asked in self._sought.values() if not asked.done), None)
                if late is not None:  # else another thread has brought the answer at last
                    with driver.lock, driver.changing:
                        core.expire(late, driver.now_ms())
                    assert late.error is not None
                    raise late.error

    def _wanted_numbers(self, topic: str, numbers: list[int]) -> list[int]:
        if self._chosen is None:
            return numbers
        for number in self._chosen:
            if number not in numbers and (topic, number) not in self._partitions:
                self._drop_sought()  # the next call asks anew
                text = self._client._core.view.unknown(topic, number)
                raise rejection(Code.UNKNOWN_TOPIC_OR_PARTITION, text, topic=topic, partition=number)
        return self._chosen

    def _find(self, topic: str, partition: int, deadline_ms: int) -> Followed:
        check_topic_name(topic)
        check_partition_number(partition)
        self._await_partitions(deadline_ms)
        found = self._partitions.get((topic, partition))
        if found is None:
            read = ", ".join(f"{name}-{number}" for name, number in self._partitions)
            raise UsageError(f"this consumer does not read {topic}-{partition}; it reads {read}")
        return found
