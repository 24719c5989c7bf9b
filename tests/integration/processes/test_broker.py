"""One broker per process: how it is run, who may take its place, and what becomes of it when its session or its process ends."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import replog
from replog.errors import TimedOut, UsageError
from replog.log.files import Fs
from replog.metadata.file import FileStore
from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes

LOCAL = "tcp://127.0.0.1:0"
FAST = {"session_ms": 2_000, "heartbeat_ms": 300, "replica_lag_ms_max": 2_000, "ack_timeout_ms": 1_000, "reconcile_ms": 2_000}


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'metadata.db'}"


def broker(number: int, tmp_path: Path, store: object, **more: object) -> replog.Broker:
    settings: dict[str, object] = {"listen": LOCAL, "data": tmp_path / f"broker-{number}", "config": FAST, **more}
    return replog.Broker(number, store=store, **settings)  # type: ignore[arg-type]


@pytest.fixture
def three(tmp_path: Path, store: str) -> Iterator[list[replog.Broker]]:
    brokers = [broker(n, tmp_path, store).start() for n in (1, 2, 3)]
    try:
        for one in brokers:
            one.wait_until_ready(timeout_s=60)
        yield brokers
    finally:
        for one in brokers:
            one.stop(controlled=False)


def bootstrap(brokers: list[replog.Broker]) -> str:
    return ",".join(one.endpoint for one in brokers)


def is_in_sync(client: replog.Client, topic: str, count: int) -> bool:
    return all(p.leader is not None and len(p.isr) == count for p in client.describe(topic).partitions)


# ------------------------------------------------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"listen": "127.0.0.1:0"}, "an endpoint is written tcp://host:port"),
        ({"listen": "tcp://0.0.0.0:0"}, "0.0.0.0"),
        ({"advertise": "127.0.0.1:0"}, "an endpoint is written tcp://host:port"),
        ({"data": ""}, "data is ''"),
        ({"store": "nonsense://x"}, "nonsense://"),
        ({"store": 5}, "not 5"),
        ({"config": {"session": 5}}, "unknown configuration key 'session'"),
    ],
)
def test_wrong_arguments(tmp_path: Path, store: str, arguments: dict[str, object], message: str) -> None:
    def use() -> None:
        one = broker(1, tmp_path, arguments.pop("store", store), **arguments)
        try:
            one.start().wait_until_ready(timeout_s=30)
        finally:
            one.stop()

    with pytest.raises(UsageError, match=message):
        use()


@pytest.mark.parametrize("number", [-1, "1", True, 2**31])
def test_wrong_numbers(tmp_path: Path, store: str, number: object) -> None:
    with pytest.raises(UsageError, match="broker_id is"):
        replog.Broker(number, listen=LOCAL, data=tmp_path, store=store)  # type: ignore[arg-type]


def test_a_constructor_opens_nothing_and_a_stopped_one_is_over(tmp_path: Path, store: str) -> None:
    threads = threading.active_count()
    one = broker(1, tmp_path, store)
    assert list(tmp_path.iterdir()) == []
    one.stop()
    one.stop()
    with pytest.raises(UsageError, match="this Broker is stopped"):
        one.start()
    assert threading.active_count() == threads


def test_beyond_loopback_only_if_somebody_says_so(tmp_path: Path, store: str) -> None:
    with broker(1, tmp_path, store, listen="tcp://0.0.0.0:0", advertise="tcp://127.0.0.1:0", insecure=True) as one:
        one.wait_until_ready(timeout_s=60)
        with replog.connect(one.endpoint) as client:
            assert [each.endpoints for each in client.describe_cluster().brokers] == [(one.endpoint,)]
            assert one.endpoint.startswith("tcp://127.0.0.1:")
    unheard_of = broker(2, tmp_path, store, listen="tcp://0.0.0.0:0", insecure=True)
    with pytest.raises(UsageError, match=r"every address of this machine.*advertise"):
        unheard_of.open()
    broker(2, tmp_path, store).open().stop()  # the folder is free again


# ------------------------------------------------------------------------------------------------------- ways to run it


def test_on_threads(three: list[replog.Broker]) -> None:
    with replog.connect(bootstrap(three)) as client:
        client.create_topic("t", partitions=2, replication_factor=3)
        client.append("t", 0, ["a", "b"])
        assert [record.text() for record in client.read("t")] == ["a", "b"]
        eventually(lambda: all(p.high_watermark == 2 for one in three for p in one.partitions() if p.partition == 0))
        shown = [(p.topic, p.partition, p.end_offset) for p in three[0].partitions()]
        assert shown == [("t", 0, 2), ("t", 1, 0)]
        assert sum(one.is_controller for one in three) == 1
        assert len({one.cluster_id for one in three}) == 1
    with three[0].client() as client:
        assert client.offset("t", 0, "latest") == 2


def test_on_the_loop_of_an_asyncio_program(tmp_path: Path, store: str) -> None:
    async def program() -> int:
        loop = asyncio.get_running_loop()
        brokers = [broker(n, tmp_path, store) for n in (1, 2, 3)]
        for one in brokers:
            one.attach(loop)
        await asyncio.to_thread(eventually, lambda: all(one.is_ready for one in brokers), 60)

        def work() -> int:
            with replog.connect(bootstrap(brokers)) as client:
                client.create_topic("t", replication_factor=3)
                for n in range(50):
                    client.append("t", 0, [str(n)])
                return len(list(client.read("t")))

        count = await asyncio.to_thread(work)
        for one in brokers:
            one.stop()
        return count

    assert asyncio.run(program()) == 50


def test_it_runs_in_one_way_at_a_time(tmp_path: Path, store: str) -> None:
    """Attached twice, or started as well, it is refused; and what is refused leaves nothing on the loop, and ends nothing."""
    failed: list[dict[str, object]] = []

    async def program() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failed.append(context))
        one = broker(1, tmp_path, store)
        detach = one.attach(loop)
        with pytest.raises(UsageError, match="attached"):
            one.attach(loop)
        with pytest.raises(UsageError, match="attached"):
            one.start()
        with pytest.raises(UsageError, match="attached"), one:
            pass
        await asyncio.to_thread(eventually, lambda: one.is_ready, 60)
        detach()
        again = one.attach(loop)
        detach()  # of the one before: this one goes on
        assert loop.remove_reader(one.fileno())
        again()
        one.start()
        with pytest.raises(UsageError, match="thread of its own"):
            one.attach(loop)
        assert not loop.remove_reader(one.fileno())
        await asyncio.to_thread(one.stop)

    asyncio.run(program())
    assert failed == []


def test_it_is_attached_anew_when_its_loop_is_closed(tmp_path: Path, store: str) -> None:
    one = broker(1, tmp_path, store)

    async def program() -> None:
        one.attach(asyncio.get_running_loop())
        await asyncio.to_thread(eventually, lambda: one.is_ready, 60)

    for _ in range(2):
        asyncio.run(program())
    one.stop()


def test_what_ends_its_first_turn_on_a_loop_leaves_nothing_there(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = broker(1, tmp_path, store)

    def fails(timeout_s: float = 0.0) -> None:
        raise MemoryError

    async def program() -> None:
        loop = asyncio.get_running_loop()
        with monkeypatch.context() as patched:
            patched.setattr(one, "poll", fails)
            with pytest.raises(MemoryError):
                one.attach(loop)
        assert not loop.remove_reader(one.fileno())
        one.start()

    asyncio.run(program())
    one.stop()


def test_by_polling(tmp_path: Path, store: str) -> None:
    one = broker(1, tmp_path, store)
    while not one.is_ready:
        one.poll(min(one.next_poll_s(), 0.1))
    done = threading.Event()

    def work() -> None:
        with replog.connect(one.endpoint) as client:
            client.create_topic("t", replication_factor=1, min_isr=1)
            client.append("t", 0, ["a"])
        done.set()

    threading.Thread(target=work, daemon=True).start()
    while not done.is_set():
        one.poll(0.1)
    one.stop()


def test_a_client_is_not_for_the_thread_that_polls(tmp_path: Path, store: str) -> None:
    """Its calls would wait for a broker that waits for them."""
    one = broker(1, tmp_path, store)
    one.client().close()  # nobody polls yet
    one.poll()
    with pytest.raises(UsageError, match="this thread polls the Broker"):
        one.client()
    clients: list[replog.Client] = []
    other = threading.Thread(target=lambda: clients.append(one.client()))
    other.start()
    other.join()
    clients[0].close()
    one.start()
    one.client().close()  # now a thread of its own does
    one.stop()


def test_nobody_else_polls_what_a_thread_runs(tmp_path: Path, store: str) -> None:
    with broker(1, tmp_path, store) as one, pytest.raises(UsageError, match="thread of its own"):
        one.poll()


def test_waiting_for_what_nobody_runs(tmp_path: Path, store: str) -> None:
    one = broker(1, tmp_path, store)
    with pytest.raises(UsageError, match="nobody runs this Broker"):
        one.wait_until_ready(timeout_s=1)
    one.stop()


def test_a_forked_child_can_neither_use_it_nor_harm_it(three: list[replog.Broker]) -> None:
    with replog.connect(bootstrap(three)) as client:
        client.create_topic("t", replication_factor=3)
        client.append("t", 0, ["a"])
        child = os.fork()
        if child == 0:
            refused = 0
            for use in (three[0].partitions, three[0].start, three[1].poll, three[2].client):
                try:
                    use()
                except UsageError:
                    refused += 1
            three[0].stop()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        client.append("t", 0, ["b"])
        assert [record.text() for record in client.read("t")] == ["a", "b"]
        assert all(one.is_ready for one in three)


# --------------------------------------------------------------------------------------------------------- registration


def test_another_directory_with_the_same_id_is_refused(tmp_path: Path, store: str) -> None:
    with broker(1, tmp_path, store) as first:
        first.wait_until_ready(timeout_s=60)
        with (
            broker(1, tmp_path, store, data=tmp_path / "another") as second,
            pytest.raises(UsageError, match="broker id 1 is registered by a live broker"),
        ):
            second.wait_until_ready(timeout_s=60)
        assert first.is_ready


def dead(one: replog.Broker) -> FileStore:
    """As if its process had been killed: its session stays, and nobody here looks after it."""
    sessions = one._sessions
    assert sessions is not None
    store = sessions._store
    assert isinstance(store, FileStore)
    sessions.close = lambda *_: None  # type: ignore[method-assign]
    one.stop(controlled=False)
    store.keep_alive()  # its lease runs from here: a quick broker is ready, and gone, before its first tick
    store._file.upkeep.stop()
    return store


def test_whoever_finds_a_session_that_has_run_out_waits_until_it_may_end_it(tmp_path: Path, store: str) -> None:
    """Nobody else is there to do it: a broker that was refused and gave up would be refused for ever."""
    left = dead(broker(1, tmp_path, store).start().wait_until_ready(timeout_s=60))
    eventually(left._is_silent, 60)
    with broker(1, tmp_path, store, data=tmp_path / "another") as second:
        eventually(lambda: second.trouble.endswith("and is ended unless its owner comes back") or second.is_ready, 60)
        second.wait_until_ready(timeout_s=60)
        assert second.trouble == ""


def test_a_refusal_stands_although_its_reason_dies(tmp_path: Path, store: str) -> None:
    """A person has to say which of the two is meant (P-72)."""
    first = broker(1, tmp_path, store).start().wait_until_ready(timeout_s=60)
    with broker(1, tmp_path, store, data=tmp_path / "another") as second:
        eventually(lambda: second.hopeless, 60)
        dead(first)
        with FileStore(store.removeprefix("file://")) as looking:
            eventually(lambda: looking.list("/brokers/ids") == [], 60)
        ticks = second._loop._tick_ms
        eventually(lambda: second._loop._tick_ms > ticks + 1_000, 60)
        assert not second.is_ready
        assert isinstance(second.hopeless, UsageError)


def test_a_folder_belongs_to_one_broker_of_one_cluster(tmp_path: Path, store: str) -> None:
    """A mistyped number would have its logs put away and deleted, a mistyped store would serve nothing."""
    with broker(1, tmp_path, store) as one, one.wait_until_ready(timeout_s=60).client() as client:
        client.create_topic("t", replication_factor=1, min_isr=1)
        client.append("t", 0, ["a"])
    with pytest.raises(UsageError, match="is the data folder of broker 1; broker 5 needs one of its own"):
        broker(5, tmp_path, store, data=tmp_path / "broker-1").start()
    with (
        broker(1, tmp_path, f"file://{tmp_path / 'another.db'}") as one,
        pytest.raises(UsageError, match=r"belongs to cluster \w+; the metadata store is new"),
    ):
        one.wait_until_ready(timeout_s=60)
    with broker(1, tmp_path, store) as one, one.wait_until_ready(timeout_s=60).client() as client:
        assert [record.text() for record in client.read("t")] == ["a"]


def test_the_same_directory_is_locked(tmp_path: Path, store: str) -> None:
    with broker(1, tmp_path, store), pytest.raises(UsageError, match="in use"):
        broker(1, tmp_path, store).start()


def test_a_restart_takes_over_at_once(tmp_path: Path, store: str) -> None:
    """Without waiting for the session of the last life: whoever holds the directory's lock is the broker."""
    dead(broker(1, tmp_path, store, config={**FAST, "session_ms": 600_000}).start().wait_until_ready(timeout_s=60))
    with broker(1, tmp_path, store, config={**FAST, "session_ms": 600_000}) as again:
        again.wait_until_ready(timeout_s=60)


def test_a_lost_session_is_replaced(three: list[replog.Broker], store: str) -> None:
    """A new incarnation costs an epoch, not its records nor its place in the ISR."""
    with replog.connect(bootstrap(three)) as client:
        client.create_topic("t", replication_factor=3)
        client.append("t", 0, ["a"])
        eventually(lambda: is_in_sync(client, "t", 3), 60)
        before = {b.broker_id: b.broker_epoch for b in client.describe_cluster().brokers}
        epoch = client.describe("t").partitions[0].leader_epoch
        leader = client.leader("t", 0)
        assert leader is not None
        lost = three[leader - 1]
        with FileStore(store.removeprefix("file://")) as other:
            sessions = lost._sessions
            assert sessions is not None
            assert sessions._store is not None
            other.end_session(sessions._store.session_id)

        def is_back() -> bool:
            now = {b.broker_id: b.broker_epoch for b in client.describe_cluster().brokers}
            return now.get(leader, -1) > before[leader] and lost.is_ready and is_in_sync(client, "t", 3)

        eventually(is_back, 60)
        assert client.describe("t").partitions[0].leader_epoch > epoch
        client.append("t", 0, ["b"])
        assert [record.text() for record in client.read("t")] == ["a", "b"]


def test_whoever_does_not_tick_loses_its_session(tmp_path: Path, store: str) -> None:
    """A broker whose loop hangs is dead for the others, although its process lives."""
    hanging = broker(1, tmp_path, store).start().wait_until_ready(timeout_s=60)
    with broker(2, tmp_path, store) as second:
        second.wait_until_ready(timeout_s=60)
        with second.client() as client:
            with hanging._pump.lock:  # its loop waits
                eventually(lambda: [b.broker_id for b in client.describe_cluster().brokers] == [2], 60)
            eventually(lambda: [b.broker_id for b in client.describe_cluster().brokers if not b.fenced] == [1, 2], 60)
    hanging.stop()


def test_an_exception_in_an_actor_is_a_restart(tmp_path: Path, store: str) -> None:
    one = broker(1, tmp_path, store).start().wait_until_ready(timeout_s=60)
    with replog.connect(one.endpoint) as client:
        client.create_topic("t", replication_factor=1, min_isr=1)
        client.append("t", 0, ["a"])
        life = one._life
        assert life is not None
        life.broker.tick = lambda now_ms, wall_ms: 1 // 0  # type: ignore[assignment]
        eventually(lambda: one._life is not life and one.is_ready, 60)
        client.append("t", 0, ["b"])
        assert [record.text() for record in client.read("t")] == ["a", "b"]
    one.stop()


@pytest.mark.parametrize(("shutdown_timeout_ms", "lives"), [(0, 0), (0, 1), (1_000, 1)])
def test_an_exception_in_an_actor_while_it_stops(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch, shutdown_timeout_ms: int, lives: int
) -> None:
    """It is raised once everything is released, whether it comes at the very end, when there is no next life, or before that."""
    threads = threading.active_count()
    one = broker(1, tmp_path, store, config={**FAST, "shutdown_timeout_ms": shutdown_timeout_ms})
    eventually(lambda: one.poll(0.1) or one.is_ready, 60)
    life = one._life
    assert life is not None
    life.broker.tick = lambda now_ms, wall_ms: 1 // 0  # type: ignore[assignment]
    life.leave()
    begun: list[None] = []
    monkeypatch.setattr(one, "_begin", lambda: begun.append(None))
    if not lives:
        monkeypatch.setattr(one._before_stop, "prepare", lambda life, leave_s: None)
    with pytest.raises(ZeroDivisionError):
        one.stop()
    assert len(begun) == lives
    assert threading.active_count() == threads
    one.stop()
    with pytest.raises(UsageError, match="is stopped"):
        one.open()
    broker(1, tmp_path, store).open().stop()  # the folder is free again


def test_a_broker_that_cannot_be_opened_again_says_so(tmp_path: Path, store: str) -> None:
    one = broker(1, tmp_path, store).start().wait_until_ready(timeout_s=60)
    life = one._life
    assert life is not None
    one._data = str(tmp_path / "metadata.db")  # a file where the folder was
    life.broker.tick = lambda now_ms, wall_ms: 1 // 0  # type: ignore[assignment]
    eventually(lambda: one.failure, 60)
    with pytest.raises(replog.ReplogError, match=r"metadata\.db"):
        one.wait_until_ready(timeout_s=30)
    one.stop()


def test_a_store_that_is_not_there_yet(tmp_path: Path) -> None:
    """The broker goes on trying, and says what it waits for."""
    missing = tmp_path / "later"
    with broker(1, tmp_path, f"file://{missing / 'metadata.db'}") as one:
        with pytest.raises((TimedOut, UsageError)):
            one.wait_until_ready(timeout_s=0.5)
        assert one.trouble


# ---------------------------------------------------------------------------------------------------------------- disks


@pytest.mark.parametrize("end", ["dies", "stops"])
def test_a_flush_that_fails_while_the_broker_ends_is_known_to_its_next_life(
    tmp_path: Path, store: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system says it once, and no actor hears of it any more."""
    broken = threading.Event()
    began = threading.Event()

    def fsync(fs: Fs, fd: int) -> None:
        if threading.current_thread().name == "replog broker 1 flush" and not broken.is_set():
            began.set()
            eventually(lambda: one._pump._seats.get(1) is not first._seat)
            broken.set()
            raise OSError(errno.EIO, "Input/output error")
        os.fsync(fd)

    with broker(1, tmp_path, store) as one:
        one.wait_until_ready(timeout_s=60)
        first = one._life
        assert first is not None
        with replog.connect(one.endpoint, config={"delivery_timeout_ms": 1_000}) as client:
            client.create_topic("t", replication_factor=1, flush="ack")
            monkeypatch.setattr(Fs, "fsync", fsync)
            sent = client.producer().send("t", "a")
            assert began.wait(20)
            if end == "dies":
                monkeypatch.setattr(first.broker, "tick", None)
                eventually(lambda: one._life is not None and one._life is not first)
                assert one.failure is None
                assert one._life is not None
                assert len(one._life.directory.loss.lossy) == 1
                assert sent.result(20).offset >= 0
            else:
                one.stop(controlled=False)
                with pytest.raises(replog.errors.ReplogError):
                    sent.result(20)
    assert broken.is_set()
    if end == "stops":
        with broker(1, tmp_path, store) as one:
            assert one._life is not None
            assert len(one._life.directory.loss.lossy) == 1
