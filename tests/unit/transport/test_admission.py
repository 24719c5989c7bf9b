"""Who may say what: every message type from every kind of peer, on every route."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from tests.unit.samples import messages

from replog import messages as m
from replog.codec import FROM_CONTROLLER, MESSAGE_TYPES, TO_CONTROLLER
from replog.transport.tcp.admission import refusal

OWN = {  # in the name of broker 3
    m.Fetch: "replica", m.Flushed: "replica",
    m.Heartbeat: "broker_id", m.AlterIsr: "broker_id", m.ReplicasFailed: "broker_id", m.LeaderAndIsrAnswer: "broker_id",
    m.StopReplicaAnswer: "broker_id", m.ReplicaStatesAnswer: "broker_id", m.ControlledShutdown: "broker_id",
    m.LeaderAndIsr: "controller_id", m.StopReplica: "controller_id", m.UpdateMetadata: "controller_id", m.ReplicaStates: "controller_id",
}  # fmt: skip
TO, FROM = TO_CONTROLLER, FROM_CONTROLLER
BETWEEN_BROKERS = {
    m.Fetch: 0, m.Fetched: 0, m.Flushed: 0,
    m.Metadata: TO, m.Admin: TO, m.Heartbeat: TO, m.AlterIsr: TO, m.ReplicasFailed: TO, m.LeaderAndIsrAnswer: TO, m.StopReplicaAnswer: TO,
    m.ReplicaStatesAnswer: TO, m.ControlledShutdown: TO, m.ControlledShutdownAnswer: FROM,
    m.LeaderAndIsr: FROM, m.StopReplica: FROM, m.UpdateMetadata: FROM, m.ReplicaStates: FROM, m.AlterIsrAnswer: FROM, m.AdminAnswer: FROM,
}  # fmt: skip
OF_CLIENTS = {m.Produce, m.Stage, m.Publish, m.Fetch, m.ListOffsets, m.OffsetsForLeaderEpoch, m.Metadata, m.Admin}
TO_CLIENTS = {m.Produced, m.Published, m.Fetched, m.ListedOffsets, m.Epochs, m.ClusterView, m.AdminAnswer}


def every() -> dict[type[Any], Any]:
    """One sample of each type, in the name of broker 3 where it bears one."""
    samples = {type(each): each for each in messages().values() if type(each) in MESSAGE_TYPES.values()}
    return {kind: attrs.evolve(each, **{OWN[kind]: 3}) if kind in OWN else each for kind, each in samples.items()}


EVERY = every()


def test_every_type_has_a_sample() -> None:
    assert set(EVERY) == set(MESSAGE_TYPES.values())


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_a_broker_says_what_brokers_say_on_its_route(kind: type[Any]) -> None:
    message = attrs.evolve(EVERY[kind], origin=7) if kind is m.Admin else EVERY[kind]
    allowed = [route for route in range(4) if refusal(message, route, peer=3, role="broker") is None]
    assert allowed == ([BETWEEN_BROKERS[kind]] if kind in BETWEEN_BROKERS else [])


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
def test_a_broker_speaks_in_its_own_name_only(kind: type[Any]) -> None:
    for name in (2, -1):
        problem = refusal(attrs.evolve(EVERY[kind], **{OWN[kind]: name}), BETWEEN_BROKERS[kind], peer=3, role="broker")
        assert problem is not None
        assert f"in the name of broker {name}" in problem


def test_a_broker_forwards_for_somebody() -> None:
    problem = refusal(attrs.evolve(EVERY[m.Admin], origin=None), TO, peer=3, role="broker")
    assert problem is not None
    assert "who wants it" in problem


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_a_client_asks_and_nothing_else(kind: type[Any]) -> None:
    message = EVERY[kind]
    if kind is m.Fetch:
        message = attrs.evolve(message, replica=-1)
    if kind is m.Admin:
        message = attrs.evolve(message, origin=None)
    allowed = [route for route in range(4) if refusal(message, route, peer=-1, role="broker") is None]
    assert allowed == ([0] if kind in OF_CLIENTS else [])


@pytest.mark.parametrize("message", [EVERY[m.Fetch], attrs.evolve(EVERY[m.Fetch], replica=0), attrs.evolve(EVERY[m.Admin], origin=0)])
def test_a_client_is_no_replica_and_forwards_nothing(message: Any) -> None:
    assert refusal(message, 0, peer=-1, role="broker") is not None


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_a_client_hears_answers_and_nothing_else(kind: type[Any]) -> None:
    allowed = [route for route in range(4) if refusal(EVERY[kind], route, peer=3, role="client") is None]
    assert allowed == ([0] if kind in TO_CLIENTS else [])
