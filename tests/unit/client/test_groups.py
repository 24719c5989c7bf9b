"""Batches that leave together: as many as a frame can carry, in their order; and what becomes of a message that none can carry."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.unit.client.fake import CLIENT, make

from replog.client.batches import Batch
from replog.client.core import ClientCore
from replog.client.groups import GROUP_BATCHES, GROUP_BYTES, Produces, numbers_of
from replog.client.view import Place
from replog.codec import HEADER, encode_parts
from replog.config import BATCH_BYTES_MAX, FRAME_BYTES_MAX
from replog.errors import MessageTooLarge
from replog.messages import Admin, AdminAnswer, Disconnected, ListOffsets, Produce, ProduceEntry, Stage, Unsent
from replog.model import ACKS_ALL, ACKS_LEADER, ACKS_NONE, PartitionId
from replog.transport.tcp import TcpLimits

MIB = 1 << 20
BODIES = {size: bytes(size) for size in (1, 100, 300_000, 5 * MIB, 15 * MIB, GROUP_BYTES, GROUP_BYTES + 1)}


def batch(core: ClientCore, size: int, acks: int = ACKS_ALL) -> Batch:
    """One whose body is made already."""
    queue = core.open_writer(acks=acks, idempotent=False, compression=None, batch_bytes=64).queue("t", 0)
    made = queue.begin(0, 0, 0)
    made.body = BODIES[size]
    queue.batches.append(made)
    return made


def led_by(leader: int, number: int = 0) -> Place:
    return Place(PartitionId(b"t" * 16, number, 0), leader, 1)


def sizes(produces: Produces) -> list[tuple[Any, list[int]]]:
    """(leader, bytes of each batch) of each message."""
    return [(leader, [len(entry.body) for entry in message.entries]) for leader, message in produces]


@pytest.mark.parametrize(
    ("given", "messages"),
    [
        ([], []),
        ([GROUP_BYTES + 1], [[GROUP_BYTES + 1]]),
        ([15 * MIB] * 3, [[15 * MIB]] * 3),
        ([5 * MIB] * 4, [[5 * MIB] * 3, [5 * MIB]]),
        ([GROUP_BYTES, 1], [[GROUP_BYTES], [1]]),
        ([1, GROUP_BYTES + 1, 1], [[1], [GROUP_BYTES + 1], [1]]),
        ([100, 100, 15 * MIB], [[100, 100, 15 * MIB]]),
    ],
)
def test_batches_for_one_leader_share_messages_up_to_a_size(given: list[int], messages: list[list[int]]) -> None:
    core = make()[1].core
    produces = Produces(1_000)
    for number, size in enumerate(given):
        produces.add(batch(core, size), led_by(1), number, 5)
    assert sizes(produces) == [(1, one) for one in messages]
    assert [entry.request for _, message in produces for entry in message.entries] == list(range(len(given)))


def test_each_leader_and_kind_of_acknowledgement_keeps_its_order_and_no_message_is_too_large() -> None:
    rng = random.Random(4)
    core = make()[1].core
    for _ in range(50):
        produces = Produces(1_000)
        wanted: dict[tuple[int, int], list[int]] = {}
        for number in range(rng.randrange(60)):
            leader, acks = rng.choice((1, 2)), rng.choice((ACKS_ALL, ACKS_LEADER))
            produces.add(batch(core, rng.choice(list(BODIES)), acks), led_by(leader), number, 5)
            wanted.setdefault((leader, acks), []).append(number)
        found: dict[tuple[int, int], list[int]] = {}
        for to, message in produces:
            assert len(message.entries) == 1 or sum(len(entry.body) for entry in message.entries) <= GROUP_BYTES
            assert isinstance(to, int)
            found.setdefault((to, message.acks), []).extend(entry.request for entry in message.entries)
        assert found == wanted


def test_what_nobody_answers_is_settled_when_it_leaves() -> None:
    core = make()[1].core
    sent, waits = batch(core, 100, ACKS_NONE), batch(core, 100, ACKS_LEADER)
    produces = Produces(1_000)
    for number, one in enumerate((sent, waits)):
        produces.add(one, led_by(1), number, 5)
    assert (sent.done, waits.done) == (True, False)
    assert sorted((message.acks, len(message.entries[0].body)) for _, message in produces) == [(ACKS_NONE, 100), (ACKS_LEADER, 100)]


def test_a_broker_takes_the_largest_message_that_is_made_of_small_batches() -> None:
    core = make()[1].core
    produces = Produces(1_000)
    place = Place(PartitionId(b"\xff" * 16, 2**31 - 1, 2**32 - 1), 1, 1)
    for number in range(GROUP_BATCHES + 1):
        produces.add(batch(core, 100), place, 2**62 + number, 5)
    assert [len(message.entries) for _, message in produces] == [GROUP_BATCHES, 1]
    head = encode_parts(next(iter(produces))[1])[0]
    assert isinstance(head, bytes)
    assert len(head) - HEADER.size <= TcpLimits().client_meta_bytes_max
    assert TcpLimits().client_items_max >= GROUP_BATCHES * 6  # a batch is a row of three, one of them a row of three


def test_the_largest_batch_fits_a_frame_alone() -> None:
    message = Produce(ACKS_ALL, 2**62, [])
    produces = Produces(2**62)
    core = make()[1].core
    made = batch(core, 1)
    made.body = bytes(BATCH_BYTES_MAX)
    produces.add(made, led_by(1), 2**62, 5)
    ((_, message),) = produces
    assert sum(len(part) if isinstance(part, bytes) else part.length for part in encode_parts(message)) <= FRAME_BYTES_MAX


def test_what_is_sent_again_after_a_lost_connection_leaves_in_messages_of_that_size() -> None:
    """Batches that left one by one come back together, those of all producers of a client: the oldest of each, then the others."""
    cluster, driver, client = make({"t": 4})
    sent: list[Produce] = []

    def listen(to: Any, message: Any) -> bool:
        sent.extend([message] if isinstance(message, Produce) else [])
        return False

    driver.filter = listen
    writers = [client.producer(batch_bytes=5 * MIB + 1_000, buffer_bytes=128 * MIB, compression=None) for _ in range(2)]
    for writer in writers:
        writer.send("t", "x", partition=0).result()
    cluster.paused.add(1)
    value = bytes(5 * MIB)
    deliveries = [writer.send("t", value, partition=0) for _ in range(5) for writer in writers]
    driver.held.clear()
    sent.clear()
    cluster.move("t", 0, 2)
    driver.core.receive(1, Disconnected(1), driver.now_ms())
    driver.pass_time(10_000)
    assert [delivery.exception() for delivery in deliveries] == [None] * 10
    assert len(cluster.partition("t").log) == 12
    assert sum(len(message.entries) for message in sent) == 10
    assert [len(message.entries) for message in sent] == [2, 3, 1, 3, 1]


@pytest.mark.parametrize(("idempotent", "delay_ms"), [(True, 0), (False, 0), (False, 50)])
def test_batches_that_no_frame_carries_fail_at_once_and_what_is_behind_them_goes_on(idempotent: bool, delay_ms: int) -> None:
    cluster, driver, client = make({"t": 1})
    producer = client.producer(idempotent=idempotent, batch_bytes=64)
    reason = "a frame of 70000000 bytes; allowed are 67108864"

    def too_large(to: Any, message: Any) -> bool:
        if not isinstance(message, Produce) or b"large" not in bytes(message.entries[0].body):
            return False
        driver.flying.append((driver.now_ms() + delay_ms, -1, CLIENT, CLIENT, Unsent(to, message, reason)))
        return True

    driver.filter = too_large
    with driver.lock:
        first, large, last = (producer.send("t", value.ljust(50)) for value in ("first", "large", "last"))
    driver.pass_time(1_000)
    assert [first.done(), large.done(), last.done()] == [True, True, True]
    assert [first.exception(), last.exception()] == [None, None]
    failed = large.exception()
    assert isinstance(failed, MessageTooLarge)
    assert reason in str(failed)
    assert [value.strip() for value in cluster.partition("t").values()] == [b"first", b"last"]
    assert cluster.counts["Produce"] == 2
    assert producer._writer.buffered == 0
    assert not driver.core._requests


def test_a_wish_that_no_frame_carries_fails_at_once() -> None:
    _, driver, client = make({"t": 1})
    reason = "a frame of 70000000 bytes; allowed are 67108864"

    def too_large(to: Any, message: Any) -> bool:
        if isinstance(message, Admin):
            driver._post(CLIENT, CLIENT, Unsent(to, message, reason))
        return isinstance(message, Admin)

    driver.filter = too_large
    before = driver.now_ms()
    with pytest.raises(MessageTooLarge, match=reason):
        client.create_topic("u")
    assert driver.now_ms() == before
    assert not driver.core._requests


def test_a_piece_that_no_frame_carries_fails_at_once_and_costs_a_producer_nothing() -> None:
    cluster, driver, client = make({"t": 1})
    waiting = client.producer(linger_ms=60_000).send("t", b"kept", partition=0)
    reason = "a frame of 70000000 bytes; allowed are 67108864"

    def too_large(to: Any, message: Any) -> bool:
        if isinstance(message, Stage):
            driver._post(CLIENT, CLIENT, Unsent(to, message, reason))
        return isinstance(message, Stage)

    driver.filter = too_large
    with pytest.raises(MessageTooLarge, match=reason):
        client.stage("t", 0, [b"large"], writer="w", version=1, attempt="a", number=0)
    driver.pass_time(60_000)
    assert waiting.exception() is None
    assert cluster.partition("t").values() == [b"kept"]
    assert not driver.core._requests


def test_the_numbers_that_a_message_bears() -> None:
    core = make()[1].core
    produces = Produces(1_000)
    for number in (4, 7):
        produces.add(batch(core, 1), led_by(1), number, 5)
    ((_, message),) = produces
    assert numbers_of(message) == [4, 7]
    assert numbers_of(ListOffsets(3, [])) == [3]
    assert numbers_of(AdminAnswer(9, 0)) == [9]
    assert numbers_of(Stage("w", 1, "a", 0, ProduceEntry(5, message.entries[0].partition, b""))) == [5]
