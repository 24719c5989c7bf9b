"""A leader that stands still: others are asked who leads now, and what waits goes there; if nothing has changed, it waits on."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from attrs import define
from tests.unit.client.fake import CLIENT, FakeCluster, FakeDriver, make

from replog.client.offsets import OffsetOp
from replog.client.operations import AT_LATEST, AdminOp
from replog.client.unanswered import Unanswered
from replog.client.view import Place, View
from replog.config import ClientConfig
from replog.errors import Code, TopicAlreadyExists, Unavailable, UnknownTopicOrPartition
from replog.messages import (
    Admin,
    ClusterView,
    Fetch,
    ListedOffset,
    ListedOffsets,
    ListOffsets,
    Metadata,
    PartitionView,
    Produce,
    Produced,
    ProducedEntry,
    TopicView,
    Unreached,
)
from replog.model import BrokerInfo, PartitionId
from replog.records import RecordBatch

PATIENCE_MS = 3_000
"""The default."""


@define
class Asked:
    """A request under way."""

    sent_ms: int
    address: int
    moved: bool = False

    def has_moved(self, view: View) -> bool:
        return self.moved


@pytest.mark.parametrize(
    ("requests", "moved", "silent"),
    [
        ([], [], []),
        ([Asked(7_001, 1, True)], [], []),
        ([Asked(7_000, 1)], [], [1]),
        ([Asked(7_000, 1, True)], [0], []),
        ([Asked(1, 1), Asked(2, 1), Asked(3, 2)], [], [1, 2]),
        ([Asked(1, 1, True), Asked(2, 2), Asked(3, 1, True), Asked(7_001, 1, True)], [0, 2], [2]),
    ],
)
def test_what_waits_too_long_goes_elsewhere_or_puts_its_broker_in_doubt(requests: Any, moved: list[int], silent: list[int]) -> None:
    found = Unanswered(ClientConfig()).sort(requests, View(), 10_000)
    assert found == ([requests[n] for n in moved], silent)


@pytest.mark.parametrize(
    ("unanswered_ms", "backoff_ms_max", "jitter", "pauses"),
    [
        (3_000, 1_000, 0.5, [1_000, 2_000, 3_000, 3_000]),
        (3_000, 1_000, 0.0, [800, 1_600, 2_400, 2_400]),
        (3_000, 1_000, 1.0, [1_200, 2_400, 3_600, 3_600]),
        (500, 1_000, 0.5, [500, 500, 500]),
        (600_000, 600_000, 0.5, [600_000, 600_000]),
        (100, 1, 0.0, [1, 1, 3, 6, 12, 25, 51, 80]),
    ],
)
def test_pauses_between_questions_double_up_to_the_patience(
    unanswered_ms: int, backoff_ms_max: int, jitter: float, pauses: list[int]
) -> None:
    watch = Unanswered(ClientConfig(unanswered_ms=unanswered_ms, retry_backoff_ms_max=backoff_ms_max))
    watch.begin(5_000)
    assert watch.look_at == 5_000 + unanswered_ms
    assert [watch.asked(9_000, jitter) - 9_000 for _ in pauses] == pauses
    watch.begin(9_000)
    assert watch.asked(9_000, jitter) - 9_000 == pauses[0]


@pytest.mark.parametrize(
    ("leader", "epoch", "creation", "moved"),
    [
        (1, 5, 0, False),
        (1, 6, 0, False),
        (None, 6, 0, False),
        (2, 6, 0, True),
        (2, 5, 0, False),
        (2, 4, 0, False),
        (1, 5, 7, True),
    ],
)
def test_only_a_newer_leader_or_another_log_is_elsewhere(leader: int | None, epoch: int, creation: int, moved: bool) -> None:
    view, topic_id = View(), b"t" * 16
    sent = Place(PartitionId(topic_id, 0, 0), 1, 5)
    partition = PartitionView(0, creation, leader, epoch, (1, 2), (), (1, 2), epoch)
    topic = TopicView("t", topic_id, make({"t": 1})[0].topics["t"][1], (partition,))
    view.merge(ClusterView(1, 1, -1, 1, [BrokerInfo(1, 1, ("tcp://a:1",))], [topic]))
    assert view.has_moved("t", 0, sent) is moved
    assert view.has_moved("t", 1, sent)
    assert view.has_moved("gone", 0, sent)


# ---------------------------------------------------------------------------------------------------------------- whole clients


class Net:
    """Who was sent what: looked at by the driver's filter, which drops nothing."""

    def __init__(self, driver: FakeDriver) -> None:
        self.sent: list[tuple[int, Any, Any]] = []
        self._driver = driver
        driver.filter = self._see

    def _see(self, to: Any, message: Any) -> bool:
        if to != CLIENT:
            self.sent.append((self._driver.now_ms(), to, message))
        return False

    def of(self, *kinds: type) -> list[tuple[int, Any, Any]]:
        return [item for item in self.sent if isinstance(item[2], kinds)]


def elect(cluster: FakeCluster, driver: FakeDriver, topic: str, leader: int | None, after_ms: int) -> None:
    """Let time pass; then somebody else leads."""
    driver.pass_time(after_ms)
    cluster.move(topic, 0, leader)


def test_an_append_goes_to_the_new_leader_with_the_same_numbers() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["a"])
    producer = client.producer()
    producer.send("t", "b").result()
    net, started = Net(driver), driver.now_ms()
    cluster.paused = {1}
    delivery = producer.send("t", "c")
    elect(cluster, driver, "t", 2, 9_000)
    assert not delivery.done()
    assert delivery.result(60).offset == 2
    assert driver.now_ms() - started < 9_000 + 1.2 * PATIENCE_MS + 100
    first, second = net.of(Produce)
    assert (first[1], second[1]) == (1, 2)
    assert bytes(first[2].entries[0].body) == bytes(second[2].entries[0].body)
    driver.resume()
    driver.pass_time(100_000)
    assert cluster.partition("t").values() == [b"a", b"b", b"c"]
    assert len(net.of(Produce)) == 2
    assert driver.core.moved == 1


@pytest.mark.parametrize("stored", range(6))
@pytest.mark.parametrize("idempotent", [True, False])
def test_everything_under_way_goes_in_order_and_nothing_overtakes(stored: int, idempotent: bool) -> None:
    """Some of it was stored before the leader stood still: the new one says so, and nothing is there twice."""
    cluster, driver, client = make({"t": 1})
    producer = client.producer(batch_bytes=64, idempotent=idempotent)
    producer.send("t", f"{0:040}").result()
    net = Net(driver)
    cluster.paused = {1}
    sent = [producer.send("t", f"{n:040}") for n in range(1, 9)]
    driver.run()
    under_way = [item[3:] for item in driver.held]
    assert len(under_way) == (5 if idempotent else 1)
    for _, message in under_way[: stored if idempotent else 0]:
        cluster._produced(1, message.acks, message.entries[0])
    elect(cluster, driver, "t", 3, 4_000)
    assert [delivery.result(60).offset for delivery in sent] == list(range(1, 9))
    assert driver.now_ms() < 20_000
    assert cluster.partition("t").values() == [b"%040d" % n for n in range(9)]
    at_new_leader = [RecordBatch(entry.body) for _, to, message in net.of(Produce) if to == 3 for entry in message.entries]
    if idempotent:
        assert [batch.base_sequence for batch in at_new_leader] == list(range(1, 9))
        assert {(batch.producer_id, batch.producer_epoch) for batch in at_new_leader} == {(producer._writer.producer_id, 0)}
    assert len(at_new_leader) == 8
    driver.resume()
    driver.pass_time(100_000)
    assert cluster.partition("t").values() == [b"%040d" % n for n in range(9)]
    assert producer._writer.buffered == 0


@pytest.mark.parametrize("code", [Code.NONE, Code.OUT_OF_ORDER_SEQUENCE, Code.INVALID_PRODUCER_EPOCH, Code.NOT_LEADER_OR_FOLLOWER])
def test_a_late_answer_of_the_old_leader_changes_nothing(code: Code) -> None:
    """What it stored while nobody followed it is gone: an offset that it names belongs to another record."""
    cluster, driver, client = make({"t": 1})
    producer = client.producer(acks=1)
    producer.send("t", "a").result()
    cluster.paused = {1}
    delivery = producer.send("t", "b")
    driver.run()
    ((*_, lost),) = driver.held
    elect(cluster, driver, "t", 2, 4_000)
    cluster.paused = {1, 2}  # it was sent to the new leader, and is not answered there yet
    driver.pass_time(3_000)
    assert [item[2] for item in driver.held if isinstance(item[4], Produce)] == [1, 2]
    late = Produced([ProducedEntry(lost.entries[0].request, code, 77 if code == Code.NONE else -1, 0, 1, 99)])
    driver.core.receive(1, late, driver.now_ms())
    assert not delivery.done()
    assert client._core.view.place("t", 0).leader == 2
    driver.resume()
    assert delivery.result(60).offset == 1
    assert cluster.partition("t").values() == [b"a", b"b"]


def test_nothing_has_changed_so_the_append_waits_on() -> None:
    """acks=all may wait for replicas: no second copy is sent, others are asked now and then, and afterwards no more."""
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["a"])
    net, started = Net(driver), driver.now_ms()
    cluster.paused = {1}
    delivery = client.producer().send("t", "b")
    driver.pass_time(25_000)
    assert not delivery.done()
    assert len(net.of(Produce)) == 1
    questions = [(at - started, to) for at, to, message in net.of(Metadata)]
    assert questions[0][0] == PATIENCE_MS
    assert 8 <= len(questions) <= 12
    assert {to for _, to in questions} == {2, 3}
    pauses = [later - at for (at, _), (later, _) in pairwise(questions)]
    assert all(800 <= pause <= 3_600 for pause in pauses)
    assert min(pauses[2:]) >= 2_400
    driver.resume()
    assert delivery.result().offset == 1
    asked = len(net.of(Metadata))
    driver.pass_time(200_000)
    assert len(net.of(Metadata)) == asked
    assert driver.core.deadline_ms() == started + questions[-1][0] + driver.core.config.metadata_max_age_ms, "nothing but age is left"
    assert driver.core.moved == 0


def test_who_has_no_successor_is_waited_for() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["a"])
    net = Net(driver)
    cluster.paused = {1}
    delivery = client.producer().send("t", "b")
    elect(cluster, driver, "t", None, 1_000)
    driver.pass_time(20_000)
    assert len(net.of(Produce)) == 1
    cluster.move("t", 0, 1)  # it leads again, and goes on with what it has
    driver.pass_time(5_000)
    assert len(net.of(Produce)) == 1
    driver.resume()
    assert delivery.result(1).offset == 1


def test_a_request_that_is_young_waits_for_its_answer_though_the_leader_has_changed() -> None:
    """The old leader may be about to answer: what is stored twice without sequences must not be sent twice for haste."""
    cluster, driver, client = make({"t": 2})
    producer = client.producer(idempotent=False)
    producer.send("t", "a", partition=0).result()
    cluster.paused = {1}
    delivery = producer.send("t", "b", partition=0)
    started = driver.now_ms()
    elect(cluster, driver, "t", 2, 1_000)
    client.topics()
    assert client._core.view.place("t", 0).leader == 2
    net = Net(driver)
    driver.pass_time(started + PATIENCE_MS - 1 - driver.now_ms())
    assert not net.of(Produce)
    driver.pass_time(1)
    assert [to for _, to, _ in net.of(Produce)] == [2]
    assert delivery.result(0).offset == 1
    assert not net.of(Metadata), "what is known need not be asked"


@pytest.mark.parametrize("answered", [False, True])
def test_a_new_batch_does_not_overtake_those_at_the_old_leader(answered: bool) -> None:
    """They go in front of it, without waiting until they are in doubt. The first may have been stored, and is not stored again."""
    cluster, driver, client = make({"t": 1})
    client.topics()
    producer = client.producer()
    producer.send("t", "before").result()
    cluster.paused = {1}
    early = [producer.send("t", "a"), producer.send("t", "b")]
    driver.run()
    assert len(driver.held) == 2
    if answered:
        cluster._produced(1, -1, driver.held[0][4].entries[0])
    cluster.move("t", 0, 2)
    client.topics()
    net, before = Net(driver), driver.now_ms()
    late = producer.send("t", "c")
    assert [delivery.result(60).offset for delivery in (*early, late)] == [1, 2, 3]
    assert driver.now_ms() == before
    produces = net.of(Produce)
    assert [to for _, to, _ in produces] == [2, 2]
    assert [[RecordBatch(entry.body).base_sequence for entry in message.entries] for *_, message in produces] == [[1], [2, 3]]
    driver.resume()
    driver.pass_time(100_000)
    assert cluster.partition("t").values() == [b"before", b"a", b"b", b"c"]


def test_news_that_come_by_the_way_move_at_once_what_is_in_doubt() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["a"])
    cluster.paused = {1}
    delivery = client.producer().send("t", "b")
    driver.pass_time(7_500)
    cluster.move("t", 0, 2)
    before = driver.now_ms()
    client.topics()
    assert driver.now_ms() == before
    assert delivery.done()


@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        (lambda client: client.offset("t", 0, "latest"), ListOffsets),
        (lambda client: [r.text() for r in client.fetch("t", 0, 0)], Fetch),
        (lambda client: [r.text() for r in client.fetch("t", 0, 0, wait_s=25)], Fetch),
        (lambda client: client.describe("t").partitions[0].end_offset, ListOffsets),
        (lambda client: [r.text() for r in client.read("t")], Fetch),
    ],
)
def test_readers_go_on_at_the_new_leader(ask: Any, kind: type) -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["a"])
    net, started = Net(driver), driver.now_ms()
    cluster.paused = {1}
    elected: list[int] = []

    def happen() -> None:
        if driver.now_ms() - started >= 6_000 and not elected:
            cluster.move("t", 0, 2)
            elected.append(driver.now_ms())

    driver.events = [happen] * 1_000
    assert ask(client) in (1, ["a"])
    assert driver.now_ms() - elected[0] <= 1.2 * PATIENCE_MS
    assert [to for _, to, _ in net.of(kind)][-1] == 2
    driver.resume()
    driver.pass_time(100_000)
    assert not driver.core._requests


def test_a_late_answer_of_the_old_leader_to_a_reader_is_none() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["a"])
    cluster.paused = {1}
    asked = OffsetOp("t", 0, AT_LATEST, driver.now_ms() + 60_000)
    driver.core.submit(asked, driver.now_ms())
    elect(cluster, driver, "t", 2, 4_000)
    cluster.paused = {1, 2}
    driver.pass_time(3_000)
    lost, again = (item[4] for item in driver.held if isinstance(item[4], ListOffsets))
    late = ListedOffset(lost.entries[0].partition, 0, 77, -1, 0, 77, 0)
    driver.core.receive(1, ListedOffsets(lost.request, [late]), driver.now_ms())
    assert not asked.done
    assert list(driver.core._requests) == [again.request]
    driver.resume()
    driver.run()
    assert asked.result.offset == 1


def test_a_consumer_goes_on_at_the_new_leader_and_reads_nothing_twice() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["a", "b"])
    consumer = client.consumer("t", start="earliest")
    assert [r.text() for r in consumer.poll()] == ["a", "b"]
    cluster.paused = {1}
    assert consumer.poll(timeout_s=4) == []
    cluster.move("t", 0, 3)
    cluster.paused.clear()  # what the old leader was sent, it keeps
    client.append("t", 0, ["c"])
    assert [r.text() for r in consumer.poll(timeout_s=2 * PATIENCE_MS / 1000)] == ["c"]
    driver.resume()
    assert consumer.poll(timeout_s=60) == []


def test_one_question_for_ten_thousand_partitions() -> None:
    cluster, driver, client = make({"t": 10_000})
    client.topics()
    producer = client.producer()
    net = Net(driver)
    cluster.paused = {1}
    sent = [producer.send("t", "x", partition=number) for number in range(0, 9_999, 3)]
    driver.run()
    assert len(driver.held) == len(sent) == 3_333
    driver.pass_time(5_900)
    assert Counter(type(message).__name__ for _, _, message in net.sent) == {"Produce": 3_333, "Metadata": 2}
    for number in range(0, 9_999, 3):
        cluster.partition("t", number).leader = 2
        cluster.partition("t", number).epoch = 1
    cluster.version += 1
    driver.pass_time(1_000)
    assert all(delivery.done() for delivery in sent)
    moved = net.of(Produce)[3_333:]
    assert [(to, len(message.entries)) for _, to, message in moved] == [(2, 3_333)]
    assert len(net.of(Metadata)) == 3


def test_a_wish_goes_to_the_next_controller() -> None:
    cluster, driver, client = make({"t": 1})
    client.topics()
    net, started = Net(driver), driver.now_ms()
    cluster.paused = {1}
    asked = AdminOp("delete_topic", {"name": "t"}, started + 60_000, granted_code=Code.UNKNOWN_TOPIC_OR_PARTITION)
    driver.core.submit(asked, started)
    driver.pass_time(5_000)
    assert not asked.done
    cluster.delete("t")  # as it asked, but it is never told
    cluster.controller_epoch += 1
    driver.pass_time(4_000)
    assert asked.done
    assert asked.error is None
    first, second = net.of(Admin)
    assert (first[1], second[1]) == (1, 2)


@pytest.mark.parametrize(("in_doubt", "sent"), [(False, True), (False, False), (True, False)])
def test_a_wish_that_reached_nobody_was_not_granted_by_who_was_the_controller(in_doubt: bool, sent: bool) -> None:
    """So that what its successor says of it is the answer: somebody else has made that topic."""
    cluster, driver, client = make({"t": 1})
    client.topics()
    cluster.paused = {1}
    started = driver.now_ms()
    asked = AdminOp("create_topic", {"name": "t"}, started + 60_000, granted_code=Code.TOPIC_ALREADY_EXISTS)
    asked.uncertain = in_doubt  # somebody may have granted it before

    def lose(to: Any, message: Any) -> bool:
        if to == 1 and isinstance(message, Admin) and not sent:
            driver.flying.append((driver.now_ms(), 0, CLIENT, None, Unreached(to, message)))
            return True
        return False

    driver.filter = lose
    driver.core.submit(asked, started)
    driver.pass_time(5_000)
    cluster.controller_epoch += 1
    driver.pass_time(4_000)
    assert asked.done
    assert isinstance(asked.error, TopicAlreadyExists) == (not sent and not in_doubt)


def test_a_topic_that_is_gone_has_no_leader_to_wait_for() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["a"])
    cluster.paused = {1}
    delivery = client.producer().send("t", "b")
    driver.pass_time(1_000)
    cluster.delete("t")
    driver.pass_time(5_000)
    failed = delivery.exception(0)
    assert isinstance(failed, Unavailable)  # it was sent: and if the topic is only out of sight, it is stored
    assert "UnknownTopicOrPartition" in str(failed)
    with pytest.raises(UnknownTopicOrPartition):
        client.append("t", 0, ["c"])


def test_who_does_not_answer_a_question_is_not_asked_the_next_one() -> None:
    cluster, driver, client = make({"t": 1})
    client.topics()
    net = Net(driver)
    cluster.paused = {3}
    for _ in range(6):
        client.topics()
    assert [to for _, to, _ in net.of(Metadata)].count(3) == 1
    driver.resume()
    driver.run()
    for _ in range(6):
        client.topics()
    assert [to for _, to, _ in net.of(Metadata)].count(3) == 3
