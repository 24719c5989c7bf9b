"""The real `Producer`: batches stay open and several threads fill them, share one buffer, wait for room, flush and close meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal

from attrs import define, evolve

from replog.client.delivery import Delivery
from replog.client.producer import Producer
from replog.errors import ReplogError, TimedOut, Unavailable, UnknownTopicOrPartition, UsageError
from replog.testing.history.events import Send
from replog.testing.simulator.clients import TOPIC, Acknowledged, SimulatedClient, text_of
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.strands import Strand
from replog.testing.simulator.workload import Workload

__all__ = ["Produce"]

_PARTITIONERS: Final[tuple[Literal["crc32"], Literal["murmur2"]]] = ("crc32", "murmur2")
_KEYS: Final = tuple(f"k{number}".encode() for number in range(12))
_LATE_MS: Final = 1_000
"""So much longer than it may block does no call take."""


@define(eq=False)
class _Sent:
    """One record that was handed to a producer."""

    value: bytes
    call: Send
    delivery: Delivery


class Produce(Workload):
    """One producer after another, each used by several threads until somebody closes it, perhaps under their hands."""

    name = "produce"

    async def work(self, client: SimulatedClient) -> None:
        """Of each producer some threads; the last producer is closed when the time of faults is over."""
        world, chance = client.world, client.chance
        number = 0
        while not world.calm:
            number += 1
            one = _Life(client, f"{client.number}.producer {number}")
            for thread in range(chance.randint(1, 3)):
                process = f"{one.name}.{thread}"
                world.spawn(f"produce {process}", Strand(process, partial(_Thread(one, process).run)).run())
            until_ms = world.now_ms + chance.choice((300, 2_000, 10_000, 30_000))
            while not world.calm and world.now_ms < until_ms:
                await client.rest(min(500, until_ms - world.now_ms))
            await Strand(f"{one.name} closes", one.close).run()


class _Life:
    """One producer, and all that was given to it."""

    def __init__(self, client: SimulatedClient, name: str) -> None:
        self.client = client
        self.name = name
        self.shape = shape = client.world.plan.shape
        self.acks: Literal[0, 1, "all"] = "all"
        idempotent = True
        if client.chance.random() < 0.15:
            self.acks = 1
        elif "plain" in shape.workloads and client.chance.random() < 0.5:  # their records may be there twice
            self.acks, idempotent = client.chance.choice((("all", False), (0, True)))
            client.world.history.settings = evolve(client.world.history.settings, idempotent=False)
        config = shape.producer_config()
        self.max_block_ms: int = client.chance.choice((500, 5_000, 20_000))
        self.producer: Producer = client.blocking.producer(
            acks=self.acks,
            linger_ms=config.linger_ms,
            batch_bytes=config.batch_bytes,
            compression="lz4" if shape.compression else None,
            idempotent=idempotent,
            partitioner=client.chance.choice(_PARTITIONERS),
            buffer_bytes=config.buffer_bytes,
            max_block_ms=self.max_block_ms,
        )
        self.producer._writer.complains = False  # the history knows what has no outcome; a process that was killed says nothing
        self.open: dict[_Sent, None] = {}
        """Whose outcome is not noted yet."""

    # ------------------------------------------------------------------------------------------------------------ sending

    def invoke(self, process: str, partition: int, value: bytes) -> Send:
        """The history has each record as a send of its own: whoever lingers may find others in its batch."""
        return self.client.world.history.invoke_send(process, f"{TOPIC}/{partition}", [text_of(value)], self.acks)

    def noted(self, sent: _Sent) -> None:
        """The outcome is known; note it, once."""
        if sent not in self.open:
            return
        del self.open[sent]
        client, batch = self.client, sent.delivery._batch
        error = sent.delivery.exception(0)
        if error is not None:
            client.failed += 1
            client.world.note(f"{self.name} fails {sent.value[:12]!r}: {type(error).__name__}")
            client.world.marks.hit(f"a record fails with {type(error).__name__}")
            sent.call.fail() if batch.sent_ms < 0 else sent.call.info()
            return
        offset = sent.delivery.result(0).offset
        sent.call.ok(offset)
        if self.acks == "all":
            assert offset is not None
            assert batch.queue.identity is not None
            client.acknowledged.append(Acknowledged(batch.queue.identity, offset, [sent.value]))

    def settle(self, which: list[_Sent], what: str) -> None:
        """Somebody was told that all of these have an outcome."""
        for sent in which:
            if not sent.delivery.done():
                raise Violation("producer", f"{self.name}: {what} has returned, and {sent.value[:12]!r} has no outcome")
            self.noted(sent)

    def look(self) -> None:
        """What is buffered is never more than may be."""
        held, limit = self.producer._writer.buffered, self.producer._config.buffer_bytes
        if not 0 <= held <= limit:
            raise Violation("producer", f"{self.name}: {held} bytes are buffered, buffer_bytes is {limit}")

    # ------------------------------------------------------------------------------------------------------------- ending

    def flush(self) -> None:
        """What was sent before has an outcome afterwards, or the time is up."""
        before = list(self.open)
        lingering = any(sent.delivery._batch is sent.delivery._batch.queue.open for sent in before)
        timeout_s = self.client.chance.choice((None, None, 0.2))
        try:
            self.producer.flush(timeout_s)
        except TimedOut:
            if timeout_s is not None:
                return
        except ReplogError:
            self.client.world.marks.hit("a flush raises what failed")
        if lingering:
            self.client.world.marks.hit("a flush finds open batches")
        self.settle(before, "flush")

    def close(self) -> None:
        """Afterwards everything has an outcome, and nothing more is taken."""
        writer, marks = self.producer._writer, self.client.world.marks
        if any(queue.open is not None for queue in writer.queues.values()):
            marks.hit("a producer is closed with open batches")
        try:
            self.producer.close()
        except ReplogError:
            marks.hit("a close raises what failed")
        self.settle(list(self.open), "close")
        if writer.buffered or any(writer.unsettled()):
            raise Violation("producer", f"{self.name} is closed, and {writer.buffered} bytes have no outcome")


class _Thread:
    """One of those that use a producer."""

    def __init__(self, life: _Life, process: str) -> None:
        self.life = life
        self.process = process
        self.client = life.client
        self.chance = life.client.chance
        self.partitions = life.shape.partitions
        self.recent: list[_Sent] = []

    def run(self) -> None:
        """Until the producer is closed."""
        life = self.life
        while not life.producer._closed:
            what = self.chance.random()
            try:
                if what < 0.8:
                    self.send()
                elif what < 0.9:
                    self.send_many()
                elif what < 0.95:
                    self.ask()
                else:
                    life.flush()
            except UsageError:
                if not life.producer._closed:
                    raise
            life.look()
            self.rest()

    def rest(self) -> None:
        """Mostly shorter than batches linger."""
        linger_ms, think_ms = self.life.shape.linger_ms, self.life.shape.think_ms
        long_ms = self.chance.randint(1, 2 * think_ms)
        ms = self.chance.choice((0, 1, 3, max(1, linger_ms // 3), long_ms, long_ms))
        if ms:
            self.client.blocking._driver.wait(lambda: False, ms / 1000)

    def send(self) -> None:
        """One record: by key, to a partition, or wherever the producer likes."""
        life, (value,) = self.life, self.client.values(1)
        key = self.chance.choice(_KEYS) if self.chance.random() < 0.3 else None
        partition = self.chance.randrange(self.partitions) if key is None and self.chance.random() < 0.4 else None
        stamp = self.client.world.wall_ms if self.chance.random() < 0.2 else None
        found: list[Delivery] = []
        self.blocks(lambda: found.append(life.producer.send(TOPIC, value, key, partition=partition, timestamp_ms=stamp)))
        for delivery in found:  # nothing has happened since the record was added: nobody can have read it
            went = delivery._batch.queue.partition
            if went != (self.of(key) if key is not None else went if partition is None else partition):
                raise Violation("producer", f"{self.process}: {value[:12]!r} with key {key!r} for partition {partition} went to {went}")
            self.took(_Sent(value, life.invoke(self.process, went, value), delivery))

    def send_many(self) -> None:
        """Some at once, to one partition or by key. What is taken before it has to wait for room may be read meanwhile."""
        life, values = self.life, self.client.values(self.chance.choice((2, 5, 20)))
        keys = [self.chance.choice(_KEYS) for _ in values] if self.chance.random() < 0.5 else None
        partition = self.chance.randrange(self.partitions) if keys is None else None
        where = [partition or 0] * len(values) if keys is None else [self.of(key) for key in keys]
        calls = [life.invoke(self.process, to, value) for to, value in zip(where, values, strict=True)]
        found: list[Any] = []
        if not self.blocks(lambda: found.append(life.producer.send_many(TOPIC, values, keys=keys, partition=partition)), parts=len(values)):
            for call in calls:
                call.info()  # some may have been taken
            return
        for value, call, delivery in zip(values, calls, found[0], strict=True):
            self.took(_Sent(value, call, delivery))

    def of(self, key: bytes) -> int:
        """The partition of a key."""
        return self.life.producer._partitioner(key, self.partitions)

    def blocks(self, send: Callable[[], None], *, parts: int = 1) -> bool:
        """Send; whether it was taken. It may block for the topic and for room, each as long as it may, and for each part anew."""
        life, world = self.life, self.client.world
        begun_ms = world.now_ms
        try:
            send()
        except (Unavailable, UnknownTopicOrPartition) as error:  # a broker may not have heard of the topic yet
            world.marks.hit(f"a send is not taken: {type(error).__name__}")
            return False
        finally:
            took_ms = world.now_ms - begun_ms
            if took_ms:
                world.marks.hit("a producer waits for room")
        if took_ms > parts * 2 * life.max_block_ms + _LATE_MS:
            raise Violation("producer", f"{self.process}: a send took {took_ms} ms, it may block for {life.max_block_ms} ms")
        return True

    def took(self, sent: _Sent) -> None:
        """The outcome is told to a callback, or to whoever asks, or to nobody before the producer is closed."""
        life = self.life
        life.open[sent] = None
        self.recent = [*self.recent[-9:], sent]
        if len(sent.delivery._batch.values) > 1:
            self.client.world.marks.hit("a record joins an open batch")
        how = self.chance.random()
        if how < 0.4:
            sent.delivery.add_done_callback(lambda _: life.noted(sent))
        elif how < 0.6:
            sent.delivery.future().add_done_callback(lambda _: life.noted(sent))

    def ask(self) -> None:
        """What became of one of the last: an answer has the batch sent at once."""
        if not self.recent:
            return
        sent = self.chance.choice(self.recent)
        timeout_s = self.chance.choice((None, 0, 1))
        try:
            sent.delivery.result(timeout_s)
        except TimedOut:
            if timeout_s is not None:
                return
        except ReplogError:
            pass
        self.life.settle([sent], "result")
