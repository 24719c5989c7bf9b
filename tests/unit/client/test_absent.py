"""Topics that are not there: those that the brokers make because they are sought, those that they refuse, those that are gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from tests.unit.client.fake import CLIENT, FakeCluster, FakeDriver, make, metadata_asked

from replog.client.absent import Absent, TopicOp
from replog.client.client import Client
from replog.client.view import View
from replog.errors import Code, PolicyViolation, TimedOut, UnknownTopicId, UnknownTopicOrPartition
from replog.messages import Admin, AdminAnswer, ClusterView, Metadata

PENDING = Code.LEADER_NOT_AVAILABLE


class Makers:
    """Brokers that make what is sought once they have been asked `asks` times for it; each knows only what it was asked itself."""

    def __init__(self, cluster: FakeCluster, asks: int = 1, *, code: int = PENDING) -> None:
        self.cluster = cluster
        self.asks = asks
        self.code = code
        self.sought: list[tuple[int, list[str]]] = []
        """(broker, topics), for each Metadata that sought any."""
        cluster.override = self

    def __call__(self, message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Metadata) or not message.sought:
            return None
        self.sought.append((broker, message.sought))
        missing = []
        for name in message.sought:
            times = sum(name in names for asked, names in self.sought if asked == broker)
            if name in self.cluster.topics:
                continue
            if times <= self.asks:
                missing.append((name, PENDING, "it is being made"))
            elif self.code != PENDING:
                missing.append((name, self.code, f"no {name}"))
            else:
                self.cluster.create(name)
        return [evolve(self.cluster.view(message.request), missing=missing)]


SEEKERS: dict[str, Callable[[Client], Any]] = {
    "append": lambda client: client.append("new", 0, ["x"]),
    "producer": lambda client: client.producer().send("new", "x").result(timeout_s=30),
    "producer with keys": lambda client: client.producer().send_many("new", ["x"], keys=["k"]).result(timeout_s=30),
    "partitions_for": lambda client: client.partitions_for("new"),
    "offset": lambda client: client.offset("new", 0, "latest"),
    "fetch": lambda client: client.fetch("new", 0, 0),
    "read": lambda client: list(client.read("new")),
    "consumer": lambda client: client.consumer("new", start=0).position("new", 0),
}
ASKERS: dict[str, Callable[[Client], Any]] = {
    "describe": lambda client: client.describe("new"),
    "leader": lambda client: client.leader("new", 0),
    "remove_partitions": lambda client: client.remove_partitions("new", [0]),
}


@pytest.mark.parametrize("asks", [0, 1, 5])
@pytest.mark.parametrize("how", SEEKERS)
def test_whoever_writes_or_reads_seeks_the_topic_and_waits_for_it(how: str, asks: int) -> None:
    cluster, _, client = make()
    makers = Makers(cluster, asks)
    SEEKERS[how](client)
    assert list(cluster.topics) == ["new"]
    assert {name for _, names in makers.sought for name in names} == {"new"}
    assert len({broker for broker, _ in makers.sought}) == 1  # who has asked the controller is asked again
    assert len(makers.sought) <= 2 * asks + 2


@pytest.mark.parametrize("how", ASKERS)
def test_whoever_asks_about_a_topic_makes_none(how: str) -> None:
    cluster, _, client = make()
    makers = Makers(cluster)
    with pytest.raises(UnknownTopicOrPartition):
        ASKERS[how](client)
    assert makers.sought == []


@pytest.mark.parametrize("how", SEEKERS)
def test_a_refusal_is_the_error_of_whoever_seeks(how: str) -> None:
    cluster, _, client = make()
    Makers(cluster, code=Code.POLICY_VIOLATION)
    with pytest.raises(PolicyViolation, match="no new"):
        SEEKERS[how](client)


@pytest.mark.parametrize("how", SEEKERS)
def test_brokers_that_make_nothing_say_nothing(how: str) -> None:
    _, _, client = make({"other": 1})
    with pytest.raises(UnknownTopicOrPartition, match="'new'; known topics are other"):
        SEEKERS[how](client)


def test_a_topic_that_never_comes_is_waited_for_until_the_deadline() -> None:
    cluster, _, client = make()
    makers = Makers(cluster, asks=10**6)
    with pytest.raises(TimedOut, match="new-0"):
        client.append("new", 0, ["x"], timeout_s=20)
    with pytest.raises(TimedOut, match=r"'new'; the last answer was LeaderNotAvailable"):
        client.partitions_for("new", timeout_s=20)
    assert len(makers.sought) < 200  # with pauses between


def test_a_broker_that_stops_making_ends_the_wait() -> None:
    cluster, driver, client = make()
    Makers(cluster, asks=10**6)
    driver.events = [*[lambda: None] * 10, lambda: setattr(cluster, "override", None)]
    with pytest.raises(UnknownTopicOrPartition):
        client.append("new", 0, ["x"])


def test_the_answer_of_one_seeker_serves_all() -> None:
    cluster, driver, client = make()
    makers = Makers(cluster, asks=3)
    with client.producer(linger_ms=50) as producer:
        deliveries = [producer.send("new", f"{n}") for n in range(10)]
        assert [d.result(timeout_s=30).offset for d in deliveries] == list(range(10))
    assert driver.core.absent._sought == {}
    assert len(makers.sought) <= 8


def test_a_broker_that_goes_away_is_not_asked_again() -> None:
    cluster, _, client = make()
    makers = Makers(cluster, asks=2)

    def last_words(message: Any, broker: int) -> list[Any] | None:
        said = makers(message, broker)
        if makers.sought and not cluster.down:
            cluster.down.add(broker)
        return said

    cluster.override = last_words
    client.partitions_for("new")
    assert len({broker for broker, _ in makers.sought}) == 2


# ------------------------------------------------------------------------------------------------------------ deleted under a writer


def deleted(cluster: FakeCluster, driver: FakeDriver) -> list[Any]:
    """The topic goes while an append is under way: it is delivered afterwards."""
    lost: list[Any] = []

    def drop(to: Any, message: Any) -> bool:
        if to != CLIENT and not lost and type(message).__name__ == "Produce":
            lost.append(message)
            cluster.delete("t")
            return False
        return False

    driver.filter = drop
    return lost


def test_a_topic_that_is_deleted_under_a_writer_is_not_made_again_for_what_was_under_way() -> None:
    cluster, driver, client = make({"t": 1})
    makers = Makers(cluster, asks=0)
    with client.producer() as producer:
        assert producer.send("t", "before").result(timeout_s=30).offset == 0
        makers.sought.clear()
        deleted(cluster, driver)
        with pytest.raises(UnknownTopicOrPartition):
            producer.send("t", "under way").result(timeout_s=30)
        assert "t" not in cluster.topics
        assert makers.sought == []
        assert producer.send("t", "after").result(timeout_s=30).offset == 0  # another topic, because it is sought again
    assert cluster.partition("t").values() == [b"after"]


def test_without_making_a_topic_that_is_deleted_under_a_writer_is_an_error_each_time() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["before"])
    deleted(cluster, driver)
    for _ in range(3):
        with pytest.raises(UnknownTopicOrPartition):
            client.append("t", 0, ["under way"])


def test_a_reader_with_a_position_in_a_topic_that_is_gone_does_not_make_another() -> None:
    cluster, _, client = make({"t": 1})
    makers = Makers(cluster, asks=0)
    client.append("t", 0, ["a"])
    with client.consumer("t", start="earliest") as consumer:
        assert len(consumer.poll(timeout_s=5)) == 1
        makers.sought.clear()
        cluster.delete("t")
        with pytest.raises(UnknownTopicOrPartition):
            consumer.poll(timeout_s=30)
        assert makers.sought == []
        cluster.create("t")
        with pytest.raises(UnknownTopicId):
            consumer.poll(timeout_s=30)


def test_nothing_is_kept_of_topics_that_are_gone() -> None:
    _, driver, client = make({"kept": 1})
    producer = client.producer()
    producer.send("kept", "x").result(timeout_s=30)
    for number in range(50):
        name = f"t{number}"
        client.create_topic(name, partitions=2)
        client.append(name, 0, ["x"])
        producer.send(name, "x", partition=1).result(timeout_s=30)
        client.delete_topic(name)
    client.topics()
    driver.pass_time(100_000)
    core = driver.core
    writers = list(core._writers.values())
    assert sorted(key for writer in writers for key in writer.queues) == [("kept", 0)]
    assert [name for writer in writers for name in writer.routes] == ["kept"]
    assert [*core._stalled, *core._ready, *core._ops, *core._requests] == []
    assert (core.absent._sought, core.absent._told, core.absent._created) == ({}, {}, {})
    producer.close()


def test_a_log_that_comes_back_under_its_name_gets_another_epoch() -> None:
    """A view lacks a topic that is there all the same (its node could not be read): the sequences begin again, in an epoch of their own."""
    cluster, _, client = make({"t": 1})
    client.append("t", 0, ["a"])
    kept = cluster.topics.pop("t")
    cluster.version += 1
    client.topics()
    cluster.topics["t"] = kept
    cluster.version += 1
    assert client.append("t", 0, ["b"]).base_offset == 1
    assert cluster.partition("t").values() == [b"a", b"b"]


def test_a_deletion_ends_although_the_topic_is_made_again_at_once() -> None:
    """By somebody else, before this client, which does not know the topic, has looked: the answer says which one it was."""
    cluster, _, client = make({"t": 1})
    old = cluster.topics["t"][0]

    def delete_and_make(message: Any, _broker: int) -> list[Any] | None:
        if not isinstance(message, Admin):
            return None
        cluster.delete("t")
        cluster.create("t")
        return [AdminAnswer(message.request, 0, result={"topic_id": old.hex()})]

    cluster.override = delete_and_make
    client.delete_topic("t", timeout_s=5)
    assert cluster.topics["t"][0] != old


def test_a_queue_whose_appends_were_refused_with_its_topic_is_forgotten() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["before"])
    deleted(cluster, driver)
    with pytest.raises(UnknownTopicOrPartition):
        client.append("t", 0, ["under way"])
    client.topics()
    core = driver.core
    assert ([*core._stalled], [*core._ready]) == ([], [])
    assert [key for writer in core._writers.values() for key in writer.queues] == []


def test_topics_that_others_delete_are_not_remembered_as_created() -> None:
    cluster, driver, client = make()
    for number in range(20):
        client.create_topic(f"t{number}")
        cluster.delete(f"t{number}")
    driver.pass_time(100_000)
    client.create_topic("last")
    assert list(driver.core.absent._created) == ["last"]


def test_one_question_names_so_many_topics_at_most_and_those_first_that_wait_longest() -> None:
    absent = Absent()
    names = [f"t{number:04d}" for number in range(2_500)]
    ops = [TopicOp(name, 0) for name in names]
    for op in ops:
        absent.seek(op, 1)
    view = View()
    asked: list[str] = []
    for request in (1, 2, 3):
        asked += (question := absent.sought(request, ops))
        assert len(question) <= 1_000
        assert absent.why(view, names[-1], 0, 0, 1) is None or len(asked) == len(names)
        absent.told(1, ClusterView(1, 1, -1, 1, [], [], request=request))
    assert asked == names
    assert absent.sought(4, ops) == []


@pytest.mark.parametrize("topics", [900, 1_500, 2_500])
def test_however_many_are_sought_at_once_all_are_made(topics: int) -> None:
    cluster, driver, _ = make()
    Makers(cluster, asks=0)
    ops = [TopicOp(f"t{number:04d}", driver.now_ms() + 60_000) for number in range(topics)]
    for op in ops:
        driver.core.submit(op, driver.now_ms())
    driver.run()
    for _ in range(200):
        driver.pass_time(100)
    assert all(op.done for op in ops)
    assert [op.error for op in ops if op.error is not None] == []


def test_who_seeks_again_holds_up_nobody_who_has_an_answer() -> None:
    """Each waits for a question that was asked after it began, and no longer."""
    absent, view, ops = Absent(), View(), [TopicOp("x", 0), TopicOp("x", 0)]
    absent.seek(ops[0], 1)
    assert absent.sought(1, ops) == ["x"]
    absent.seek(ops[1], 2)
    absent.told(1, ClusterView(1, 1, -1, 1, [], [], request=1))
    assert isinstance(absent.why(view, "x", 0, 0, 1), UnknownTopicOrPartition)
    assert absent.why(view, "x", 0, 0, 2) is None
    assert absent.sought(2, ops) == ["x"]
    absent.told(1, ClusterView(1, 1, -1, 1, [], [], request=2))
    assert isinstance(absent.why(view, "x", 0, 0, 2), UnknownTopicOrPartition)
    assert absent.sought(3, ops) == []


def test_a_topic_that_may_be_there_and_cannot_be_read_is_waited_for() -> None:
    absent, view, op = Absent(), View(), TopicOp("x", 0)
    view.hidden = frozenset({"x"})
    absent.seek(op, 1)
    absent.sought(1, [op])
    absent.told(1, ClusterView(1, 1, -1, 1, [], [], request=1, missing=[("x", Code.POLICY_VIOLATION, "no")]))
    assert absent.why(view, "x", 0, 0, 1) is None
    view.hidden = frozenset({"y"})
    assert isinstance(absent.why(view, "x", 0, 0, 1), PolicyViolation)


# --------------------------------------------------------------------------------------------------------------------------- given up


class Silence:
    """No broker answers, until `end`; what was asked meanwhile is lost."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.asked: list[list[str]] = []
        """What each question sought."""
        driver.filter = self

    def __call__(self, to: Any, message: Any) -> bool:
        if isinstance(message, Metadata):
            self.asked.append(message.sought)
        return True

    def end(self) -> None:
        self.driver.filter = None


@pytest.mark.parametrize("how", SEEKERS)
def test_whoever_gives_up_while_no_broker_answers_leaves_nothing_behind(how: str) -> None:
    cluster, driver, client = make(request_timeout_ms=2_000, delivery_timeout_ms=5_000)
    makers = Makers(cluster, asks=0)
    silence = Silence(driver)
    with pytest.raises(TimedOut):
        SEEKERS[how](client)
    assert ["new"] in silence.asked
    driver.pass_time(10_000)
    assert silence.asked[-1] == []
    silence.end()
    assert client.topics() == []
    assert makers.sought == []
    assert driver.core.absent._sought == {}


def test_who_is_still_waiting_is_not_given_up_with_another_one_for_the_same_topic() -> None:
    cluster, driver, client = make()
    makers = Makers(cluster, asks=0)
    silence = Silence(driver)
    op = TopicOp("new", driver.now_ms() + 60_000)
    driver.core.submit(op, driver.now_ms())
    with pytest.raises(TimedOut):
        client.append("new", 0, ["given up"], timeout_s=1)
    with pytest.raises(TimedOut):
        client.append("other", 0, ["given up"], timeout_s=1)
    driver.pass_time(5_000)
    silence.end()
    driver.pass_time(5_000)
    assert op.error is None
    assert op.done
    assert {name for _, names in makers.sought for name in names} == {"new"}


def test_an_operation_that_is_forgotten_is_not_sought_for() -> None:
    """As by a consumer that goes on elsewhere, or is closed."""
    _, driver, _ = make()
    silence = Silence(driver)
    op = TopicOp("new", driver.now_ms() + 60_000)
    driver.core.submit(op, driver.now_ms())
    driver.run()
    driver.core.forget(op)
    driver.pass_time(5_000)
    assert (silence.asked[0], silence.asked[-1]) == (["new"], [])


@pytest.mark.parametrize("pause_ms", [0, 5_000])
def test_a_queue_that_is_used_again_after_it_was_given_up_seeks_its_topic_again(pause_ms: int) -> None:
    cluster, driver, client = make()
    Makers(cluster, asks=1)
    silence = Silence(driver)
    with pytest.raises(TimedOut):
        client.append("new", 0, ["given up"], timeout_s=5)
    driver.pass_time(pause_ms)
    driver.events = [*[lambda: None] * 3, silence.end]
    assert client.append("new", 0, ["again"]).base_offset == 0
    assert cluster.partition("new").values() == [b"again"]


def test_what_was_sought_longest_among_those_that_are_still_sought_is_asked_for_first() -> None:
    absent = Absent()
    gone, left = [TopicOp(f"a{n:04d}", 0) for n in range(1_500)], [TopicOp(f"b{n:04d}", 0) for n in range(1_000)]
    for op in (*gone, *left):
        absent.seek(op, 1)
    assert absent.sought(1, left) == [op.topic for op in left]
    assert len(absent._sought) == 1_000


def test_who_makes_a_topic_that_nobody_waits_for_any_more_is_not_asked_everything_else() -> None:
    cluster, driver, client = make()
    Makers(cluster, asks=10**6)
    asked = metadata_asked(driver)
    with pytest.raises(TimedOut):
        client.partitions_for("new", timeout_s=5)
    assert len(set(asked)) == 1
    asked.clear()
    for _ in range(6):
        client.topics()
    assert set(asked) == {1, 2, 3}


def test_a_topic_that_rules_begin_to_show_is_found_and_one_that_they_hide_for_a_moment_comes_back() -> None:
    """The version of the cluster stays as it is; the door answers such a client in full each time."""
    cluster, _, client = make({"t": 1, "u": 1})
    hidden = {"t"}

    def door(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Metadata):
            return None
        view = cluster.view(message.request)
        return [evolve(view, topics=[topic for topic in view.topics if topic.topic not in hidden])]

    cluster.override = door
    producer = client.producer()
    with pytest.raises(UnknownTopicOrPartition, match="unknown topic 't'; known topics are u"):
        client.append("t", 0, ["a"])
    hidden.clear()
    assert client.append("t", 0, ["a"]).base_offset == 0
    assert producer.send("t", "b").result(5).offset == 1
    hidden.add("t")
    assert client.topics() == ["u"]
    with pytest.raises(UnknownTopicOrPartition):
        producer.send("t", "c")
    hidden.clear()
    assert client.topics() == ["t", "u"]
    assert producer.send("t", "c").result(5).offset == 2
    assert client.append("t", 0, ["d"]).base_offset == 3
