"""Good histories, made from a seed: a small model of partitions, producers and readers that keeps every promise.

What the checker must not mistake for an error happens here on purpose: outcomes that stay unknown and records that turn up
long after, confirmed records of acks 0 and 1 that are lost, leader changes, answers of deposed leaders, seeks, crashes of readers,
retention, batches under way together, and second copies where producers are not idempotent.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from attrs import Factory, define

from replog.testing.history.events import Acks, Poll, Send, Value
from replog.testing.history.recorder import History

__all__ = ["good_history", "long_history"]


@define(eq=False)
class _Flight:
    """A batch on its way: stored at `base`, or not (yet)."""

    send: Send
    base: int | None = None
    wanted: bool = True
    """It may still be stored."""
    told: bool = False


@define
class _Reader:
    process: str
    position: int = 0
    epoch: int = 0
    poll: Poll | None = None
    answer: tuple[list[tuple[int, Value]], int, int] | None = None


@define
class _Log:
    key: str
    values: list[Value] = Factory(list)
    bases: list[int] = Factory(list)
    """Where batches begin."""
    start: int = 0
    high_watermark: int = 0
    epoch: int = 0
    deposed: tuple[int, int] | None = None
    """(epoch, high watermark) of a leader that does not know that there is another."""
    flights: dict[str, list[_Flight]] = Factory(dict)
    """By producer, in its order; those that may still matter."""
    readers: list[_Reader] = Factory(list)

    def append(self, values: Sequence[Value]) -> int:
        """Store a batch; returns its offset."""
        self.bases.append(len(self.values))
        self.values += values
        return self.bases[-1]

    def ends(self, low: int) -> list[int]:
        """Offsets from `low` on between batches."""
        return [base for base in self.bases if base >= low] + [len(self.values)]


class _Model:
    """One run."""

    def __init__(self, seed: int, operations: int) -> None:
        self.chance = random.Random(f"good history {seed}")
        self.idempotent = self.chance.random() < 0.7
        self.epochs = self.chance.random() < 0.6
        self.now = 0
        self.operations = operations
        self.history = History(idempotent=self.idempotent, stale_reads=not self.epochs, clock=lambda: self.now)
        self.sent = 0
        producers = self.chance.randint(1, 4)
        readers = self.chance.randint(1, 3)
        self.logs = []
        for number in range(self.chance.randint(1, 3)):
            log = _Log(f"t@1/{number}")
            log.flights = {f"w{writer}": [] for writer in range(producers)}
            log.readers = [_Reader(f"r{reader}") for reader in range(readers)]
            self.logs.append(log)
        steps = [self.send, self.store, self.store, self.settle, self.commit, self.ask, self.serve, self.answer]
        rare = [self.elect, self.depose, self.trim, self.seek, self.crash, self.copy]
        self.steps = steps * 3 + [step for step in rare if self.chance.random() < 0.6]

    def run(self) -> History:
        """Everything, then the end."""
        while self.history.operations() < self.operations:
            self.now += self.chance.randint(0, 3)
            self.chance.choice(self.steps)(self.chance.choice(self.logs))
        for log in self.logs:
            self.end(log)
        return self.history

    def send(self, log: _Log) -> None:
        """A producer begins; it has three batches under way at most."""
        process = self.chance.choice(list(log.flights))
        flights = log.flights[process]
        if sum(not flight.told for flight in flights) >= 3:
            return
        values: list[Value] = []
        for _ in range(self.chance.choice((1, 1, 1, 2, 3))):
            self.sent += 1
            values.append(f"v{self.sent}" if self.sent % 2 else self.sent)
        acks: Acks = self.chance.choice(("all", "all", "all", 1, 0))
        flights.append(_Flight(self.history.invoke_send(process, log.key, values, acks)))

    def store(self, log: _Log) -> None:
        """The leader appends a batch; of an idempotent producer none before the ones that it still waits for."""
        for process in log.flights:
            for flight in log.flights[process]:
                if flight.base is not None or not flight.wanted:
                    continue
                if self.chance.random() < 0.5:
                    flight.base = log.append(flight.send.values)
                    return
                if self.idempotent and not flight.told:
                    break

    def copy(self, log: _Log) -> None:
        """Without idempotence a batch may be stored again."""
        stored = [flight for flights in log.flights.values() for flight in flights if flight.base is not None]
        if stored and not self.idempotent:
            log.append(self.chance.choice(stored).send.values)

    def settle(self, log: _Log) -> None:
        """A producer is told something."""
        for flights in log.flights.values():
            for flight in flights:
                if not flight.told and self.chance.random() < 0.4:
                    self._tell(log, flight)
            flights[:] = [flight for flight in flights if not flight.told or flight.wanted][-20:]

    def _tell(self, log: _Log, flight: _Flight) -> None:
        send, base = flight.send, flight.base
        flight.told = True
        if send.acks == 0:
            send.ok()
        elif base is not None and (send.acks == 1 or base + len(send.values) <= log.high_watermark):
            send.ok(base if self.chance.random() < 0.9 else None)
            flight.wanted = False
        elif self.chance.random() < 0.2:
            send.info()
            flight.wanted = self.chance.random() < 0.7
        elif base is None and self.chance.random() < 0.1:
            send.fail()
            flight.wanted = False
        else:
            flight.told = False

    def commit(self, log: _Log) -> None:
        """The high watermark moves."""
        log.high_watermark = self.chance.choice(log.ends(log.high_watermark))

    def elect(self, log: _Log) -> None:
        """A new leader that has everything committed, and perhaps some more."""
        log.deposed = log.epoch, log.high_watermark
        log.epoch += 1
        kept = self.chance.choice(log.ends(log.high_watermark))
        del log.values[kept:]
        log.bases = [base for base in log.bases if base < kept]
        for flights in log.flights.values():
            for flight in flights:
                if flight.base is not None and flight.base >= kept:
                    flight.base = None

    def depose(self, log: _Log) -> None:
        """The deposed leader learns of it."""
        log.deposed = None

    def trim(self, log: _Log) -> None:
        """Retention."""
        start = self.chance.randint(log.start, log.high_watermark)
        if start > log.start:
            self.history.trim(log.key, start)
            log.start = start

    def seek(self, log: _Log) -> None:
        """A reader goes elsewhere."""
        reader = self.chance.choice(log.readers)
        if reader.poll is None:
            reader.position = self.chance.randint(log.start, log.high_watermark)
            self.history.assign(reader.process, log.key, reader.position)

    def crash(self, log: _Log) -> None:
        """A reader forgets where it was, everywhere."""
        process = self.chance.choice(log.readers).process
        self.history.crash(process)
        for other in self.logs:
            for reader in other.readers:
                if reader.process == process:
                    reader.poll = None
                    reader.position = self.chance.randint(other.start, other.high_watermark)

    def ask(self, log: _Log) -> None:
        """A reader begins to read."""
        reader = self.chance.choice(log.readers)
        if reader.poll is None:
            if reader.position < log.start:
                reader.position = log.start
                self.history.assign(reader.process, log.key, log.start)
            reader.poll = self.history.invoke_poll(reader.process, log.key, reader.position)
            reader.answer = None

    def serve(self, log: _Log) -> None:
        """A leader reads for somebody; a deposed one for those who know no better."""
        for reader in log.readers:
            if reader.poll is None or reader.answer is not None:
                continue
            epoch, end = log.epoch, log.high_watermark
            if log.deposed is not None and reader.epoch <= log.deposed[0] and self.chance.random() < 0.5:
                epoch, end = log.deposed
            first = reader.position
            if first < log.start:
                continue
            count = self.chance.randint(0, 6)
            records = [(offset, log.values[offset]) for offset in range(first, min(end, first + count))]
            reader.answer = records, end, epoch

    def answer(self, log: _Log) -> None:
        """A reader gets its answer, or none."""
        for reader in log.readers:
            if reader.poll is None or self.chance.random() < 0.3:
                continue
            if reader.answer is None:
                if self.chance.random() < 0.1:
                    reader.poll.info() if self.chance.random() < 0.5 else reader.poll.fail()
                    reader.poll = None
                continue
            records, high_watermark, epoch = reader.answer
            reader.poll.ok(records, high_watermark, epoch if self.epochs else None)
            reader.position += len(records)
            reader.epoch = max(reader.epoch, epoch)
            reader.poll = None

    def end(self, log: _Log) -> None:
        """Everything is settled and read from the start."""
        log.deposed = None
        log.high_watermark = len(log.values)
        for flights in log.flights.values():
            for flight in flights:
                if not flight.told:
                    self._tell(log, flight)
        at = log.start
        while True:
            self.now += 1
            poll = self.history.invoke_poll("last", log.key, at, final=True)
            records = [(offset, log.values[offset]) for offset in range(at, min(log.high_watermark, at + 10))]
            poll.ok(records, log.high_watermark, log.epoch if self.epochs else None)
            at += len(records)
            if not records:
                return


def good_history(seed: int, operations: int = 120) -> History:
    """A history without errors: about that many calls, on one to three partitions."""
    return _Model(seed, operations).run()


def long_history(pairs: int, partitions: int = 6) -> History:
    """A plain history without errors: `pairs` sends of one record, and as many polls that read them. For measuring."""
    history = History()
    keys = [f"t@1/{number}" for number in range(partitions)]
    ends = [0] * partitions
    for number in range(pairs):
        at = number % partitions
        send = history.invoke_send(f"w{at}", keys[at], (number,))
        poll = history.invoke_poll(f"r{at}", keys[at], ends[at])
        send.ok(ends[at])
        poll.ok(((ends[at], number),), ends[at] + 1)
        ends[at] += 1
    return history
