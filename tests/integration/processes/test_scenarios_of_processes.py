"""Scenarios of PROTOCOL.md in which processes are killed, stand still, come back, or are declared dead while they live.

What is not about processes is elsewhere, each as a test of the actors, a script of tests/scenarios, and under the simulator:
a power cut that takes the page cache along (P-44: SIGKILL keeps it; here only the new life is looked at), the very moment
between a controller's check and its write (P-61: here controllers stand still at random, and what they left is looked at),
an outcome that a broker does not hear (P-72, the same incarnation: its epoch stays).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.processes.config import CONFIG
from tests.integration.processes.lives import ALL, PATIENT_MS, Life, others
from tests.integration.processes.onlooker import stand_still
from tests.integration.processes.strangers import Stranger, fetch, produce, values_of
from tests.integration.zookeeper_server import ZooKeeperServer

import replog
from replog import messages as m
from replog.errors import Code, ReplogError, TopicAlreadyExists, Unavailable
from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes

@pytest.fixture(scope="module")
def _hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    life = Life(tmp_path_factory.mktemp("hasty"), {**CONFIG, "fetch_timeout_ms": 1_500})
    yield life
    life.close()


@pytest.fixture
def hasty(_hasty: Life) -> Life:
    """Sessions of 1.5 s: whoever stands still for longer is dead for the others."""
    _hasty.heal()
    return _hasty


@pytest.fixture(scope="module")
def _patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    life = Life(tmp_path_factory.mktemp("patient"), {**CONFIG, "session_ms": PATIENT_MS, "reconcile_ms": PATIENT_MS})
    yield life
    life.close()


@pytest.fixture
def patient(_patient: Life) -> Life:
    """Sessions and scans of ten minutes: nothing happens because time has passed."""
    _patient.heal()
    return _patient


# ---------------------------------------------------------------------------------------------------- P-20, P-64, P-60


@pytest.mark.parametrize("is_controller", [False, True], ids=["P-20", "P-64"])
def test_a_leader_that_stood_still_for_longer_than_its_session(hasty: Life, is_controller: bool) -> None:
    """It wakes up with appends and reads that came meanwhile, and timers that are all overdue."""
    controller = hasty.store.controller().broker_id
    first = controller if is_controller else others(controller)[0]
    topic = hasty.topic(first, *others(first))
    before, zombie, partition = hasty.store.state(topic), hasty.processes[first], hasty.identity(topic)
    with Stranger(zombie.endpoint).hello() as late:
        stand_still(zombie, hasty.store)
        late.send(produce(1, partition, "late", "later", acks=-1))
        late.send(produce(2, partition, "told", acks=1))
        late.send(fetch(3, partition))
        eventually(lambda: hasty.store.state(topic).leader not in (None, first))
        hasty.append_without(first, topic, "m1")
        zombie.resume()
        answers = {}
        while len(answers) < 3:
            answer = late.read()
            for one in answer.entries if type(answer) is m.Produced else [answer]:
                answers[one.request] = one
    assert answers[1].error in (Code.NOT_LEADER_OR_FOLLOWER, Code.REQUEST_TIMED_OUT, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert answers[3].entries[0].error or values_of(answers[3]) in (["m0"], ["m0", "m1"])
    hasty.in_sync(topic)
    after = hasty.store.state(topic)
    assert after.leader_epoch == before.leader_epoch + 1, "one election, and none when it came back"
    assert after.partition_epoch <= before.partition_epoch + 3, "out, another leads, in"
    hasty.client.append(topic, 0, ["m2"])
    hasty.all_hold(topic, "m0", "m1", "m2")


def test_p60_a_controller_that_stood_still(hasty: Life) -> None:
    """Another has been elected meanwhile. It hears so, and its wishes and commands count for nothing."""
    seat = hasty.store.controller()
    x, y = seat.broker_id, others(seat.broker_id)[0]
    topic = hasty.topic(x, *others(x))
    before, partition = hasty.store.state(topic), hasty.identity(topic)
    with Stranger(hasty.processes[x].endpoint).hello() as late:
        stand_still(hasty.processes[x], hasty.store)
        arguments = {"name": "late", "partitions": 2, "replication_factor": 3, "assignment": None, "config": {"min_isr": 2}}
        late.send(m.Admin(1, "create_topic", arguments))
        eventually(lambda: hasty.store.state(topic).leader not in (None, x))
        later = hasty.store.controller()
        hasty.processes[x].resume()
        answer = late.read_until(lambda message: type(message) is m.AdminAnswer)
    assert later.controller_epoch == seat.controller_epoch + 1
    eventually(lambda: hasty.store.broker_epoch(x) >= 0)
    if not answer.error:  # it has passed the wish on to whom it concerns
        assert [hasty.store.state("late", n).controller_epoch for n in (0, 1)] == [later.controller_epoch] * 2
    with replog.connect(hasty.processes[x].endpoint) as client:
        eventually(lambda: client.describe_cluster().controller_epoch == later.controller_epoch)
    hasty.in_sync(topic)
    assert hasty.store.state(topic).leader_epoch == before.leader_epoch + 1
    assert hasty.store.controller() == later
    # What it may have sent before it knew: a broker that obeys its successor refuses it.
    cluster = hasty.processes[y].cluster_id
    with Stranger(hasty.processes[y].endpoint).hello(role="broker", broker_id=99, cluster_id=cluster, lane=0) as zombie:
        life = hasty.store.broker_epoch(y)
        stop = m.StopEntry(partition, before.leader_epoch, True)
        zombie.command(m.StopReplica(99, seat.controller_epoch, life, 1_000_000, [stop], as_of=1_000_000))
        refused = zombie.read_until(lambda message: type(message) is m.StopReplicaAnswer)
        assert (refused.error, refused.controller_epoch) == (Code.STALE_CONTROLLER_EPOCH, later.controller_epoch)
        zombie.command(m.LeaderAndIsr(99, seat.controller_epoch, life, 1_000_001, True, 1_000, [], as_of=1_000_001))
        refused = zombie.read_until(lambda message: type(message) is m.LeaderAndIsrAnswer)
        assert (refused.error, refused.controller_epoch) == (Code.STALE_CONTROLLER_EPOCH, later.controller_epoch)
    hasty.all_hold(topic, "m0")


# ---------------------------------------------------------------------------------------------------------------- P-61


def test_p61_controllers_stand_still_while_wishes_are_made(hasty: Life) -> None:
    """Whatever they had begun: a topic is there with all its partitions, written under one controller, or not at all."""
    told: dict[str, str] = {}
    done = threading.Event()

    def wish(client: replog.Client) -> None:
        for number in range(100_000):
            if done.is_set():
                return
            name = f"wish-{number}"
            try:
                client.create_topic(name, partitions=4, replication_factor=3, timeout_s=20)
                told[name] = "made"
            except TopicAlreadyExists:
                told[name] = "made"  # its first attempt, of which nobody has told
            except ReplogError as problem:
                told[name] = type(problem).__name__

    def more_made() -> None:
        enough = list(told.values()).count("made") + 3
        eventually(lambda: list(told.values()).count("made") >= enough)

    with replog.connect([one.endpoint for one in hasty.processes.values()]) as client:
        thread = threading.Thread(target=wish, args=(client,), daemon=True)
        thread.start()
        try:
            for _ in range(2):
                more_made()
                seat = hasty.store.controller()
                stand_still(hasty.processes[seat.broker_id], hasty.store)
                eventually(lambda: (now := hasty.store.seat()) is not None and now.controller_epoch > seat.controller_epoch)  # noqa: B023
                hasty.processes[seat.broker_id].resume()
            more_made()
        finally:
            done.set()
            thread.join(60)
    assert not thread.is_alive()
    there = set(hasty.store.topics())
    assert {name for name, outcome in told.items() if outcome == "made"} <= there
    for name in there & set(told):
        states = [hasty.store.state(name, partition) for partition in range(4)]  # all four are there
        assert all(state.controller_epoch <= hasty.store.controller().controller_epoch for state in states)


# ---------------------------------------------------------------------------------------------------------- P-44, P-67


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_p44_a_leader_bounces_within_its_session(patient: Life, how: signal.Signals) -> None:
    """Its next life has another broker epoch, and does not take itself for the leader that the last one was."""
    first = others(patient.store.controller().broker_id)[0]
    topic = patient.topic(first, *others(first))
    before, epoch = patient.store.state(topic), patient.store.broker_epoch(first)
    assert epoch >= 0
    if how == signal.SIGTERM:
        assert patient.processes[first].stop() == 0
    patient.again(first)  # which kills it, if it lives
    assert patient.store.broker_epoch(first) > epoch
    patient.in_sync(topic)
    after = patient.store.state(topic)
    assert after.leader_epoch == before.leader_epoch + 1
    patient.client.append(topic, 0, ["m1"])
    patient.all_hold(topic, "m0", "m1")


def test_p67_a_command_for_an_earlier_life(patient: Life) -> None:
    """One that waited in its socket when it was killed, and one that arrives when it has come back."""
    seat = patient.store.controller()
    victim = others(seat.broker_id)[0]
    topic, gone = patient.topic(victim, *others(victim)), patient.topic(victim, *others(victim))
    partition, epoch = patient.identity(topic), patient.store.broker_epoch(victim)
    stand_still(patient.processes[victim], patient.store, meanwhile=lambda: patient.client.delete_topic(gone))
    patient.again(victim)
    life = patient.store.broker_epoch(victim)
    assert life > epoch
    one = patient.processes[victim]
    with Stranger(one.endpoint).hello(role="broker", broker_id=99, cluster_id=one.cluster_id, lane=0) as controller:
        entry = m.StopEntry(partition, patient.store.state(topic).leader_epoch, True)
        controller.command(m.StopReplica(99, seat.controller_epoch, epoch, 1_000_000, [entry], as_of=1_000_000))
        answer = controller.read_until(lambda message: type(message) is m.StopReplicaAnswer)
        assert (answer.error, answer.broker_epoch) == (Code.STALE_BROKER_EPOCH, life)
    patient.in_sync(topic)
    patient.client.append(topic, 0, ["m1"])
    patient.all_hold(topic, "m0", "m1")
    assert gone not in patient.client.topics()


# ---------------------------------------------------------------------------------------------------------------- P-71


def test_p71_more_happens_than_the_store_remembers(patient: Life) -> None:
    """While the controller stands still a broker goes, and then more changes than are kept for those who missed them."""
    seat = patient.store.controller()
    victim = others(seat.broker_id)[0]
    topic = patient.topic(victim, *others(victim))
    before = patient.store.state(topic)

    def meanwhile() -> None:
        patient.store.end_session_of(victim)
        patient.processes[victim].kill()
        patient.store.change(10_100)

    stand_still(patient.processes[seat.broker_id], patient.store, meanwhile=meanwhile)
    assert patient.store.state(topic) == before
    patient.processes[seat.broker_id].resume()
    eventually(lambda: patient.store.state(topic).leader not in (None, victim))
    assert patient.store.controller() == seat
    patient.again(victim)
    patient.in_sync(topic)
    assert patient.store.state(topic).leader_epoch == before.leader_epoch + 1


@pytest.mark.zookeeper
def test_p71_a_server_is_gone_when_the_news_would_come(tmp_path: Path) -> None:
    """Watches end with the server that held them. Nobody scans for as long as this test takes."""
    server = ZooKeeperServer(tmp_path / "zookeeper").start()
    processes: list[replog.BrokerProcess] = []
    try:
        for n in ALL:
            processes.append(
                replog.BrokerProcess(
                    n,
                    data=tmp_path / f"broker-{n}",
                    store=f"zookeeper://{server.address}/p71",
                    config={**CONFIG, "session_ms": 2_000, "reconcile_ms": PATIENT_MS},
                ).start()
            )
        with replog.connect([one.endpoint for one in processes]) as client:
            controller = client.describe_cluster().controller_id
            victim = others(controller)[0]
            client.create_topic("t", assignment={0: [victim, *others(victim)]}, min_isr=2)
            client.append("t", 0, ["m0"])
            server.kill()
            processes[victim - 1].kill()
            server.start()
            eventually(lambda: client.describe("t").partitions[0].leader not in (None, victim))
            client.append("t", 0, ["m1"])
            processes[victim - 1].start()
            eventually(lambda: len(client.describe("t").partitions[0].isr) == 3)
            assert [record.text() for record in client.read("t")] == ["m0", "m1"]
    finally:
        for one in processes:
            one.kill()
        server.kill()


# ---------------------------------------------------------------------------------------------------------------- P-72


def test_p72_another_process_with_the_same_id(hasty: Life) -> None:
    """Another directory is refused while the first lives, and the first when the other was let in meanwhile."""
    first = others(hasty.store.controller().broker_id)[0]
    topic = hasty.topic(others(first)[0], *others(others(first)[0]))
    epoch = hasty.store.broker_epoch(first)
    with pytest.raises(Unavailable, match=f"broker id {first} is registered by a live broker"):
        hasty.process(first, data="another").start()
    with pytest.raises(Unavailable, match="in use"):
        hasty.process(first).start()
    assert hasty.processes[first].is_running
    assert hasty.store.broker_epoch(first) == epoch
    hasty.client.append(topic, 0, ["m1"])

    stand_still(hasty.processes[first], hasty.store)
    eventually(lambda: hasty.store.broker_epoch(first) < 0)
    other = hasty.process(first, data="another").start()
    try:
        hasty.in_sync(topic)  # with copies it has fetched
        epoch = hasty.store.broker_epoch(first)
        hasty.processes[first].resume()
        eventually(lambda: any("is registered by a live broker" in line for line in hasty.processes[first].last_lines))
        hasty.client.append(topic, 0, ["m2"])
        hasty.in_sync(topic)
        assert hasty.store.broker_epoch(first) == epoch
        with Stranger(other.endpoint).hello() as reader:

            def shows_all() -> bool:
                reader.send(fetch(1, hasty.identity(topic)))
                return values_of(reader.read()) == ["m0", "m1", "m2"]

            eventually(shows_all)
    finally:
        other.kill()
    eventually(lambda: hasty.store.broker_epoch(first) < 0)
    hasty.again(first)
    hasty.all_hold(topic, "m0", "m1", "m2")


# ---------------------------------------------------------------------------------------------------------------- P-73


@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
def test_p73_a_session_that_ends_again_and_again(hasty: Life, leads: bool) -> None:
    """The broker lives through it. Each time it leaves the ISR once and returns once; epochs are spent on its leadership alone."""
    flapping = others(hasty.store.controller().broker_id)[0]
    first = flapping if leads else others(flapping)[0]
    topic = hasty.topic(first, *others(first))
    before = hasty.store.state(topic)
    for flap in range(1, 6):
        epoch = hasty.store.broker_epoch(flapping)
        hasty.store.end_session_of(flapping)
        eventually(lambda: hasty.store.broker_epoch(flapping) > epoch)  # noqa: B023
        hasty.in_sync(topic)
        eventually(lambda: hasty.store.state(topic).partition_epoch >= before.partition_epoch + 2 * flap)  # noqa: B023
        hasty.in_sync(topic)
        hasty.client.append(topic, 0, [f"m{flap}"])
    after = hasty.store.state(topic)
    assert after.partition_epoch - before.partition_epoch == 2 * 5
    assert after.leader_epoch - before.leader_epoch == (1 if leads else 0)
    hasty.all_hold(topic, *(f"m{n}" for n in range(6)))
    assert hasty.store.state(topic) == after
    assert hasty.processes[flapping].is_running
