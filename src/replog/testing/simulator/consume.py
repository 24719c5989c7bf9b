"""The real `Consumer`, on virtual time: positions, what it has buffered, pauses and seeks are the product's own."""

from __future__ import annotations

from typing import Final

from replog.client.arguments import Position
from replog.client.consumer import Consumer
from replog.client.followed import Followed
from replog.errors import LogTruncated, OffsetOutOfRange, ReplogError
from replog.testing.history.events import Poll
from replog.testing.simulator.clients import TOPIC, SimulatedClient, text_of
from replog.testing.simulator.known import is_lost, is_passed_over, told_lost
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.strands import Strand
from replog.testing.simulator.workload import Workload

__all__ = ["Consume"]

_START_S: Final = 5


class Consume(Workload):
    """One consumer after another; the last one reads all that was committed when the time of faults was over."""

    name = "consume"

    async def work(self, client: SimulatedClient) -> None:
        """One at a time."""
        number = 0
        while not client.world.calm:
            number += 1
            one = _Reader(client, f"{client.number}.consumer {number}")
            await Strand(one.process, one.run).run()
            await client.think()


class _Reader:
    """One consumer, and where it must go on in each partition."""

    def __init__(self, client: SimulatedClient, process: str) -> None:
        self.client = client
        self.world = client.world
        self.chance = client.chance
        self.process = process
        count = client.world.plan.shape.partitions
        self.partitions = list(range(count))
        if self.chance.random() < 0.3:
            self.partitions = sorted(self.chance.sample(self.partitions, self.chance.randint(1, count)))
        chosen = self.partitions if self.chance.random() < 0.5 or len(self.partitions) < count else None
        start: Position = self.chance.choice(("earliest", "earliest", 0, "latest"))
        self.consumer: Consumer = client.blocking.consumer(TOPIC, partitions=chosen, start=start)
        self.paused: set[int] = set()

    def run(self) -> None:
        """Until it is dropped, or, if faults end meanwhile, until it has read all that was committed by then."""
        until_ms = self.world.now_ms + self.chance.choice((2_000, 20_000, 200_000))
        while not self.world.calm and self.world.now_ms < until_ms:
            self._step()
        if self.world.calm:
            for number in list(self.paused):
                self._pause(number)
            ends = {number: self.world.checks.committed(number, TOPIC) for number in self.partitions}
            while any(self._place(number) < min(end, self.world.checks.committed(number, TOPIC)) for number, end in ends.items()):
                self._poll(500, 1)
            self.world.marks.hit("a consumer catches up once all is healed")
        self.consumer.close()

    def _step(self) -> None:
        what = self.chance.random()
        if what < 0.03:
            self._seek(self.chance.choice(self.partitions))
        elif what < 0.06:
            self._pause(self.chance.choice(self.partitions))
        elif what < 0.08:
            self.client.blocking._driver.wait(lambda: False, 2)  # a slow consumer (W12)
        else:
            self._poll(self.chance.choice((1, 2, 500)), self.chance.choice((0.01, 0.2, 1)))

    def _poll(self, max_records: int, timeout_s: float) -> None:
        """The history has it as one poll of each partition that can answer."""
        history = self.world.history
        polls = {n: history.invoke_poll(self.process, f"{TOPIC}/{n}", self._known(n)) for n in self.partitions if n not in self.paused}
        placed = self._placed()
        try:
            records = self.consumer.poll(max_records, timeout_s)
        except ReplogError as error:
            self._none(polls)
            self._failed(error)
            return
        found: dict[int, list[tuple[int, str]]] = {}
        for record in records:
            if record.partition not in polls:
                raise Violation("consumer", f"{self.process} is paused in partition {record.partition}, and is given {record.offset}")
            found.setdefault(record.partition, []).append((record.offset, text_of(record.value)))
        if len(records) > max_records:
            raise Violation("consumer", f"{self.process} asked for {max_records} records and is given {len(records)}")
        for number, some in found.items():
            polls.pop(number).ok(some)
            last, stands = some[-1][0], self._known(number)
            if stands is None or stands <= last:
                raise Violation("consumer", f"{self.process} was given {last} of partition {number} and stands at {stands}")
            self._check_placed(number, placed)
        self._none(polls)

    def _placed(self) -> dict[int, tuple[int, int]]:
        """Where it has been told to begin and has read nothing: partition -> (offset, leader epoch)."""
        followed = {number: self._followed(number) for number in self.partitions}
        return {
            number: (one.offset, one.known_epoch)
            for number, one in followed.items()
            if one is not None and one.offset is not None and one.known_epoch >= 0 and not one.epochs
        }

    def _check_placed(self, number: int, placed: dict[int, tuple[int, int]]) -> None:
        """It goes on from there only if nothing was cut in front of it meanwhile (KIP-320)."""
        if number in placed:
            confirmed = self.consumer._partitions[TOPIC, number].known_epoch
            self.world.marks.hit("a consumer begins where it was told to")
            if is_passed_over(self.world, number, *placed[number], confirmed):
                where, epoch = placed[number]
                text = f"{self.process} goes on at {where} of partition {number}, looked up in epoch {epoch}, and passes over records"
                raise Violation("consumer", text)

    def _none(self, polls: dict[int, Poll]) -> None:
        for poll in polls.values():
            poll.info()

    def _followed(self, number: int) -> Followed | None:
        self.consumer._move_on()  # behind what the last poll has returned, as with any call
        return self.consumer._partitions.get((TOPIC, number))

    def _known(self, number: int) -> int | None:
        """Its position in a partition; None: no leader has said yet where it begins."""
        found = self._followed(number)
        return None if found is None else found.offset

    def _epoch(self, number: int) -> int:
        """Under which leader epoch its position was confirmed; -1: none."""
        found = self._followed(number)
        return -1 if found is None else found.known_epoch

    def _place(self, number: int) -> int:
        """As `_known`; below everything where it is not known."""
        known = self._known(number)
        return -1 if known is None else known

    def _failed(self, error: ReplogError) -> None:
        self.world.marks.hit(f"a poll fails with {type(error).__name__}")
        if isinstance(error, LogTruncated):
            place = self.consumer._partitions[TOPIC, error.partition]
            self._seek(error.partition, told_lost(self.world, error, place.known_epoch, place.epochs, self.process))
            return
        if not isinstance(error, OffsetOutOfRange):
            return
        assert error.partition is not None
        position = self._place(error.partition)
        if is_lost(self.world, error.partition, position, self._epoch(error.partition)):
            self._seek(error.partition, "latest")
            return
        if not self.world.is_trimmed(error.partition, position):
            where = f"partition {error.partition} at {position}"
            raise Violation("readable", f"a consumer of {where} is told, though no log starts above: {error}") from error
        self._seek(error.partition, "earliest")

    def _seek(self, number: int, to: Position | None = None) -> None:
        """Elsewhere in one partition."""
        committed = self.world.checks.committed(number, TOPIC)
        anywhere: Position = self.chance.choice(("earliest", "latest", self.chance.randint(0, committed))) if to is None else to
        try:
            self.consumer.seek(TOPIC, number, anywhere)
        except ReplogError as error:
            self.world.marks.hit(f"a seek fails with {type(error).__name__}")
            return
        self.world.history.assign(self.process, f"{TOPIC}/{number}")
        if self.chance.random() < 0.5:
            try:
                self.consumer.position(TOPIC, number, timeout_s=_START_S)
            except ReplogError as error:
                self.world.marks.hit(f"a position is not told: {type(error).__name__}")

    def _pause(self, number: int) -> None:
        """Or go on."""
        change = self.consumer.resume if number in self.paused else self.consumer.pause
        try:
            change(TOPIC, number)
        except ReplogError as error:
            self.world.marks.hit(f"a pause fails with {type(error).__name__}")
            return
        self.paused ^= {number}
