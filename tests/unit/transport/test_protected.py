"""Connections whose ends prove by a secret who they are: who is let in, and what becomes of everybody else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.authorities import BROKER_SECRET, CLIENT_SECRET, OTHER_SECRET
from tests.unit.samples import messages
from tests.unit.security.test_door import OF_A_CLIENT, TO_THE_ACTOR
from tests.unit.transport.harness import P0, Party, Stranger, idle, question, settle

from replog import messages as m
from replog.codec import MESSAGE_TYPES
from replog.config import TopicConfig
from replog.errors import Code
from replog.model import PartitionId
from replog.security.kept import KeptSecrets
from replog.security.proof import dialer_proof, fresh_nonce, is_listener_proof, transcript
from replog.security.settings import Security
from replog.testing.clock import ManualClock
from replog.transport.tcp.limits import TcpLimits
from replog.transport.tcp.reception import REFUSE_AFTER_MS, UNPROVEN_MAX

Make = Callable[..., Party]
Strange = Callable[[str], Stranger]

ALL = Security(secret={"broker": BROKER_SECRET, "client": CLIENT_SECRET, "admin/anna": b"of anna alone" * 3})
NONCE = b"n" * 32


def of_client(secret: bytes = CLIENT_SECRET, role: str = "client") -> Security:
    return Security(secret={role: secret})


def challenged(one: Stranger, party: Party, **changes: Any) -> tuple[m.Handshake, m.HandshakeAnswer]:
    """What a stranger has said, and how it was answered."""
    said = attrs.evolve(m.Handshake("", "client", -1, -1, 1, 1, 1, NONCE), **changes)
    one.send(said)
    idle([party], 5)
    answer = one.read()
    assert isinstance(answer, m.HandshakeAnswer)
    return said, answer


def refused(one: Stranger, party: Party, clock: ManualClock) -> m.HandshakeAnswer:
    """What it is told in the end, which is nothing before its time."""
    idle([party], 5)
    clock.advance(REFUSE_AFTER_MS - 1)
    idle([party], 5)
    one.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        one.socket.recv(1)
    one.socket.settimeout(5)
    clock.advance(1)
    idle([party], 5)
    answer = one.read()
    assert isinstance(answer, m.HandshakeAnswer)
    assert one.read() is None
    return answer


# ------------------------------------------------------------------------------------------------------------ who is let in


def test_an_admin_is_let_in_however_many_clients_there_are(party: Make) -> None:
    """One client in eight places less than there are: then no other client, and whoever looks after the cluster all the same."""
    broker = party(3, security=ALL, limits=TcpLimits(connections_max=8))
    clients = [party(security=of_client()) for _ in range(8)]
    for number, client in enumerate(clients):
        client.say(broker.endpoint, question(number))
        settle([broker, client], lambda: len(broker.messages) + len(broker.told("peer_refused")) == number + 1)  # noqa: B023
    assert (len(broker.messages), len(broker.told("peer_refused"))) == (7, 1)
    assert "7 connections of clients are open" in broker.told("peer_refused")[0]["reason"]
    admin = party(security=of_client(b"of anna alone" * 3, "admin/anna"))
    admin.say(broker.endpoint, question(9))
    settle([broker, admin, *clients], lambda: len(broker.messages) == 8)


def test_both_ends_know_the_secret(party: Make) -> None:
    broker, client = party(3, security=ALL), party(security=of_client())
    client.say(broker.endpoint, question(1))
    settle([broker, client], lambda: len(broker.messages) == 1)
    peer = broker.items[0][0]
    broker.say(peer, m.ListedOffsets(1, []))
    settle([broker, client], lambda: len(client.messages) == 1)
    assert client.transport.cluster_id == "c"
    (connection,) = broker.transport._connections.open.values()
    assert str(connection.identity) == "client"


def test_brokers_know_theirs(party: Make) -> None:
    one, two = party(1, security=ALL), party(2, security=ALL)
    one.say(2, m.Flushed(1, 0, []))
    two.say(1, m.Flushed(2, 0, []))
    settle([one, two], lambda: len(one.messages) == len(two.messages) == 1)
    assert {str(c.identity) for c in one.transport._connections.open.values()} == {"broker/2"}


@pytest.mark.parametrize(
    ("accepted", "own"), [([OTHER_SECRET, CLIENT_SECRET], [CLIENT_SECRET]), ([CLIENT_SECRET], [CLIENT_SECRET, OTHER_SECRET])]
)
def test_a_secret_is_changed_in_steps(party: Make, accepted: list[bytes], own: list[bytes]) -> None:
    broker, client = party(3, security=Security(secret={"client": accepted})), party(security=Security(secret={"client": own}))
    client.say(broker.endpoint, question(1))
    settle([broker, client], lambda: len(broker.messages) == 1)


def test_a_secret_is_changed_without_a_restart_and_connections_stay(party: Make, tmp_path: Path) -> None:
    path = tmp_path / "client.secret"
    path.touch(0o600)
    path.write_bytes(CLIENT_SECRET)
    security = Security(secret={"broker": BROKER_SECRET, "client": path})
    broker, before = party(3, security=security), party(security=of_client())
    before.say(broker.endpoint, question(1))
    settle([broker, before], lambda: len(broker.messages) == 1)
    path.write_bytes(OTHER_SECRET + b" and longer")
    assert isinstance(security.secret, KeptSecrets)
    security.secret._files._look_s = 0.0  # a second later
    late, after = party(security=of_client()), party(security=of_client(OTHER_SECRET + b" and longer"))
    after.say(broker.endpoint, question(2))
    settle([broker, after], lambda: len(broker.messages) == 2)
    late.say(broker.endpoint, question(3))
    settle([broker, late], lambda: bool(broker.told("authentication_failed")))
    before.say(broker.endpoint, question(4))
    settle([broker, before], lambda: len(broker.messages) == 3)


def test_a_secret_that_is_changed_between_question_and_answer_lets_in_whoever_knew_it(party: Make, tmp_path: Path) -> None:
    path = tmp_path / "client.secret"
    path.touch(0o600)
    path.write_bytes(CLIENT_SECRET)
    security = Security(secret={"client": path})
    broker, client = party(3, security=Security(secret={"client": [CLIENT_SECRET, OTHER_SECRET]})), party(security=security)
    client.say(broker.endpoint, question(1))
    settle([client, broker], lambda: [each.identity is not None for each in broker.transport._connections.open.values()] == [True])
    path.write_bytes(OTHER_SECRET)
    assert isinstance(security.secret, KeptSecrets)
    security.secret._files._look_s = 0.0  # a second later
    settle([client, broker], lambda: len(broker.messages) == 1)
    assert (client.told("dial_failed"), security.secret["client"]) == ([], (OTHER_SECRET,))


STEPS = ["ooo", "ono", "nno", "nnn"]
"""What is in the three files of a broker before the secret of brokers is changed, and after each step of that."""


@pytest.mark.parametrize(("earlier", "later"), [*((one, one) for one in STEPS), *pairwise(STEPS)])
def test_the_secret_of_brokers_is_changed_in_steps_each_of_which_keeps_them_together(party: Make, earlier: str, later: str) -> None:
    known = {"o": BROKER_SECRET, "n": OTHER_SECRET}
    one, two = (party(at, security=Security(secret={"broker": [known[each] for each in has]})) for at, has in ((1, earlier), (2, later)))
    for dials, other in ((one, two), (two, one)):
        dials.say(other.address, m.Flushed(dials.address, 0, []))
        settle([one, two], lambda other=other: len(other.messages) == 1)
        for connection in list(dials.transport._connections.open.values()):
            dials.transport._connections.end(connection, "over")
        idle([one, two])


def test_somebody_has_a_secret_of_its_own(party: Make) -> None:
    broker, anna = party(3, security=ALL), party(security=of_client(b"of anna alone" * 3, "admin/anna"))
    anna.say(broker.endpoint, question(1))
    settle([broker, anna], lambda: len(broker.messages) == 1)
    (connection,) = broker.transport._connections.open.values()
    assert str(connection.identity) == "admin/anna"


# --------------------------------------------------------------------------------------------------------- who is not let in


@pytest.mark.parametrize("security", [None, of_client()], ids=["without a secret", "with a secret"])
def test_a_peer_that_lets_in_and_throws_out_makes_no_storm(party: Make, clock: ManualClock, security: Security | None) -> None:
    """What is said until a connection is open is no message, however many frames it takes."""
    broker, client = party(1, security=security), party(security=security)
    for _ in range(300):
        client.say(broker.endpoint, question(1))
        idle([client, broker], 2)
        for connection in [each for each in broker.transport._connections.open.values() if each.peer is not None]:
            broker.transport._connections.end(connection, "over")
        clock.advance(5)
    assert 2 <= len(broker.told("peer_connected")) <= 7  # 50 ms, and twice as long each time


def test_a_peer_that_has_said_something_is_dialed_again_at_once(party: Make, clock: ManualClock) -> None:
    broker, client = party(1, security=of_client()), party(security=of_client())
    for number in range(1, 6):
        client.say(broker.endpoint, question(number))
        settle([client, broker], lambda want=number: len(broker.messages) == want)  # type: ignore[misc]
        broker.say(("peer", number), m.ListedOffsets(number, []))
        settle([client, broker], lambda want=number: len(client.messages) == want)  # type: ignore[misc]
        (connection,) = broker.transport._connections.open.values()
        broker.transport._connections.end(connection, "over")
        settle([client, broker], lambda: client.open == 0)


def test_a_wrong_secret_fails_at_the_dialer_with_the_reason(party: Make, clock: ManualClock) -> None:
    broker, client = party(3, security=ALL), party(security=of_client(OTHER_SECRET))
    client.say(broker.endpoint, question(1))
    settle([broker, client], lambda: bool(broker.told("authentication_failed")))
    clock.advance(REFUSE_AFTER_MS)
    settle([broker, client], lambda: bool(client.told("dial_failed")))
    assert "have not proven who you are" in client.told("dial_failed")[0]["reason"]
    assert broker.messages == []
    assert client.lost == [broker.endpoint]


def test_unknown_names_and_wrong_proofs_are_told_the_same(party: Make, stranger: Strange, clock: ManualClock) -> None:
    broker, told = party(3, security=ALL), []
    for role in ("client", "client/nobody", "admin", "admin/anna"):
        one = stranger(broker.endpoint)
        said, answer = challenged(one, broker, role=role)
        assert (answer.error, len(answer.nonce), answer.proof) == (0, 32, b"")
        one.send(attrs.evolve(said, proof=dialer_proof(OTHER_SECRET, transcript(said, answer, b""))))
        told.append(refused(one, broker, clock))
    assert told == [m.HandshakeAnswer(Code.CLUSTER_AUTHORIZATION_FAILED, "you have not proven who you are", "c", 3, 0)] * 4
    assert broker.messages == []


def test_who_brings_no_nonce_is_told_the_same(party: Make, stranger: Strange, clock: ManualClock) -> None:
    broker = party(3, security=ALL)
    for nonce in (b"", b"n" * 31, b"n" * 33):
        one = stranger(broker.endpoint)
        one.hello(nonce=nonce)
        assert refused(one, broker, clock).message == "you have not proven who you are"


def test_a_proof_is_good_for_one_connection(party: Make, stranger: Strange, clock: ManualClock) -> None:
    broker = party(3, security=ALL)
    first, second = stranger(broker.endpoint), stranger(broker.endpoint)
    said, answer = challenged(first, broker)
    proven = attrs.evolve(said, proof=dialer_proof(CLIENT_SECRET, transcript(said, answer, b"")))
    first.send(proven)
    idle([broker], 5)
    last = first.read()
    assert is_listener_proof(CLIENT_SECRET, transcript(said, answer, b""), last.proof)
    again, other = challenged(second, broker)
    assert again == said
    assert other.nonce != answer.nonce
    second.send(proven)
    assert refused(second, broker, clock).error == Code.CLUSTER_AUTHORIZATION_FAILED


def test_what_the_listener_says_is_no_proof_of_the_dialer(party: Make, stranger: Strange, clock: ManualClock) -> None:
    """The listener is dialed twice, and asked to solve its own challenge."""
    broker = party(3, security=ALL)
    one, two = stranger(broker.endpoint), stranger(broker.endpoint)
    said, answer = challenged(one, broker)
    mirrored, mirror = challenged(two, broker, nonce=answer.nonce)
    assert mirror.proof == b""  # nobody gets a proof out of it before one was given
    one.send(attrs.evolve(said, proof=mirror.nonce))
    assert refused(one, broker, clock).error == Code.CLUSTER_AUTHORIZATION_FAILED
    assert mirrored.nonce == answer.nonce


@pytest.mark.parametrize("changes", [{"role": "admin/anna"}, {"role": "broker", "broker_id": 2, "cluster_id": "c"}, {"role": "broker"}])
def test_a_secret_of_clients_makes_nobody_more(party: Make, stranger: Strange, clock: ManualClock, changes: dict[str, Any]) -> None:
    broker = party(3, security=ALL)
    one = stranger(broker.endpoint)
    said, answer = challenged(one, broker, **changes)
    one.send(attrs.evolve(said, proof=dialer_proof(CLIENT_SECRET, transcript(said, answer, b""))))
    assert refused(one, broker, clock).error == Code.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    "changes", [{"role": "admin/anna"}, {"role": "broker", "broker_id": 2}, {"role": "broker"}, {"lane": 2}, {"nonce": b"m" * 32}]
)
def test_nobody_becomes_another_while_it_proves(party: Make, stranger: Strange, clock: ManualClock, changes: dict[str, Any]) -> None:
    broker = party(3, security=ALL)
    one = stranger(broker.endpoint)
    said, answer = challenged(one, broker)
    proof = dialer_proof(CLIENT_SECRET, transcript(said, answer, b""))
    one.send(attrs.evolve(said, proof=proof, **changes))
    assert refused(one, broker, clock).error == Code.CLUSTER_AUTHORIZATION_FAILED


def test_nobody_speaks_before_it_has_proven(party: Make, stranger: Strange) -> None:
    broker = party(3, security=ALL)
    one = stranger(broker.endpoint)
    challenged(one, broker)
    one.send(question(1))
    idle([broker], 5)
    assert one.is_cut_off()
    assert broker.messages == []


def test_without_a_proof_in_time_it_ends(party: Make, stranger: Strange, clock: ManualClock) -> None:
    broker = party(3, security=ALL)
    one = stranger(broker.endpoint)
    challenged(one, broker)
    clock.advance(broker.transport.limits.handshake_timeout_ms)
    idle([broker], 5)
    assert one.is_cut_off()


# -------------------------------------------------------------------------------------------------------------- downgrades


def test_a_dialer_with_a_secret_does_not_go_on_without_proofs(party: Make) -> None:
    broker, client = party(3), party(security=of_client())
    client.say(broker.endpoint, question(1))
    settle([broker, client], lambda: bool(client.told("dial_failed")))
    assert "asks for no proof, and gives none" in client.told("dial_failed")[0]["reason"]
    assert broker.messages == []


def test_a_listener_that_asks_but_does_not_prove_is_left(party: Make, clock: ManualClock) -> None:
    """It knows another secret, and lets everybody in."""
    broker, client = party(3, security=ALL), party(security=of_client())

    class Credulous(type(broker.transport._opening._reception)):  # type: ignore[misc]
        def _proven(self, connection: Any, again: Any) -> Any:
            verdict = super()._proven(connection, again)
            return attrs.evolve(verdict, answer=attrs.evolve(verdict.answer, proof=fresh_nonce()))

    broker.transport._opening._reception.__class__ = Credulous
    client.say(broker.endpoint, question(1))
    settle([broker, client], lambda: bool(client.told("dial_failed")))
    assert "has not proven that it knows the secret of client" in client.told("dial_failed")[0]["reason"]
    assert broker.messages == []


def test_a_dialer_without_a_secret_is_told_what_is_missing(party: Make, clock: ManualClock) -> None:
    broker, client = party(3, security=ALL), party()
    client.say(broker.endpoint, question(1))
    settle([broker, client], lambda: bool(broker.told("authentication_failed")))
    clock.advance(REFUSE_AFTER_MS)
    settle([broker, client], lambda: bool(client.told("dial_failed")))
    assert "have not proven" in client.told("dial_failed")[0]["reason"]


# ------------------------------------------------------------------------------------------------------- what is let through


def test_a_wish_is_answered_before_an_actor_sees_it(party: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    broker, client = party(3, security=ALL), party(security=of_client())
    anna = party(security=of_client(b"of anna alone" * 3, "admin/anna"))
    client.say(broker.endpoint, m.Admin(1, "delete_topic", {"name": "t"}))
    settle([broker, client], lambda: len(client.messages) == 1)
    assert client.messages[0].error == Code.CLUSTER_AUTHORIZATION_FAILED
    assert broker.messages == []
    for number in (2, 3):
        anna.say(broker.endpoint, m.Admin(number, "delete_topic", {"name": "t"}))
    settle([broker, anna], lambda: len(broker.messages) == 2)
    broker.say(broker.items[0][0], m.AdminAnswer(2, 0))
    settle([broker, anna], lambda: len(anna.messages) == 1)
    anna.transport.close()
    settle([broker], lambda: broker.open == 1)
    late = party(security=of_client(b"of anna alone" * 3, "admin/anna"))
    late.say(broker.endpoint, m.Admin(4, "drain", {"broker": 3}))
    settle([broker, late], lambda: len(broker.messages) == 3)
    broker.transport.close()
    lines = [record.getMessage().partition("action=")[2] for record in caplog.records]
    outcomes = ("ClusterAuthorizationFailed", "ok", "unknown")
    assert lines == [*(f"delete_topic topic=t outcome={outcome}" for outcome in outcomes), 'drain topic="*" broker=3 outcome=unknown']


def test_a_number_that_waits_for_its_answer_is_not_given_again(party: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog.audit")
    broker, anna = party(3, security=ALL), party(security=of_client(b"of anna alone" * 3, "admin/anna"))
    for name in ("t", "u"):
        anna.say(broker.endpoint, m.Admin(2, "delete_topic", {"name": name}))
    settle([broker, anna], lambda: len(broker.messages) == 1 and broker.open == 0)
    assert "a second wish under number 2" in broker.told("peer_disconnected")[0]["reason"]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith("delete_topic topic=t outcome=unknown")


def test_what_is_denied_is_answered_and_what_is_hidden_is_not_told(party: Make) -> None:
    rules = Security(secret=ALL.secret, authorizer=lambda principal, action, topic: topic == "seen")
    broker = party(3, security=rules, topic_of=lambda topic_id: "seen" if topic_id == P0.topic_id else "hidden")
    client = party(security=of_client())
    other = PartitionId(b"h" * 16, 0, 0)
    for number, partition in ((1, P0), (2, other)):
        client.say(broker.endpoint, m.ListOffsets(number, [m.ListOffsetsEntry(partition, 0, -1)]))
    settle([broker, client], lambda: len(client.messages) == len(broker.messages) == 1)
    assert broker.messages[0].request == 1
    assert client.messages == [m.ListedOffsets(2, [m.ListedOffset(other, Code.TOPIC_AUTHORIZATION_FAILED)])]
    topics = [m.TopicView(name, name.encode() * 4, TopicConfig(), ()) for name in ("seen", "hide")]
    broker.say(broker.items[0][0], m.ClusterView(1, 1, -1, 3, [], topics))
    settle([broker, client], lambda: len(client.messages) == 2)
    assert [topic.topic for topic in client.messages[1].topics] == ["seen"]


def let_in(party: Party, stranger: Strange) -> Stranger:
    """A client that has proven to be one, and then says what it likes."""
    one = stranger(party.endpoint)
    said, answer = challenged(one, party)
    one.send(attrs.evolve(said, proof=dialer_proof(CLIENT_SECRET, transcript(said, answer, b""))))
    idle([party], 5)
    assert one.read().error == 0
    return one


@pytest.mark.parametrize("authorizer", [None, lambda *_: True])
@pytest.mark.parametrize("place", [{"x": 1}, {}, [], [None], [[]], None, 7, "x", b"x", ["zz"], ["6"]])
def test_followers_of_what_is_no_partition(party: Make, place: Any, authorizer: Any) -> None:
    broker = party(3, security=Security(secret={"client": CLIENT_SECRET}, authorizer=authorizer))
    client = party(security=of_client())
    client.say(broker.endpoint, m.Admin(1, "followers", {"partitions": [place]}))
    settle([broker, client], lambda: len(broker.messages) == 1)


@pytest.mark.parametrize("kind", MESSAGE_TYPES.values(), ids=lambda kind: kind.__name__)
def test_a_client_that_has_been_let_in_sends_every_message(party: Make, stranger: Strange, kind: type[Any]) -> None:
    broker, sample = party(3, security=ALL), next(each for each in messages().values() if type(each) is kind)
    broker.transport.listen(("controller", 3), broker.receive)
    if kind is m.Fetch:
        sample = attrs.evolve(sample, replica=-1)
    if kind is m.Admin:
        sample = attrs.evolve(sample, verb="explain", origin=None)
    for route in (0, 1, 2, 3):
        one, before = let_in(broker, stranger), len(broker.messages)
        one.send(sample, route)
        goes_on = OF_A_CLIENT[kind] == TO_THE_ACTOR and route == 0
        settle([broker], lambda one=one, goes_on=goes_on, before=before: len(broker.messages) > before if goes_on else one.is_cut_off())
        assert len(broker.messages) == before + goes_on


@pytest.mark.parametrize("message", [m.Fetch(1, 2, 1, 0, -1, 0, 1, 1, []), m.Admin(1, "explain", {}, [1, 1])])
def test_a_client_that_has_been_let_in_is_no_replica_and_forwards_nothing(party: Make, stranger: Strange, message: Any) -> None:
    broker = party(3, security=ALL)
    one = let_in(broker, stranger)
    one.send(message)
    settle([broker], one.is_cut_off)
    assert broker.messages == []


def test_brokers_are_not_asked_what_they_may(party: Make) -> None:
    rules = Security(secret=ALL.secret, authorizer=lambda *_: False)
    one, two = party(1, security=rules), party(2, security=rules)
    one.say(2, m.Flushed(1, 0, []))
    settle([one, two], lambda: len(two.messages) == 1)


def test_a_client_in_the_process_of_a_broker_is_not_asked_either(party: Make) -> None:
    rules = Security(secret=ALL.secret, authorizer=lambda *_: False)
    broker, client = party(3, security=rules), party(security=rules.as_broker())
    client.say(broker.endpoint, m.Admin(1, "describe_features", {}))
    settle([broker, client], lambda: len(broker.messages) == 1)
    (connection,) = broker.transport._connections.open.values()
    assert (str(connection.identity), connection.is_asked, connection.peer) == ("broker", True, ("peer", 1))


@pytest.mark.parametrize("message", [m.Flushed(-1, 0, []), m.Fetch(1, 3, 1, 0, -1, 0, 1, 1, []), m.Admin(1, "explain", {}, [1, 1])])
def test_it_is_no_replica_and_forwards_nothing(party: Make, stranger: Strange, message: Any) -> None:
    broker = party(3, security=ALL)
    one = stranger(broker.endpoint)
    said, answer = challenged(one, broker, role="broker")
    one.send(attrs.evolve(said, proof=dialer_proof(BROKER_SECRET, transcript(said, answer, b""))))
    idle([broker], 5)
    assert one.read().error == Code.NONE
    one.send(message)
    settle([broker], one.is_cut_off)
    assert broker.messages == []


# ------------------------------------------------------------------------------------------------------------------ abuse


def test_so_many_of_an_address_wait_to_be_refused(party: Make, stranger: Strange, clock: ManualClock) -> None:
    broker, client = party(3, security=ALL), party(security=of_client())
    strangers = [stranger(broker.endpoint) for _ in range(UNPROVEN_MAX + 4)]
    for one in strangers:
        one.hello(nonce=b"")
    idle([broker])
    assert sum(one.is_cut_off() for one in strangers) == 4
    client.say(broker.endpoint, question(1))  # from the same address
    settle([broker, client], lambda: len(broker.messages) == 1)
    clock.advance(REFUSE_AFTER_MS)
    idle([broker], 5)
    for one in strangers:
        one.close()
    idle([broker], 5)
    late = stranger(broker.endpoint)
    late.hello(nonce=b"")
    assert refused(late, broker, clock).error == Code.CLUSTER_AUTHORIZATION_FAILED


def test_of_one_address_it_is_told_once_a_minute(party: Make, stranger: Strange, clock: ManualClock) -> None:
    broker = party(3, security=ALL)
    for _ in range(3):
        one = stranger(broker.endpoint)
        one.hello(nonce=b"")
        refused(one, broker, clock)
    assert len(broker.told("authentication_failed")) == 1
    clock.advance(60_000)
    one = stranger(broker.endpoint)
    one.hello(nonce=b"")
    refused(one, broker, clock)
    assert [fields["more"] for fields in broker.told("authentication_failed")] == [0, 2]


def test_nothing_shows_a_secret(party: Make, clock: ManualClock) -> None:
    broker, client = party(3, security=ALL), party(security=of_client(OTHER_SECRET))
    client.say(broker.endpoint, question(1))
    settle([broker, client], lambda: bool(broker.told("authentication_failed")))
    clock.advance(REFUSE_AFTER_MS)
    settle([broker, client], lambda: bool(client.told("dial_failed")))
    said = repr((broker.events, client.events, broker.transport, client.transport, ALL))
    assert not any(each.decode() in said for each in (BROKER_SECRET, CLIENT_SECRET, OTHER_SECRET))
