"""Peers that are slow, stuck, mad or many, against one broker process: bounded memory, an error or a closed connection each, and
somebody well-behaved goes on meanwhile. (Deadlines that take longer than a test, and each rule by itself: tests/unit/transport.)
"""

from __future__ import annotations

import os
import random
import resource
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from tests.integration.processes.strangers import Stranger, body_of, fetch, produce
from tests.unit.samples import messages

import replog
from replog import messages as m
from replog.codec import FROM_CONTROLLER, PROTOCOL_VERSION, TO_CONTROLLER, encode
from replog.errors import Code
from replog.model import PartitionId
from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes

MIB = 1 << 20
TOPIC = "t"
DATA_MIB = 24
MANY = 2_000


class Victim:
    """One broker process, and a healthy client that keeps appending."""

    def __init__(self, folder: Any) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < 3 * MANY:  # the child inherits it
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(3 * MANY, hard) if hard >= 0 else 3 * MANY, hard))
        self.process = replog.BrokerProcess(1, data=folder / "b1", store=f"file://{folder / 'store.db'}").start()
        self.pid = self.process.pid
        self.acknowledged = 0
        self.trouble: list[BaseException] = []
        self._done = threading.Event()
        self.client = replog.connect(self.process.endpoint)
        for topic in (TOPIC, "healthy"):
            self.client.create_topic(topic, replication_factor=1, min_isr=1)
        for _ in range(DATA_MIB):
            self.client.append(TOPIC, 0, [os.urandom(MIB)])
        self.partition = PartitionId(bytes.fromhex(self.client.describe(TOPIC).topic_id), 0, 0)
        self._thread = threading.Thread(target=self._append, daemon=True)
        self._thread.start()

    def _append(self) -> None:
        try:
            while not self._done.is_set():
                self.client.append("healthy", 0, ["x" * 100])
                self.acknowledged += 1
        except BaseException as problem:
            self.trouble.append(problem)

    def goes_on(self) -> None:
        """The healthy one is served, by the same process, none of whose actors was restarted."""
        enough = self.acknowledged + 20
        eventually(lambda: self.acknowledged >= enough or self.trouble)
        assert self.trouble == []
        assert self.process.is_running
        assert [line for line in self.process.last_lines if "restarted" in line] == []

    @property
    def memory(self) -> int:
        """Bytes of its memory that are resident."""
        with open(f"/proc/{self.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) << 10

    @contextmanager
    def costs_at_most(self, bound: int) -> Iterator[None]:
        """Bytes that the broker may have grown by when the block ends."""
        before = self.memory
        yield
        grown = self.memory - before
        assert grown <= bound, f"grown by {grown} bytes; {bound} are allowed"

    def guest(self, **arguments: Any) -> Stranger:
        """A client that has shaken hands."""
        return Stranger(self.process.endpoint, **arguments).hello()

    def close(self) -> None:
        self._done.set()
        self._thread.join(30)
        self.client.close()
        self.process.kill()


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    one = Victim(tmp_path_factory.mktemp("victim"))
    yield one
    one.close()


@pytest.fixture(autouse=True)
def _others_go_on(victim: Victim) -> Iterator[None]:
    victim.goes_on()
    yield
    victim.goes_on()


def is_hung_up(one: socket.socket) -> bool:
    """Whether the other end has reset the connection; nothing is read to find out."""
    poll = select.poll()
    poll.register(one, 0)
    return bool(poll.poll(0))


def all_cut_off(peers: list[Stranger]) -> None:
    """Wait until every one of these is."""
    left = list(peers)

    def none_left() -> bool:
        left[:] = [one for one in left if not one.is_cut_off()]
        return not left

    eventually(none_left)


def filled(one: Stranger, data: bytes) -> None:
    """Send as much of this as the kernel takes."""
    one.socket.settimeout(0.05)
    with suppress(TimeoutError, OSError):
        one.socket.sendall(data)


# ------------------------------------------------------------------------------------------------------- slow and stuck


def test_clients_that_ask_for_megabytes_and_never_read(victim: Victim) -> None:
    """What is in files stays there. Twenty ask for 100 MiB at once, more than may wait for anybody: they are not listened to
    meanwhile, and are given half a minute to take it. One that does take it gets an answer to each question, some without records."""
    question = b"".join(encode(fetch(1, victim.partition, max_bytes=MIB)))
    with ExitStack() as open_, victim.costs_at_most(24 * MIB):
        stuck = [open_.enter_context(victim.guest(receive_bytes=4_096)) for _ in range(20)]
        slow = open_.enter_context(victim.guest())
        for one in (*stuck, slow):
            one.socket.sendall(question * 100)
        victim.goes_on()
        for one in stuck:
            filled(one, question * 100_000)
        victim.goes_on()
        answers = [slow.read() for _ in range(100)]
        assert [answer.entries[0].error for answer in answers] == [0] * 100
        assert 0 < sum(bool(answer.entries[0].slices) for answer in answers) < 100
        assert not any(is_hung_up(one.socket) for one in stuck)
        with victim.guest() as reader:
            reader.send(fetch(1, victim.partition))
            assert reader.read().entries[0].error == 0
        eventually(lambda: all(is_hung_up(one.socket) for one in stuck), 90, every_s=0.1)


def test_connections_that_are_half_open_or_half_closed(victim: Victim) -> None:
    """One that says nothing or stops in its first words is cut off after 5 s; one that will say nothing more at once."""
    hello = b"".join(encode(m.Handshake("", "client", -1, -1, 1, 1, PROTOCOL_VERSION)))
    with ExitStack() as open_, victim.costs_at_most(8 * MIB):
        mute = [open_.enter_context(Stranger(victim.process.endpoint)) for _ in range(50)]
        for one in mute[::2]:
            one.socket.sendall(hello[:-1])
        closed = [open_.enter_context(victim.guest()) for _ in range(50)]
        for one in closed:
            one.socket.sendall(b"\x00\x10")
            one.socket.shutdown(socket.SHUT_WR)
        all_cut_off(closed)
        victim.goes_on()
        all_cut_off(mute)


def test_a_byte_now_and_then(victim: Victim) -> None:
    """300 introduce themselves byte by byte, and are too slow; 300 begin frames of 60 MiB that way, which own what has come."""
    hello = b"".join(encode(m.Handshake("", "client", -1, -1, 1, 1, PROTOCOL_VERSION)))
    claim = (60 * MIB).to_bytes(4, "little") + bytes(60)
    with ExitStack() as open_, victim.costs_at_most(24 * MIB):
        slow = [open_.enter_context(Stranger(victim.process.endpoint)) for _ in range(300)]
        dripping = [open_.enter_context(victim.guest()) for _ in range(300)]
        for at in range(40):
            for one in slow:
                with suppress(OSError):
                    one.socket.send(hello[:-1][at : at + 1])
            for one in dripping:
                one.socket.send(claim[at : at + 1])
        victim.goes_on()
        all_cut_off(slow)
        assert not any(one.is_cut_off() for one in dripping)


def test_two_thousand_connections(victim: Victim) -> None:
    with ExitStack() as open_, victim.costs_at_most(48 * MIB):
        peers = [open_.enter_context(victim.guest()) for _ in range(MANY)]
        assert not any(one.is_cut_off() for one in peers)
        victim.goes_on()
        with replog.connect(victim.process.endpoint) as client:
            assert client.append("healthy", 0, ["one more"]).base_offset is not None
        for one in peers[::100]:
            one.send(m.ListOffsets(1, [m.ListOffsetsEntry(victim.partition, -1, -1)]))
            assert one.read().entries[0].offset == DATA_MIB
    # Whoever comes later is served as well.
    with victim.guest() as one:
        one.send(m.ListOffsets(1, []))
        assert one.read() == m.ListedOffsets(1, [])


# ------------------------------------------------------------------------------------------------------------------ mad


def test_random_bytes(victim: Victim) -> None:
    chance = random.Random(4_711)
    with ExitStack() as open_, victim.costs_at_most(16 * MIB):
        peers = []
        for number in range(300):
            one = open_.enter_context(Stranger(victim.process.endpoint) if number % 2 else victim.guest())
            filled(one, chance.randbytes(chance.choice((64, 1_000, 100_000))))
            with suppress(OSError):
                one.socket.shutdown(socket.SHUT_WR)
            peers.append(one)
        victim.goes_on()
        all_cut_off(peers)


@pytest.mark.parametrize("shaken", [False, True], ids=["a stranger", "a guest"])
@pytest.mark.parametrize("length", [64 * MIB, 2**31 - 1, 2**31, 2**32 - 1, 0, 5])
def test_frames_whose_length_is_out_of_bounds(victim: Victim, length: int, shaken: bool) -> None:
    """Refused by their first four bytes."""
    with victim.costs_at_most(8 * MIB), (victim.guest() if shaken else Stranger(victim.process.endpoint)) as one:
        one.socket.sendall(length.to_bytes(4, "little"))
        filled(one, bytes(MIB))
        all_cut_off([one])


def test_large_frames_that_never_end(victim: Victim) -> None:
    """They own twice of what has arrived, whatever they claim: 32 times 60 MiB."""
    with ExitStack() as open_, victim.costs_at_most(32 * MIB):
        peers = [open_.enter_context(victim.guest()) for _ in range(32)]
        for one in peers:
            one.socket.sendall((60 * MIB).to_bytes(4, "little") + bytes(200_000))
        victim.goes_on()
        assert not any(one.is_cut_off() for one in peers)


FAR = 2**63 - 1
NOBODY = PartitionId(b"?" * 16, 0, 0)


def nonsense(partition: PartitionId) -> list[Any]:
    """What a client may send by its type, and would not."""
    places = [NOBODY, partition._replace(partition=2**31), partition._replace(partition=-1), partition._replace(creation=FAR), partition]
    body, numbers = body_of("a"), (-FAR - 1, -1, 0, 1, FAR)
    bodies = [b"", b"\x00", bytes(92), bytes(200), body[:-1], body + b"\x00", bytes([body[0] ^ 1]) + body[1:]]
    found: list[Any] = []
    for place in places:
        found += [m.Produce(acks, wait, [m.ProduceEntry(n, place, body)]) for acks, wait, n in ((-1, -FAR, 1), (0, -1, -FAR), (1, 0, FAR))]
        found += [m.Produce(-1, 100, [m.ProduceEntry(5, place, bad)]) for bad in bodies]
        found += [fetch(n, place, offset, max_bytes=-offset) for n, offset in zip(numbers, numbers, strict=True)]
        found += [m.Fetch(1, -1, epoch, FAR, epoch, 0, least, 1, []) for epoch, least in zip(numbers, numbers, strict=True)]
        found += [m.Fetch(1, -1, -1, 0, -1, 0, FAR, FAR, [m.FetchEntry(place, FAR, 0, FAR, FAR)] * 100, [place] * 100)]
        found += [m.ListOffsets(n, [m.ListOffsetsEntry(place, n, n)] * 3) for n in numbers]
        found += [m.OffsetsForLeaderEpoch(n, [m.EpochsEntry(place, n, n)] * 3) for n in numbers]
    found += [m.Produce(n, 100, [m.ProduceEntry(5, partition, body)]) for n in (7, FAR, -2)]
    found += [m.Metadata(n, n, n) for n in numbers]
    arguments: list[dict[str, Any]] = [
        {}, {"name": 5}, {"name": "../x"}, {"name": "x", "partitions": -1}, {"name": "x", "partitions": FAR, "replication_factor": FAR},
        {"name": "x", "partitions": "1"}, {"name": "x", "assignment": [1]}, {"name": "x", "assignment": {0: [1, 1]}, "partitions": 1},
        {"name": "x", "assignment": {"0": "1"}}, {"name": "x", "partitions": 1, "config": {"min_isr": []}}, {"name": "x", "config": 5},
        {"topic": None, "partition": [], "name": {}},
    ]  # fmt: skip
    verbs = ("create_topic", "delete_topic", "create_partitions", "reassign", "elect", "drain", "", "__class__")
    found += [m.Admin(n, verb, each) for n, verb in enumerate(verbs) for each in arguments]
    return found


def test_valid_frames_with_nonsense_inside(victim: Victim) -> None:
    """Each has a connection of its own: there is an answer, or it is closed, or both."""
    with victim.costs_at_most(24 * MIB):
        for message in nonsense(victim.partition):
            with victim.guest() as one:
                one.send(message)
                one.send(m.ListOffsets(4_711, []))
                while (answer := one.read()) is not None:
                    if answer == m.ListedOffsets(4_711, []):
                        break
        victim.goes_on()
    assert victim.client.topics() == ["healthy", TOPIC]
    assert victim.client.offset(TOPIC, 0, "earliest") == 0


def test_appends_that_make_no_sense_are_refused_one_by_one(victim: Victim) -> None:
    end = victim.client.offset(TOPIC, 0, "latest")
    bodies = [b"", bytes(200), body_of("a")[:-1], body_of("a") + b"\x00"]
    with victim.guest() as one:
        for number, body in enumerate(bodies):
            one.send(m.Produce(-1, 100, [m.ProduceEntry(number, victim.partition, body)]))
            (entry,) = one.read().entries
            assert (entry.request, entry.error != 0) == (number, True)
        one.send(produce(9, NOBODY, "a"))
        assert one.read().entries[0].error == Code.UNKNOWN_TOPIC_ID
    assert victim.client.offset(TOPIC, 0, "latest") == end


# ------------------------------------------------------------------------------------------------- above their station


def test_a_client_that_says_it_is_a_replica(victim: Victim) -> None:
    with victim.guest() as one:
        one.send(fetch(1, victim.partition, replica=2))
        assert one.read() is None


@pytest.mark.parametrize("route", [0, TO_CONTROLLER, FROM_CONTROLLER, TO_CONTROLLER | FROM_CONTROLLER])
def test_a_client_that_commands_or_answers_or_changes_an_isr(victim: Victim, route: int) -> None:
    """Whatever only brokers send each other closes the connection, on every route."""
    before = victim.client.describe(TOPIC).partitions
    may = (m.Produce, m.Stage, m.Publish, m.Fetch, m.ListOffsets, m.OffsetsForLeaderEpoch, m.Metadata, m.Admin)
    sent = 0
    for message in messages().values():
        if isinstance(message, may) and route == 0:
            continue
        with victim.guest() as one:
            one.send(message, route)
            assert one.read() is None, message
        sent += 1
    assert sent >= 20
    assert victim.client.describe(TOPIC).partitions == before


@pytest.mark.parametrize("name", [1, 2])
def test_somebody_who_speaks_in_the_name_of_a_broker(victim: Victim, name: int) -> None:
    """It has shaken hands as broker 99."""
    before = victim.client.describe(TOPIC).partitions
    isr = m.AlterIsr(1, name, 1, [m.AlterIsrEntry(victim.partition, 0, 0, [(99, 1)])])
    told: list[tuple[Any, int]] = [(isr, TO_CONTROLLER), (fetch(1, victim.partition, replica=name), 0)]
    told += [(m.LeaderAndIsr(name, FAR, FAR, 1, True, 1, [], as_of=1), FROM_CONTROLLER), (m.Heartbeat(name, 1, 1, 1), TO_CONTROLLER)]
    for message, route in told:
        with Stranger(victim.process.endpoint).hello(
            role="broker", broker_id=99, cluster_id=victim.process.cluster_id, lane=0 if route else 1
        ) as one:
            one.send(message, route)
            assert one.read() is None
    assert victim.client.describe(TOPIC).partitions == before


def test_an_isr_change_by_a_broker_that_nobody_knows(victim: Victim) -> None:
    """In its own name: it is heard, and refused."""
    before = victim.client.describe(TOPIC).partitions
    known = victim.process.cluster_id
    wanted: Callable[[Any], bool] = lambda message: type(message) is m.AlterIsrAnswer  # noqa: E731
    with Stranger(victim.process.endpoint).hello(role="broker", broker_id=99, cluster_id=known, lane=0) as one:
        one.send(m.AlterIsr(1, 99, 1, [m.AlterIsrEntry(victim.partition, 0, 0, [(99, 1)])], 1), TO_CONTROLLER)
        assert one.read_until(wanted).error != 0
    assert victim.client.describe(TOPIC).partitions == before
