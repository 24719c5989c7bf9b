"""What is asked of the controller: what a request says so that asking again is harmless, and what an answer means then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from tests.unit.client.fake import FakeCluster, make

from replog.client import client as client_module
from replog.client.client import Client
from replog.client.results import ControllerDescription, FeatureLevels
from replog.codec import decode, encode
from replog.config import SCATTERED_KEYS_MAX
from replog.errors import (
    Code,
    ElectionNotNeeded,
    FeatureUpdateFailed,
    InvalidPartitions,
    InvalidReplicaAssignment,
    MessageTooLarge,
    PolicyViolation,
    TopicAlreadyExists,
    Unavailable,
    UnknownTopicOrPartition,
    UsageError,
)
from replog.messages import Admin, AdminAnswer

LOST = AdminAnswer(0, Code.REQUEST_TIMED_OUT, "the controller has resigned, and this may have been done")


def answers(cluster: FakeCluster, *given: AdminAnswer) -> list[Admin]:
    """What requests are answered, in order; the requests. Those that only ask what has a name are answered as usual."""
    asked: list[Admin] = []
    left = list(given)

    def answer(message: Any, _broker: int) -> list[Any] | None:
        if not isinstance(message, Admin) or message.verb == "find_topic":
            return None
        asked.append(message)
        said = left.pop(0)
        return [AdminAnswer(message.request, said.error, said.message, said.result)]

    cluster.override = answer
    return asked


@pytest.mark.parametrize("repeated", [False, True])
def test_an_election_whose_answer_was_lost_counts_as_done_when_it_is_not_needed_any_more(repeated: bool) -> None:
    cluster, _, client = make()
    client.topics()
    said = [["t", 0, Code.ELECTION_NOT_NEEDED, "broker 1 leads"], ["t", 1, Code.PREFERRED_LEADER_NOT_AVAILABLE, "not in sync"]]
    asked = answers(cluster, *[LOST] * repeated, AdminAnswer(0, 0, result={"partitions": said}))
    found = client.elect_leaders([("t", 0), ("t", 1)])
    assert len(asked) == 1 + repeated
    assert type(found["t", 0]) is (type(None) if repeated else ElectionNotNeeded)
    assert getattr(found["t", 1], "code", None) == Code.PREFERRED_LEADER_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"to": 1}, "have to be named"),
        ({"partitions": [("t", 0)], "to": 1, "unclean": True}, "whoever is live"),
        ({"partitions": [("t", 0)], "to": "1"}, "to is an int, not '1'"),
        ({"partitions": [("t", 0)], "to": -1}, "to is -1"),
    ],
)
def test_an_election_by_name_that_makes_no_sense_is_not_asked_for(arguments: dict[str, Any], text: str) -> None:
    cluster, _, client = make()
    asked = answers(cluster)
    with pytest.raises(UsageError, match=text):
        client.elect_leaders(**arguments)
    assert asked == []


def test_what_a_cluster_supports_comes_as_numbers() -> None:
    cluster, _, client = make()
    result = {"cluster_id": "c", "level": 1, "brokers": {1: [1, 2], 2: [1, 1]}}
    answers(cluster, AdminAnswer(0, 0, result=result))
    assert client.describe_features() == FeatureLevels("c", 1, {1: (1, 2), 2: (1, 1)})


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ({}, None),
        ({"controller": {"broker": 2, "epoch": 7}}, ControllerDescription(2, 7, None, None, None)),
        (
            {"controller": {"broker": 2, "epoch": 7, "since_ms": None, "queued_events": 0, "due_partitions": 4}},
            ControllerDescription(2, 7, None, 0, 4),
        ),
        (
            {"controller": {"broker": 2, "epoch": 7, "since_ms": 5, "queued_events": 1, "due_partitions": 0, "mood": "calm"}, "more": 1},
            ControllerDescription(2, 7, 5, 1, 0),
        ),
    ],
    ids=["older", "says less", "no clock", "newer"],
)
def test_what_a_controller_does_not_say_of_itself_is_not_known(said: dict[str, Any], known: ControllerDescription | None) -> None:
    """An older broker says nothing, a newer one may say more."""
    cluster, _, client = make()
    levels = {"cluster_id": "c", "level": 1, "brokers": {1: [1, 2]}}
    answers(cluster, AdminAnswer(0, 0, result={**levels, **said}))
    found = client.describe_features()
    assert (found.cluster_id, found.brokers, found.controller) == ("c", {1: (1, 2)}, known)
    assert found.to_dict()["controller"] == (None if known is None else attrs.asdict(known))


def test_a_level_is_asked_for_and_checked_first() -> None:
    cluster, _, client = make()
    asked = answers(cluster, LOST, AdminAnswer(0, 0, result={"level": 2}), AdminAnswer(0, Code.FEATURE_UPDATE_FAILED, "broker 1 (level 1)"))
    client.raise_feature_level(2)
    assert [one.arguments for one in asked] == [{"level": 2}] * 2
    with pytest.raises(FeatureUpdateFailed, match="broker 1"):
        client.raise_feature_level(3)
    with pytest.raises(UsageError, match="level is 0"):
        client.raise_feature_level(0)


CHANGES: dict[str, Callable[[Client], Any]] = {
    "create_topic": lambda client: client.create_topic("u"),
    "delete_topic": lambda client: client.delete_topic("t"),
    "add_partitions": lambda client: client.add_partitions("t", 4),
    "remove_partitions": lambda client: client.remove_partitions("t", [1]),
    "alter_topic": lambda client: client.alter_topic("t", min_isr=1),
    "elect": lambda client: client.elect_leaders([("t", 0)]),
    "reassign": lambda client: client.reassign({("t", 0): [1, 2]}),
    "drain": lambda client: client.drain_broker(1),
    "raise_feature_level": lambda client: client.raise_feature_level(2),
}
QUESTIONS: dict[str, Callable[[Client], Any]] = {
    "explain": lambda client: client.explain("t", 0),
    "list_reassignments": lambda client: client.reassignments(),
    "describe_features": lambda client: client.describe_features(),
    "create_topic": lambda client: client.create_topic("u", validate_only=True),
}
REFUSED = AdminAnswer(0, Code.POLICY_VIOLATION, "not any more")


@pytest.mark.parametrize("verb", CHANGES)
def test_a_change_whose_repetition_is_refused_may_have_been_made(verb: str) -> None:
    cluster, _, client = make({"t": 2})
    asked = answers(cluster, LOST, REFUSED)
    text = f"^the request '{verb}': PolicyViolation was the answer to a repetition .not any more.; .*carried out before is unknown$"
    with pytest.raises(Unavailable, match=text) as caught:
        CHANGES[verb](client)
    assert isinstance(caught.value.__cause__, PolicyViolation)
    assert [one.verb for one in asked] == [verb] * 2


@pytest.mark.parametrize("verb", CHANGES)
def test_a_change_that_is_refused_at_once_was_not_made(verb: str) -> None:
    cluster, _, client = make({"t": 2})
    nobody = AdminAnswer(0, Code.NOT_CONTROLLER)
    asked = answers(cluster, nobody, REFUSED)
    with pytest.raises(PolicyViolation, match="not any more"):
        CHANGES[verb](client)
    assert len(asked) == 2


@pytest.mark.parametrize("verb", QUESTIONS)
def test_a_question_that_is_refused_when_it_is_asked_again_is_refused(verb: str) -> None:
    cluster, _, client = make({"t": 2})
    answers(cluster, LOST, REFUSED)
    with pytest.raises(PolicyViolation):
        QUESTIONS[verb](client)


@pytest.mark.parametrize("repeated", [False, True])
def test_wishes_that_are_refused_when_they_are_repeated_may_have_been_granted(repeated: bool) -> None:
    cluster, _, client = make({"t": 2})
    errors = [["t", 0, Code.INVALID_REPLICA_ASSIGNMENT, "broker 9 is not registered"]]
    answers(cluster, *[LOST] * repeated, AdminAnswer(0, 0, result={"errors": errors}))
    with pytest.raises(Unavailable if repeated else InvalidReplicaAssignment, match="1 of 2 refused: broker 9 is not registered"):
        client.reassign({("t", 0): [1, 9], ("t", 1): [1, 2]})


def test_a_topic_that_may_exist_is_fine_also_when_it_has_to_be_asked_for_twice() -> None:
    cluster, _, client = make({"t": 1})
    client.topics()
    exists = AdminAnswer(0, Code.TOPIC_ALREADY_EXISTS, "topic 't' exists")
    answers(cluster, LOST, exists, exists)
    assert client.create_topic("t", exist_ok=True) == cluster.topics["t"][0].hex()
    with pytest.raises(TopicAlreadyExists):
        client.create_topic("t")


EXISTS = AdminAnswer(0, Code.TOPIC_ALREADY_EXISTS, "topic 't' exists")


@pytest.mark.parametrize("wish", [{}, {"partitions": 2, "replication_factor": 2}, {"partitions": 2, "min_isr": 1}])
def test_a_topic_made_otherwise_is_not_the_one_that_was_asked_for_twice(wish: dict[str, int]) -> None:
    """A client that is new does not know that it was there, and perhaps nobody was reached by its first request."""
    cluster, _, client = make({"t": 2})
    answers(cluster, LOST, EXISTS)
    with pytest.raises(TopicAlreadyExists, match="made otherwise"):
        client.create_topic("t", **wish)


def test_a_topic_made_as_was_asked_for_may_have_come_of_the_first_request() -> None:
    cluster, _, client = make({"t": 2})
    answers(cluster, LOST, EXISTS)
    assert client.create_topic("t", partitions=2) == cluster.topics["t"][0].hex()


def test_a_request_for_more_partitions_says_what_it_was_made_for_also_when_it_is_repeated() -> None:
    cluster, _, client = make()
    topic_id = client.create_topic("orders", partitions=2)

    def answer(message: Any, _broker: int) -> list[Any] | None:
        if not isinstance(message, Admin) or message.verb == "find_topic":
            return None
        asked.append(dict(message.arguments))
        cluster.delete("orders")
        cluster.create("orders", 4 + len(asked))  # somebody else has asked for more, too
        return [AdminAnswer(message.request, LOST.error)] if len(asked) == 1 else [AdminAnswer(message.request, 0)]

    asked: list[dict[str, Any]] = []
    cluster.override = answer
    client.add_partitions("orders", 4)
    meant = {"name": "orders", "total": 4, "assignment": None, "count": 2, "topic_id": topic_id, "next_creation": 0}
    assert asked == [meant, meant]
    answers(cluster, AdminAnswer(0, Code.INVALID_PARTITIONS, "total is 1"))
    with pytest.raises(InvalidPartitions):
        client.add_partitions("orders", 1)


@pytest.mark.parametrize("late_has", [0, 1])
def test_more_partitions_are_asked_for_as_the_controller_knows_the_topic(late_has: int) -> None:
    """Not as a broker does that has not heard of it, or of the last change: there may be more than one asks for."""
    cluster, _, client = make({"t": late_has} if late_has else {})
    client.topics()
    cluster.late_views.update({broker: cluster.view(-1) for broker in (1, 2, 3)})
    if not late_has:
        cluster.create("t")
    cluster.add_partition("t", 1)
    asked = answers(cluster, AdminAnswer(0, Code.INVALID_PARTITIONS, "total is 1; topic 't' has 2"))
    with pytest.raises(InvalidPartitions):
        client.add_partitions("t", 1)
    assert [one.arguments["count"] for one in asked] == [2]


def test_a_deletion_that_was_done_although_its_answer_was_lost() -> None:
    """It says which topic is meant, also if this client has never looked at it before."""
    cluster, _, client = make({"t": 1})
    gone = AdminAnswer(0, Code.UNKNOWN_TOPIC_OR_PARTITION, "unknown topic 't'")
    asked = answers(cluster, LOST, gone)
    topic_id = cluster.topics["t"][0]
    given = cluster.override

    def answer(message: Any, broker: int) -> list[Any] | None:
        if isinstance(message, Admin) and "t" in cluster.topics:
            cluster.delete("t")
        return given(message, broker)  # type: ignore[misc]

    cluster.override = answer
    client.delete_topic("t")
    assert [one.arguments for one in asked] == [{"name": "t", "topic_id": topic_id.hex()}] * 2


def test_a_request_of_too_many_items_is_refused_at_once() -> None:
    """A broker would end the connection for it, and lose what else is on the way there."""
    cluster, _, client = make()
    asked = answers(cluster)
    with pytest.raises(MessageTooLarge, match=r"has 2\d\d\d\d\d items; allowed are 249900"):
        client.create_topic("u", assignment={number: [1, 2, 3] for number in range(70_000)})
    assert asked == []


def test_a_long_assignment_with_a_hole_is_refused_at_once() -> None:
    """As one of too many items is: a broker takes no map of that many numbers that do not follow one another."""
    cluster, _, client = make({"t": 1})
    asked = answers(cluster)
    assignment = {number: [1] for number in range(SCATTERED_KEYS_MAX + 1) if number != 7}
    with pytest.raises(InvalidReplicaAssignment, match="numbered without a hole; 8 follows 6"):
        client.create_topic("u", assignment={**assignment, SCATTERED_KEYS_MAX + 1: [1]})
    with pytest.raises(InvalidReplicaAssignment, match="numbered without a hole; 8 follows 6"):
        client.add_partitions("t", 2 * SCATTERED_KEYS_MAX, assignment={**assignment, SCATTERED_KEYS_MAX + 1: [1]})
    assert asked == []


def test_an_assignment_is_sent_in_the_order_of_its_partitions() -> None:
    cluster, _, client = make()
    asked = answers(cluster, AdminAnswer(0, Code.NONE))
    placed = {number: [1] for number in reversed(range(2 * SCATTERED_KEYS_MAX))}
    client.create_topic("u", assignment=placed, validate_only=True)
    (one,) = asked
    assert [*one.arguments["assignment"]] == sorted(placed)
    assert decode(b"".join(encode(one))) == one


def test_a_topic_that_was_made_anew_is_deleted_although_the_broker_that_is_asked_knows_the_one_before() -> None:
    """The request names that one, and is refused; then the client waits for news, and asks again."""
    cluster, _, client = make({"t": 1})
    client.topics()
    late = {broker: cluster.view(-1) for broker in (1, 2, 3)}
    cluster.delete("t")
    cluster.create("t")
    anew = cluster.topics["t"][0]
    cluster.late_views.update(late)
    asked: list[str] = []

    def answer(message: Any, _broker: int) -> list[Any] | None:
        if not isinstance(message, Admin):
            return None
        asked.append(message.arguments["topic_id"])
        if asked[-1] != anew.hex():
            cluster.late_views.clear()
            return [AdminAnswer(message.request, Code.UNKNOWN_TOPIC_OR_PARTITION, "another id")]
        cluster.delete("t")
        return [AdminAnswer(message.request, 0, result={"topic_id": anew.hex()})]

    cluster.override = answer
    client.delete_topic("t")
    assert len(asked) == 2
    assert client.topics() == []


@pytest.mark.parametrize("lost", ["told", "silent"])
def test_a_deletion_of_a_topic_that_no_broker_has_heard_of_leaves_the_next_one_of_its_name(lost: str) -> None:
    """The controller knows it, deletes it, and its answer is lost; somebody makes the topic anew before the request is repeated."""
    cluster, _, client = make()
    client.topics()
    late = {broker: cluster.view(-1) for broker in (1, 2, 3)}
    cluster.create("t")
    cluster.late_views.update(late)
    asked: list[dict[str, Any]] = []

    def answer(message: Any, _broker: int) -> list[Any] | None:
        if not isinstance(message, Admin) or message.verb == "find_topic":
            return None
        asked.append(message.arguments)
        topic_id = cluster.topics["t"][0].hex()
        if message.arguments.get("topic_id", topic_id) != topic_id:
            return [AdminAnswer(message.request, Code.UNKNOWN_TOPIC_OR_PARTITION, "another id")]
        cluster.delete("t")
        if len(asked) == 1:
            cluster.create("t")
        return [AdminAnswer(message.request, LOST.error)] if lost == "told" else []

    cluster.override = answer
    client.delete_topic("t", timeout_s=100)
    assert len(asked) == 2
    assert "t" in cluster.topics


def test_a_topic_that_nobody_has_is_not_asked_to_be_deleted() -> None:
    cluster, _, client = make({"other": 1})
    asked = answers(cluster)
    with pytest.raises(UnknownTopicOrPartition, match="unknown topic 't'"):
        client.delete_topic("t")
    assert asked == []


def test_a_topic_that_somebody_else_deletes_meanwhile_is_unknown() -> None:
    cluster, _, client = make({"t": 1})
    client.topics()

    def answer(message: Any, _broker: int) -> list[Any] | None:
        if isinstance(message, Admin) and "t" in cluster.topics:
            cluster.delete("t")
        return None

    cluster.override = answer
    with pytest.raises(UnknownTopicOrPartition):
        client.delete_topic("t")


@pytest.mark.parametrize(("change", "left"), [("a partition comes", [0, 1]), ("a partition goes", [0])])
def test_a_topic_that_changes_while_it_is_described(change: str, left: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread of the application hears of it."""
    _, driver, client = make({"t": 2})
    client.topics()
    topic = driver.core.view.topics["t"]
    real = client_module.OffsetOp

    def asked(*arguments: Any) -> Any:
        if change == "a partition comes":
            topic.take(attrs.evolve(topic.partitions[0], partition=2))
        else:
            topic.cut(1)
        return real(*arguments)

    monkeypatch.setattr(client_module, "OffsetOp", asked)
    assert [row.partition for row in client.describe("t").partitions] == left
