"""A slice that is being sent never shows other bytes: whoever reads slowly gets what was stored there, or the connection ends.

The readers are bare sockets that take little, so that most of an answer waits at the broker or in its kernel, as regions of
files, while those files are truncated and written again, rolled, trimmed, or deleted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.integration.processes.config import CONFIG
from tests.integration.processes.lives import ALL, PATIENT_MS, Life, others
from tests.integration.processes.onlooker import stand_still
from tests.integration.processes.strangers import Stranger, fetch

import replog
from replog import messages as m
from replog.codec import HEADER
from replog.records import RecordBatch, read_header
from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes

MIB = 1 << 20
Batches = dict[tuple[int, int], bytes]
"""(base offset, leader epoch) -> the batch as it was stored."""


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """Nobody leaves an ISR, and nobody is dead, because time has passed; old segments go at once."""
    config = {**CONFIG, "session_ms": PATIENT_MS, "replica_lag_ms_max": PATIENT_MS, "retention_check_ms": 100, "deletion_delay_ms": 0}
    one = Life(tmp_path_factory.mktemp("slices"), {**config, "fetch_timeout_ms": 1_500})
    yield one
    one.close()


def batches_in(data: bytes) -> Batches:
    """The whole batches of a piece of log; each is checked as far as it goes by itself."""
    found: Batches = {}
    at = 0
    while len(data) - at >= 92:
        header = read_header(data, at)
        if len(data) - at < header.length:
            break
        RecordBatch.parse(data[at : at + header.length])  # raises BadBatch if a checksum does not hold
        found[header.base_offset, header.leader_epoch] = data[at : at + header.length]
        at += header.length
    return found


def taken(reader: Stranger, enough: int | None = None) -> bytes:
    """The bytes that come: until there are so many more, or to the end of the stream, or of a frame."""
    data = bytearray()
    wanted = enough
    while wanted is None or len(data) < wanted:
        try:
            part = reader.socket.recv(2_048)
        except ConnectionError:
            break
        if not part:
            break
        data += part
        if enough is None and len(data) >= 4:
            wanted = int.from_bytes(data[:4], "little") + 4
    return bytes(data)


def records_of(frame: bytes) -> bytes:
    """What there is of the slices of one answer."""
    return frame[HEADER.size + HEADER.unpack_from(frame)[4] :]


def slow_and_rest(reader: Stranger, question: m.Fetch, change: Callable[[], object]) -> bytes:
    """Take a little of the answer, let things change, take the rest."""
    reader.send(question)
    begun = taken(reader, 30_000)
    whole = int.from_bytes(begun[:4], "little") + 4
    assert whole > 4 * MIB, "there is more than kernels take at once"
    change()
    rest = taken(reader, whole - len(begun))
    return records_of(begun + rest)


def append(client: replog.Client, topic: str, count: int, seed: int, acks: Any = "all") -> None:
    """So many batches of 40 to 90 KB that no compression makes smaller."""
    chance = random.Random(seed)
    for _ in range(count):
        client.append(topic, 0, [chance.randbytes(chance.randrange(40_000, 90_000))], acks=acks)


def as_follower(life: Life, number: int, partition: Any, offset: int, epoch: int, broker_epoch: int) -> m.Fetch:
    """What replica 3 would ask broker 1."""
    entry = m.FetchEntry(partition, epoch, offset, -1, 8 * MIB)
    return m.Fetch(number, 3, broker_epoch, 0, 0, 0, 1, 8 * MIB, [entry])


def test_the_end_of_a_log_is_truncated_and_written_again(life: Life) -> None:
    """A leader has records that nobody else has, and sends them to a follower. Then it is replaced, and follows."""
    life.heal()
    life.client.create_topic("cut", assignment={0: [1, 2, 3]}, min_isr=1, segment_bytes=64 * MIB)
    append(life.client, "cut", 3, seed=0)
    life.in_sync("cut", ALL)
    eventually(lambda: life.store.state("cut").leader == 1)
    partition, epoch, three = life.identity("cut"), life.store.state("cut").leader_epoch, life.store.broker_epoch(3)
    first = life.processes[1]
    life.processes[3].kill()  # whose part we play: its session is patient
    stand_still(life.processes[2], life.store)
    with replog.connect(first.endpoint) as client:
        append(client, "cut", 100, seed=1, acks=1)  # 6.5 MB that nobody has committed
    arguments = {"role": "broker", "broker_id": 3, "cluster_id": first.cluster_id}
    with Stranger(first.endpoint).hello(**arguments) as fast:
        fast.send(as_follower(life, 1_000_000, partition, 3, epoch, three))
        stored = batches_in(records_of(taken(fast)))
    assert len(stored) == 100

    def change() -> None:
        stand_still(first, life.store)
        life.processes[2].resume()
        for gone in (1, 3):
            life.store.end_session_of(gone)
        eventually(lambda: life.store.state("cut").leader == 2)
        with replog.connect(life.processes[2].endpoint) as client:
            append(client, "cut", 100, seed=2, acks=1)
        first.resume()
        eventually(lambda: 1 in life.store.state("cut").isr)

    with Stranger(first.endpoint, receive_bytes=4_096).hello(**arguments) as slow:
        got = batches_in(slow_and_rest(slow, as_follower(life, 1_000_001, partition, 3, epoch, three), change))
    assert got.items() <= stored.items()
    # The other bytes are there indeed, at the same offsets.
    with Stranger(first.endpoint).hello() as reader:

        def shown() -> Batches:
            reader.send(fetch(1, partition, 3, max_bytes=8 * MIB))
            found = batches_in(records_of(taken(reader)))
            return found if len(found) >= 100 else {}

        now = eventually(shown)
    replaced = {offset for offset, later in now if later > epoch} & {offset for offset, _ in stored}
    assert len(replaced) >= 90, "all but what was on its way when the other stood still"


def consumers_reading(life: Life, topic: str, change: Callable[[], object]) -> tuple[Batches, Batches]:
    """What a fast and a slow consumer of the first 8 MiB get, the slow one while the log changes."""
    leader = life.processes[life.store.state(topic).leader or 0]
    question = fetch(1, life.identity(topic), max_bytes=8 * MIB)
    with Stranger(leader.endpoint).hello() as fast:
        fast.send(question)
        stored = batches_in(records_of(taken(fast)))
    with Stranger(leader.endpoint, receive_bytes=4_096).hello() as slow:
        return stored, batches_in(slow_and_rest(slow, question, change))


def test_segments_are_rolled_and_trimmed(life: Life) -> None:
    """What retention removes is there for whoever is reading it."""
    life.heal()
    life.client.create_topic("roll", replication_factor=1, min_isr=1, segment_bytes=MIB, retention_bytes=9 * MIB)
    append(life.client, "roll", 130, seed=3)

    def change() -> None:
        append(life.client, "roll", 300, seed=4)
        eventually(lambda: (life.client.offset("roll", 0, "earliest") or 0) > 130)

    stored, got = consumers_reading(life, "roll", change)
    assert got.items() <= stored.items()
    assert len(got) > 50, "the segments were kept for it"


def test_a_topic_is_deleted_and_made_again(life: Life) -> None:
    life.heal()
    for seed in (5, 6):
        life.client.create_topic("gone", assignment={0: [others(1)[0]]}, min_isr=1, segment_bytes=2 * MIB)
        append(life.client, "gone", 130, seed=seed)
        if seed == 5:
            before = life.client.describe("gone").topic_id

            def change() -> None:
                life.client.delete_topic("gone")
                life.client.create_topic("gone", assignment={0: [2]}, min_isr=1, segment_bytes=2 * MIB)
                append(life.client, "gone", 130, seed=7)

            stored, got = consumers_reading(life, "gone", change)
            assert got.items() <= stored.items()
            assert len(got) > 10
            assert life.client.describe("gone").topic_id != before
            life.client.delete_topic("gone")


def test_a_leader_is_killed_while_it_sends(life: Life) -> None:
    """The connection ends; what came until then is right."""
    life.heal()
    life.client.create_topic("end", assignment={0: [2]}, min_isr=1)
    append(life.client, "end", 130, seed=8)
    stored, got = consumers_reading(life, "end", lambda: life.again(2))
    assert got.items() <= stored.items()
    assert len(got) < len(stored)
