"""What clients and admins may say: every message, every wish, every action."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from tests.unit.samples import messages

from replog import Cluster
from replog import messages as m
from replog.broker.followers import FOLLOWERS
from replog.broker.offsets import EARLIEST, LATEST
from replog.codec import MESSAGE_TYPES, CodecError, encode
from replog.config import BATCH_BYTES_MAX, TopicConfig
from replog.controller.admin import VERBS
from replog.errors import Code, UnknownTopicOrPartition
from replog.model import PartitionId
from replog.security.door import Door
from replog.security.identity import Identity
from replog.security.particulars import particulars_of
from replog.security.roles import ACTIONS, WISHES, topics_of, wish
from replog.security.settings import Security
from replog.transport.tcp.admission import refusal

CLIENT, ADMIN = Identity("client", "c"), Identity("admin", "a")
PEER = ("peer", 1)
SECRET = {"client": b"s" * 32}
NAMES = {b"a" * 16: "allowed", b"d" * 16: "denied"}
HERE, THERE, NOWHERE = (PartitionId(letter * 16, 0, 0) for letter in (b"a", b"d", b"n"))
UNKNOWN, DENIED = Code.UNKNOWN_TOPIC_ID, Code.TOPIC_AUTHORIZATION_FAILED


def door(allow: Callable[[str, str, str | None], bool] | None = None) -> Door:
    return Door(Security(secret=SECRET, authorizer=allow), NAMES.get)


def only_allowed(principal: str, action: str, topic: str | None) -> bool:
    return topic == "allowed"


def enter(one: Door, message: Any, who: Identity = CLIENT) -> tuple[Any, list[Any]]:
    return one.enter(who, "127.0.0.1:1", PEER, message)


# ----------------------------------------------------------------------------------------------------------- every message


SAMPLES = {type(each): each for each in messages().values() if type(each) in MESSAGE_TYPES.values()}
TO_THE_ACTOR, ENDS = "goes on", "the connection ends"
OF_A_CLIENT = {  # what becomes of each message of a client
    m.Produce: TO_THE_ACTOR, m.Fetch: TO_THE_ACTOR, m.ListOffsets: TO_THE_ACTOR, m.OffsetsForLeaderEpoch: TO_THE_ACTOR,
    m.Stage: TO_THE_ACTOR, m.Publish: TO_THE_ACTOR, m.Metadata: TO_THE_ACTOR, m.Admin: TO_THE_ACTOR,
    m.Produced: ENDS, m.Fetched: ENDS, m.Flushed: ENDS, m.ListedOffsets: ENDS, m.Epochs: ENDS, m.ClusterView: ENDS, m.UpdateMetadata: ENDS,
    m.LeaderAndIsr: ENDS, m.LeaderAndIsrAnswer: ENDS, m.StopReplica: ENDS, m.StopReplicaAnswer: ENDS, m.Heartbeat: ENDS, m.AlterIsr: ENDS,
    m.AlterIsrAnswer: ENDS, m.ReplicasFailed: ENDS, m.ReplicaStates: ENDS, m.ReplicaStatesAnswer: ENDS, m.AdminAnswer: ENDS,
    m.Handshake: ENDS, m.HandshakeAnswer: ENDS, m.ControlledShutdown: ENDS, m.ControlledShutdownAnswer: ENDS, m.Published: ENDS,
}  # fmt: skip


@pytest.mark.parametrize("kind", MESSAGE_TYPES.values(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("who", [CLIENT, ADMIN])
def test_every_message_of_a_client_and_of_an_admin(kind: type[Any], who: Identity) -> None:
    message = SAMPLES[kind]
    if kind is m.Fetch:
        assert refusal(attrs.evolve(message, replica=2), 0, peer=-1, role="broker") is not None
        message = attrs.evolve(message, replica=-1)
    if kind is m.Admin:
        assert refusal(attrs.evolve(message, origin=[1, 2]), 0, peer=-1, role="broker") is not None
        message = attrs.evolve(message, verb="explain", origin=None)
    becomes = ENDS if refusal(message, 0, peer=-1, role="broker") is not None else TO_THE_ACTOR
    assert becomes == OF_A_CLIENT[kind]
    assert all(refusal(message, route, peer=-1, role="broker") is not None for route in (1, 2, 3))
    if becomes == TO_THE_ACTOR:
        assert enter(door(), message, who) == (message, [])
        passed, _ = enter(door(lambda *_: False), message, who)
        assert passed is None or (kind is m.Metadata and passed.sought == []) or (kind is m.Produce and not passed.entries)


def test_an_authorizer_is_asked_about_every_message_that_goes_on() -> None:
    assert {*door()._entries, m.Admin} == {kind for kind, becomes in OF_A_CLIENT.items() if becomes == TO_THE_ACTOR}
    assert enter(door(only_allowed), m.Heartbeat(1, 1, 1, 1)) == (None, [])


# -------------------------------------------------------------------------------------------------------------- every wish


def test_every_wish_has_a_row() -> None:
    assert set(WISHES) == {*VERBS, FOLLOWERS}
    assert {one.action for one in WISHES.values()} <= set(ACTIONS)


@pytest.mark.parametrize("verb", [*WISHES, "made of later"])
def test_a_change_needs_an_admin(verb: str) -> None:
    asked = m.Admin(7, verb, {"name": "t"})
    assert enter(door(), asked, ADMIN) == (asked, [])
    passed, answers = enter(door(), asked, CLIENT)
    if not wish(verb).changes:
        assert (passed, answers) == (asked, [])
        return
    assert passed is None
    (answer,) = answers
    assert (answer.request, answer.error) == (7, Code.CLUSTER_AUTHORIZATION_FAILED)
    assert "needs the role admin; you are client/c" in answer.message


@pytest.mark.parametrize(
    ("verb", "arguments", "code"),
    [
        ("delete_topic", {"name": "allowed"}, 0),
        ("delete_topic", {"name": "denied"}, DENIED),
        ("alter_topic", {}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("alter_topic", {"name": ["allowed"]}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("drain", {"broker": 1}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("raise_feature_level", {"level": 2}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("elect", {"partitions": None}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("elect", {"partitions": [["allowed", 0], ["allowed", 1]]}, 0),
        ("reassign", {"partitions": [["allowed", 0, [1]], ["denied", 1, [2]]]}, DENIED),
        ("reassign", {"partitions": [["allowed", 0, [1]], 7]}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("explain", {"name": "denied", "partition": 0}, DENIED),
        ("list_reassignments", {}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("find_view", {}, 0),
        ("find_view", {"name": "denied"}, 0),
        ("followers", {"partitions": [["61" * 16, 0, 0]]}, 0),
        ("followers", {"partitions": [["61" * 16, 0, 0], ["64" * 16, 0, 0]]}, DENIED),
        ("followers", {"partitions": [["6e" * 16, 0, 0]]}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("followers", {"partitions": [["no hex", 0, 0]]}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("followers", {"partitions": [7]}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("followers", {"partitions": [{"x": 1}]}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("followers", {"partitions": [[], [["61" * 16]]]}, Code.CLUSTER_AUTHORIZATION_FAILED),
        # What its verb does not look at decides nothing.
        ("elect", {"name": "allowed", "partitions": [["denied", 0]]}, DENIED),
        ("elect", {"name": "allowed"}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("elect", {"partitions": [["allowed", 0], ["denied", 0]], "to": 1}, DENIED),
        ("reassign", {"name": "allowed", "partitions": [["denied", 0, [1]]]}, DENIED),
        ("drain", {"name": "allowed", "broker": 1}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("drain", {"partitions": [["allowed", 0]], "broker": 1}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("list_reassignments", {"name": "allowed"}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("list_reassignments", {"partitions": [["allowed", 0]]}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("delete_topic", {"partitions": [["allowed", 0]]}, Code.CLUSTER_AUTHORIZATION_FAILED),
        ("remove_partitions", {"name": "denied", "partitions": [["allowed", 0]]}, DENIED),
        ("made of later", {"name": "allowed", "partitions": [["allowed", 0]]}, Code.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_an_authorizer_is_asked_about_every_topic_of_a_wish(verb: str, arguments: dict[str, Any], code: int) -> None:
    asked = m.Admin(7, verb, arguments)
    passed, answers = enter(door(only_allowed), asked, ADMIN)
    assert [answer.error for answer in answers] == ([code] if code else [])
    assert passed == (None if code else asked)


def test_the_topics_of_a_wish() -> None:
    assert list(topics_of("elect", {"partitions": [["a", 0], ["b", 0], ["a", 1]]})) == ["a", "b"]
    assert list(topics_of("elect", {"partitions": []})) == [None]
    assert list(topics_of("explain", {"name": "a", "partitions": [["b", 0]]})) == ["a"]


# ------------------------------------------------------------------------------------------------------------------- topics


def test_what_is_denied_of_an_append_is_answered_and_the_rest_goes_on() -> None:
    entries = [m.ProduceEntry(number, where, b"x") for number, where in enumerate((HERE, THERE, NOWHERE, HERE))]
    passed, answers = enter(door(only_allowed), m.Produce(-1, 5, entries))
    assert [entry.request for entry in passed.entries] == [0, 3]
    assert answers == [m.Produced([m.ProducedEntry(1, DENIED), m.ProducedEntry(2, UNKNOWN)])]
    passed, answers = enter(door(only_allowed), m.Produce(0, 5, entries[1:2]))
    assert (passed, answers) == (None, [])  # with acks=0 nobody waits


def fetch(*where: PartitionId, session: int = 0, session_epoch: int = -1) -> m.Fetch:
    return m.Fetch(7, -1, -1, session, session_epoch, 0, 1, 1, [m.FetchEntry(each, 3, 5, -1, 1) for each in where])


def test_a_denied_fetch_brings_nothing() -> None:
    passed, answers = enter(door(only_allowed), fetch(HERE, THERE, NOWHERE))
    assert passed is None
    assert answers == [m.Fetched(7, 0, 0, 0, [m.FetchedEntry(THERE, 3, 5, DENIED), m.FetchedEntry(NOWHERE, 3, 5, UNKNOWN)])]
    assert enter(door(only_allowed), fetch(HERE)) == (fetch(HERE), [])


def test_no_session_outlives_a_rule() -> None:
    assert enter(door(only_allowed), fetch(HERE, session_epoch=0)) == (fetch(HERE, session_epoch=-1), [])
    assert enter(door(only_allowed), fetch(session=9, session_epoch=1)) == (None, [m.Fetched(7, 0, 0, Code.FETCH_SESSION_ID_NOT_FOUND, [])])
    assert enter(door(), fetch(session=9, session_epoch=1))[0] is not None


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda p: m.ListOffsets(7, [m.ListOffsetsEntry(p, 0, -1)]), lambda p, c: m.ListedOffsets(7, [m.ListedOffset(p, c)])),
        (lambda p: m.OffsetsForLeaderEpoch(7, [m.EpochsEntry(p, 0, 0)]), lambda p, c: m.Epochs(7, [m.EpochsResult(p, c)])),
        (lambda p: m.Stage("w", 1, "a", 0, m.ProduceEntry(7, p, b"x")), lambda p, c: m.Published(7, p, c)),
        (lambda p: m.Publish(7, p, "w", 1, 5, [], 0), lambda p, c: m.Published(7, p, c)),
    ],
)
def test_what_is_about_one_partition(ask: Callable[[PartitionId], Any], answer: Callable[[PartitionId, int], Any]) -> None:
    passed, answers = enter(door(only_allowed), ask(HERE))
    assert (encode(passed), answers) == (encode(ask(HERE)), [])
    assert enter(door(only_allowed), ask(THERE)) == (None, [answer(THERE, DENIED)])
    assert enter(door(only_allowed), ask(NOWHERE)) == (None, [answer(NOWHERE, UNKNOWN)])


@pytest.mark.parametrize("authorizer", [None, only_allowed])
def test_who_puts_aside_is_told_to_the_broker(authorizer: Any) -> None:
    """It has a share of the room for that, on however many connections it comes."""
    asked = m.Stage("w", 1, "a", 0, m.ProduceEntry(7, HERE, b"x"))
    passed, answers = enter(door(authorizer), asked)
    assert (passed.principal, answers) == (str(CLIENT), [])
    assert passed.entry == asked.entry


def test_an_offset_by_its_time_is_for_those_who_may_read() -> None:
    """With it goes when records were made, of each time that somebody cares to ask for."""
    may = {("describe", "allowed"), ("describe", "denied"), ("read", "allowed")}
    one = door(lambda _, action, topic: (action, topic) in may)

    def ask(where: PartitionId, *ats: int) -> m.ListOffsets:
        return m.ListOffsets(7, [m.ListOffsetsEntry(where, 0, at) for at in ats])

    for at in (0, 1, 1_700_000_000_000, 2**63 - 1, -3, -(2**63)):  # whatever is no end is searched for
        assert enter(one, ask(THERE, at, LATEST)) == (None, [m.ListedOffsets(7, [m.ListedOffset(THERE, DENIED)])])
        assert enter(one, ask(HERE, at, LATEST)) == (ask(HERE, at, LATEST), [])
    assert enter(one, ask(THERE, EARLIEST, LATEST)) == (ask(THERE, EARLIEST, LATEST), [])
    may.discard(("describe", "allowed"))
    assert enter(one, ask(HERE, 5)) == (None, [m.ListedOffsets(7, [m.ListedOffset(HERE, DENIED)])])


def test_a_topic_that_may_not_be_described_is_not_shown() -> None:
    one = door(only_allowed)
    passed, answers = enter(one, m.Metadata(7, 3, 12, ["allowed", "denied"]))
    assert (passed, answers) == (m.Metadata(7, 3, -1, ["allowed"]), [])
    shown = [m.TopicView(name, id_, TopicConfig(), ()) for id_, name in NAMES.items()]
    view = m.ClusterView(3, 12, -1, 1, [], shown, missing=[("allowed", 5, "x"), ("denied", 5, "x")])
    told = one.leave(CLIENT, PEER, view)
    assert [each.topic for each in told.topics] == ["allowed"]
    assert [each[0] for each in told.missing] == ["allowed"]
    assert len(view.topics) == 2  # others hear the same message
    assert door().leave(CLIENT, PEER, view) is view


def test_a_client_of_a_broker_itself_is_not_asked() -> None:
    """It has shown the certificate of a broker, which may do everything anyway."""
    one, broker = door(lambda *_: False), Identity("broker", "1")
    view = m.ClusterView(3, 12, -1, 1, [], [m.TopicView("t", b"t" * 16, TopicConfig(), ())])
    for message in (fetch(HERE, session=9), m.Metadata(1, 1, 1, ["t"]), m.Admin(1, "delete_topic", {"name": "t"})):
        assert enter(one, message, broker) == (message, [])
    assert one.leave(broker, PEER, view) is view


def test_each_message_asks_for_its_action() -> None:
    asked: list[tuple[str, str, str | None]] = []

    def noted(*each: Any) -> bool:
        asked.append(each)
        return True

    one = door(noted)
    entry = m.ProduceEntry(7, HERE, b"x")
    for message, action in (
        (m.Produce(-1, 5, [entry]), "write"), (m.Stage("w", 1, "a", 0, entry), "write"), (m.Publish(7, HERE, "w", 1, 5, [], 0), "write"),
        (fetch(HERE), "read"), (m.ListOffsets(7, [m.ListOffsetsEntry(HERE, 0, -1)]), "describe"),
        (m.Metadata(1, 1, 1, ["allowed"]), "create"),
        (m.OffsetsForLeaderEpoch(7, [m.EpochsEntry(HERE, 0, 0)]), "describe"), (m.Admin(1, "delete_topic", {"name": "allowed"}), "delete"),
    ):  # fmt: skip
        enter(one, message, ADMIN)
        assert asked.pop() == ("admin/a", action, "allowed")
    assert asked == []


@pytest.mark.parametrize("answer", [None, 1, "yes", [True]])
def test_only_true_allows(answer: Any) -> None:
    passed, _ = enter(door(lambda *_: answer), fetch(HERE))
    assert passed is None


def test_an_authorizer_that_raises_denies_and_is_logged_once_per_kind(caplog: pytest.LogCaptureFixture) -> None:
    problems = [ValueError("a"), ValueError("b"), KeyError("c"), ValueError("d")]

    def broken(*_: Any) -> bool:
        raise problems.pop(0)

    one = door(broken)
    for _ in range(4):
        passed, answers = enter(one, fetch(HERE))
        assert passed is None
        assert answers[0].entries[0].error == DENIED
    assert [record.args[0] for record in caplog.records if record.args] == ["ValueError", "KeyError"]


# -------------------------------------------------------------------------------------------------------------------- audit


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "replog.audit"]


def test_a_line_for_each_change_and_what_became_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    one = door()
    enter(one, m.Admin(1, "delete_topic", {"name": "t"}), ADMIN)
    assert audited(caplog) == []  # it is not known yet
    one.leave(ADMIN, PEER, m.AdminAnswer(1, 0))
    enter(one, m.Admin(2, "delete_topic", {"name": "t"}), ADMIN)
    one.leave(ADMIN, PEER, m.AdminAnswer(2, Code.UNKNOWN_TOPIC_OR_PARTITION))
    enter(one, m.Admin(3, "delete_topic", {"name": "t"}), CLIENT)
    enter(one, m.Admin(4, "reassign", {"partitions": [["t", 0, [1]], ["u", 0, [1]]]}), ADMIN)
    enter(one, m.Admin(5, "explain", {"name": "t"}), ADMIN)
    one.ended(("peer", 2))
    one.ended(PEER)
    one.leave(ADMIN, PEER, m.AdminAnswer(4, 0))
    start = "principal=admin/a address=127.0.0.1:1 action="
    assert audited(caplog) == [
        f"{start}delete_topic topic=t outcome=ok",
        f"{start}delete_topic topic=t outcome=UnknownTopicOrPartition",
        "principal=client/c address=127.0.0.1:1 action=delete_topic topic=t outcome=ClusterAuthorizationFailed",
        f'{start}reassign topic="t,u" count=2 partitions="t-0>1,u-0>1" outcome=unknown',
    ]


@pytest.mark.parametrize(
    ("verb", "result", "says"),
    [
        ("reassign", {"errors": []}, "outcome=ok"),
        ("reassign", {"errors": [["t", 1, int(Code.INVALID_REPLICA_ASSIGNMENT), "no"]]}, "outcome=partly refused=1"),
        ("reassign", {"errors": [["t", n, int(Code.UNKNOWN_TOPIC_OR_PARTITION), "no"] for n in (0, 1)]},
         "outcome=UnknownTopicOrPartition refused=2"),
        ("elect", {"partitions": [["t", 0, 0, ""], ["t", 1, 0, ""]]}, "outcome=ok"),
        ("elect", {"partitions": [["t", 0, 0, ""], ["t", 1, int(Code.ELECTION_NOT_NEEDED), "no"]]}, "outcome=partly refused=1"),
        ("elect", {"partitions": [["t", 0, int(Code.ELECTION_NOT_NEEDED), "no"]]}, "outcome=ElectionNotNeeded refused=1"),
    ],
)  # fmt: skip
def test_what_was_refused_in_parts_is_not_told_as_done(
    verb: str, result: dict[str, Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    one = door()
    enter(one, m.Admin(1, verb, {"partitions": [["t", 0, [1]], ["t", 1, [2]]]}), ADMIN)
    one.leave(ADMIN, PEER, m.AdminAnswer(1, 0, result=result))
    (line,) = audited(caplog)
    assert line.endswith(f" {says}")
    (record,) = [record for record in caplog.records if record.name == "replog.audit"]
    assert isinstance(record.args, dict)
    assert record.args["action"] == verb


def test_a_line_is_written_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    one = door()
    enter(one, m.Admin(1, "delete_topic", {"name": "100%d %(action)s"}), CLIENT)
    assert 'topic="100%d %(action)s"' in audited(caplog)[0]


# ------------------------------------------------------------------------------------------------------- what answers tell


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("unknown topic 'x'; known are allowed, denied", "unknown topic 'x'; known are allowed"),
        ("unknown topic 'x'; known are denied, hidden.too", "unknown topic 'x'"),
        ("unknown topic 'x'; known are none", "unknown topic 'x'"),
        ("topic 'allowed' has no partition 7; it has 0 to 3", "topic 'allowed' has no partition 7; it has 0 to 3"),
    ],
)
def test_a_refusal_names_no_topic_that_rules_hide(text: str, told: str) -> None:
    one, code = door(only_allowed), int(Code.UNKNOWN_TOPIC_OR_PARTITION)
    assert one.leave(CLIENT, PEER, m.AdminAnswer(1, code, text)).message == told
    for name in ("errors", "partitions"):
        answer = m.AdminAnswer(2, 0, result={name: [["x", 0, code, text], ["y", 0, 0, ""]], "other": 1})
        assert one.leave(ADMIN, PEER, answer).result == {name: [["x", 0, code, told], ["y", 0, 0, ""]], "other": 1}
    assert door().leave(CLIENT, PEER, m.AdminAnswer(3, code, text)).message == text
    assert one.leave(Identity("broker", "1"), PEER, m.AdminAnswer(4, code, text)).message == text


def test_nor_does_that_of_a_real_cluster() -> None:
    with Cluster(brokers=1) as cluster:
        for name in ("allowed", "denied"):
            cluster.create_topic(name, replication_factor=1, min_isr=1)
        with pytest.raises(UnknownTopicOrPartition) as refused:
            cluster.reassign({("missing", 0): [1]})
        with pytest.raises(UnknownTopicOrPartition) as unexplained:
            cluster.delete_topic("missing")
    assert "known are allowed, denied" in str(refused.value) + str(unexplained.value)
    answer = m.AdminAnswer(1, 0, result={"errors": [["missing", 0, 3, "unknown topic 'missing'; known are allowed, denied"]]})
    assert "denied" not in str(door(only_allowed).leave(ADMIN, PEER, answer))


class _Piece:
    """Records of an answer."""

    released = 0

    def release(self) -> None:
        self.released += 1


def test_records_that_were_waited_for_are_brought_only_to_who_may_still_read_them() -> None:
    may_read = True
    one = door(lambda principal, action, topic: may_read)
    pieces = [_Piece(), _Piece()]
    entries = [m.FetchedEntry(HERE, 3, 7, 0, 9, 0, 9, slices=[piece]) for piece in pieces]
    assert one.leave(CLIENT, PEER, m.Fetched(1, 0, 0, 0, entries[:1])).entries == entries[:1]
    may_read = False
    (denied,) = one.leave(CLIENT, PEER, m.Fetched(2, 0, 0, 0, entries[1:])).entries
    assert denied == m.FetchedEntry(HERE, 3, 7, DENIED)
    assert [piece.released for piece in pieces] == [0, 1]
    empty = m.FetchedEntry(HERE, 3, 7, 0, 9, 0, 9)
    assert one.leave(CLIENT, PEER, m.Fetched(3, 0, 0, 0, [empty])).entries == [empty]


@pytest.mark.parametrize(
    ("verb", "arguments", "says"),
    [
        ("drain", {"broker": 3, "broker_epoch": 17}, 'topic="*" broker=3'),
        ("reassign", {"partitions": [["t", 0, [1, 2]], ["t", 1, None]]}, 'topic=t count=2 partitions="t-0>1/2,t-1>cancelled"'),
        ("elect", {"partitions": [["t", 4]], "unclean": False}, "topic=t count=1 partitions=t-4"),
        ("elect", {"partitions": [["t", 4]], "unclean": False, "to": 3}, "topic=t count=1 partitions=t-4 to=3"),
        ("elect", {"partitions": [["t", 4]], "to": [3]}, 'topic=t count=1 partitions=t-4 to="?"'),
        ("elect", {"partitions": None, "unclean": True}, 'topic="*" partitions="*" unclean=true'),
        ("add_partitions", {"name": "t", "total": 6}, "topic=t total=6"),
        ("remove_partitions", {"name": "t", "partitions": [4, 5]}, 'topic=t count=2 partitions="4,5"'),
        (
            "alter_topic",
            {"name": "t", "config": {"retention_ms": 1, "unclean_leader_election": True, "flush": "ack", "retention_bytes": None}},
            'topic=t config="retention_ms=1,unclean_leader_election=true,flush=ack,retention_bytes=default"',
        ),
        ("alter_topic", {"name": "t", "config": {"min_isr": 2}}, 'topic=t config="min_isr=2"'),
        ("alter_topic", {"name": "t", "config": {}}, "topic=t"),
        ("alter_topic", {"name": "t", "config": [1]}, 'topic=t config="?"'),
        (
            "alter_topic",
            {"name": "t", "config": {"a,min_isr=1": 2, 3: 4, "min_isr": [1], "flush": "os,min_isr=1", "segment_ms": 1.5, "x" * 41: 1}},
            'topic=t config="?=2,?=4,min_isr=?,flush=?,segment_ms=?,?=1"',
        ),
        (
            "create_topic",
            {"name": "t", "partitions": 6, "replication_factor": 3, "assignment": None, "config": {"min_isr": 2}},
            'topic=t total=6 replication_factor=3 config="min_isr=2"',
        ),
        ("create_topic", {"name": "t", "partitions": 1, "replication_factor": None, "config": {}}, "topic=t total=1"),
        ("create_topic", {"name": "t", "partitions": 1, "validate_only": True}, "topic=t total=1 validate_only=true"),
        (
            "create_topic",
            {"name": "t", "partitions": "x", "replication_factor": [1], "config": 7},
            'topic=t total="?" replication_factor="?" config="?"',
        ),
        ("create_topic", {"name": "t"}, "topic=t"),
        (
            "create_topic",
            {"name": "t", "partitions": 2, "replication_factor": None, "assignment": {0: [1, 2], 1: [2, 3]}, "config": {}},
            'topic=t total=2 assignment="0>1/2,1>2/3"',
        ),
        ("add_partitions", {"name": "t", "total": 6, "assignment": {5: [1]}}, 'topic=t total=6 assignment="5>1"'),
        ("add_partitions", {"name": "t", "total": 6, "assignment": {"5>1,6": [1], 6: 7}}, 'topic=t total=6 assignment="?>1,6>?"'),
        ("add_partitions", {"name": "t", "total": 6, "assignment": "x"}, 'topic=t total=6 assignment="?"'),
        ("drain", {}, 'topic="*" broker="?"'),
        ("raise_feature_level", {"level": 2}, 'topic="*" level=2'),
        ("raise_feature_level", {}, 'topic="*" level="?"'),
        ("drain", {"broker": [1]}, 'topic="*" broker="?"'),
        ("reassign", {"partitions": 7}, 'topic="*" partitions="?"'),
        ("reassign", {"partitions": [7, [], ["t"], ["t", "0", "1"], [b"t", 0, [1]]]}, 'count=5 partitions="?>?,?>?,?>?,t-?>?,?>1"'),
        ("reassign", {"partitions": [["t", 0, ["1", 2, True]]]}, 'topic=t count=1 partitions="t-0>?/2/?"'),
        ("elect", {"partitions": [["t", {}]], "unclean": "no"}, 'topic=t count=1 partitions="t-?"'),
    ],
)
def test_a_line_says_which_brokers_and_partitions(
    caplog: pytest.LogCaptureFixture, verb: str, arguments: dict[str, Any], says: str
) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    one = door()
    enter(one, m.Admin(1, verb, arguments), ADMIN)
    one.leave(ADMIN, PEER, m.AdminAnswer(1, 0))
    (line,) = audited(caplog)
    assert f"{says} outcome=ok" in line


def test_what_a_line_says_of_many_partitions_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    one = door()
    enter(one, m.Admin(1, "reassign", {"partitions": [["t", number, [1, 2]] for number in range(100_000)]}), ADMIN)
    ((*_, more),) = one._pending.values()
    assert len(more["partitions"]) < 2_000
    one.ended(PEER)
    (line,) = audited(caplog)
    assert ' count=100000 partitions="t-0>1/2,t-1>1/2,' in line
    assert '..." outcome=' in line


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("alter_topic", {"config": {f"key_{number}": number for number in range(100_000)}}),
        ("create_topic", {"assignment": {number: [1, 2] for number in range(100_000)}}),
        ("reassign", {"partitions": [["t", 0, list(range(100_000))]]}),
    ],
)
def test_what_a_line_says_of_anything_is_bounded(caplog: pytest.LogCaptureFixture, verb: str, arguments: dict[str, Any]) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    one = door()
    enter(one, m.Admin(1, verb, {"name": "t", **arguments}), ADMIN)
    ((*_, more),) = one._pending.values()
    assert sum(map(len, more.values())) < 10_000
    one.ended(PEER)
    (line,) = audited(caplog)
    assert '..." outcome=' in line
    assert len(line) < 500


def test_a_line_has_room_for_each_key_that_a_topic_has() -> None:
    """Else the one that matters could stand behind the others, where the line is cut off."""
    keys = {key.name for key in attrs.fields(TopicConfig)} - {"min_isr", "unclean_leader_election", "max_batch_bytes"}
    longest = dict.fromkeys([*sorted(keys), "min_insync_replicas", "unclean_leader_election_enable", "max_message_bytes"], 2**63 - 1)
    said = particulars_of("alter_topic", {"config": {**longest, "min_insync_replicas": 64, "max_message_bytes": BATCH_BYTES_MAX}})["config"]
    assert len(said) < 300
    assert "unclean_leader_election_enable=9223372036854775807" in said


def test_nobody_writes_lines_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    enter(door(), m.Admin(1, "x\noutcome=ok", {}), CLIENT)
    enter(door(), m.Admin(2, "delete_topic", {"name": 'a" outcome=ok\nprincipal=admin'}), CLIENT)
    verb, topic = audited(caplog)
    assert "\n" not in verb + topic
    assert verb.endswith(' action="x\\noutcome=ok" topic="*" outcome=ClusterAuthorizationFailed')
    assert topic.endswith(' action=delete_topic topic="a\\" outcome=ok\\nprincipal=admin" outcome=ClusterAuthorizationFailed')


def test_a_line_shows_where_it_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    enter(door(), m.Admin(1, "reassign", {"partitions": [[f"topic-{number}", 0, [1]] for number in range(99)]}), CLIENT)
    (line,) = audited(caplog)
    assert '..." outcome=' in line


@pytest.mark.parametrize("second", ["create_topic", "find_topic", "followers", "made of later"])
def test_no_answer_is_taken_for_that_of_another_wish(caplog: pytest.LogCaptureFixture, second: str) -> None:
    """The answer of a question came first, and was written down as what became of the deletion."""
    caplog.set_level(logging.INFO, "replog.audit")
    one = door()
    enter(one, m.Admin(1, "delete_topic", {"name": "t"}), ADMIN)
    with pytest.raises(CodecError, match="a second wish under number 1, which waits for its answer"):
        enter(one, m.Admin(1, second, {"name": "u"}), ADMIN)
    one.ended(PEER)  # which the transport sees to
    (line,) = audited(caplog)
    assert line.endswith("action=delete_topic topic=t outcome=unknown")


@pytest.mark.parametrize("second", ["delete_topic", "find_topic"])
def test_nor_is_that_of_a_question_taken_for_that_of_a_change(caplog: pytest.LogCaptureFixture, second: str) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    one = door()
    question = m.Admin(1, "find_topic", {"name": "t"})
    enter(one, question, ADMIN)
    with pytest.raises(CodecError, match="a second wish under number 1"):
        enter(one, m.Admin(1, second, {"name": "t"}), ADMIN)
    assert one.enter(ADMIN, "127.0.0.1:2", ("peer", 2), question) == (question, [])  # numbers are of a connection
    one.leave(ADMIN, PEER, m.AdminAnswer(1, 0))
    enter(one, m.Admin(1, "delete_topic", {"name": "t"}), ADMIN)
    one.leave(ADMIN, PEER, m.AdminAnswer(1, 0))
    (line,) = audited(caplog)
    assert line.endswith("action=delete_topic topic=t outcome=ok")


def test_a_wish_that_is_refused_at_once_keeps_no_number() -> None:
    one = door(only_allowed)
    for verb in ("find_topic", "delete_topic", "find_topic"):
        passed, answers = enter(one, m.Admin(1, verb, {"name": "denied"}), ADMIN)
        assert (passed, [answer.error for answer in answers]) == (None, [DENIED])


def test_questions_that_wait_are_bounded_for_each_connection() -> None:
    one = door()
    for number in range(10_000):
        enter(one, m.Admin(number, "find_view", {}))
    with pytest.raises(CodecError, match="10000 wishes wait for their answers, and here is one more; allowed are 10000"):
        enter(one, m.Admin(10_000, "find_view", {}))
    one.enter(CLIENT, "127.0.0.1:2", ("peer", 2), m.Admin(1, "find_view", {}))
    one.leave(CLIENT, PEER, m.AdminAnswer(7, 0))
    enter(one, m.Admin(10_000, "find_view", {}))
    one.ended(PEER)
    assert [*one._questions] == [("peer", 2)]


def test_what_waits_when_it_closes_is_written_down(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    one = door()
    enter(one, m.Admin(1, "drain", {"broker": 1}), ADMIN)
    one.close()
    one.close()
    (line,) = audited(caplog)
    assert line.endswith('action=drain topic="*" broker=1 outcome=unknown')


def test_what_waits_for_its_outcome_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    one = door()
    for number in range(10_003):
        enter(one, m.Admin(number, "drain", {}), ADMIN)
    assert len(one._pending) == 10_000
    assert len(audited(caplog)) == 3
