"""What both ends make of each other."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from replog.codec import PROTOCOL_VERSION
from replog.errors import CODES, Code
from replog.messages import Handshake, HandshakeAnswer
from replog.transport.tcp.handshake import check_answer, greeting, judge

CLIENT = greeting("", "client", -1, -1, 1)
BROKER = greeting("c", "broker", 2, 7, 0)
NEWEST = PROTOCOL_VERSION


@pytest.mark.parametrize(
    "said",
    [
        CLIENT,
        attrs.evolve(CLIENT, cluster_id="c", expects=7, lane=2),
        BROKER,
        attrs.evolve(BROKER, expects=-1),
        attrs.evolve(BROKER, version_max=NEWEST + 5),
    ],
)
def test_a_welcome_guest(said: Handshake) -> None:
    answer = judge(said, "c", 7)
    assert answer == HandshakeAnswer(0, "", "c", 7, NEWEST)
    assert check_answer(answer, said.cluster_id, said.expects) is None


@pytest.mark.parametrize(
    ("said", "mine", "code", "words"),
    [
        (attrs.evolve(CLIENT, role="king"), "c", Code.INVALID_REQUEST, ["king"]),
        (attrs.evolve(CLIENT, lane=3), "c", Code.INVALID_REQUEST, ["lane 3"]),
        (attrs.evolve(CLIENT, broker_id=2), "c", Code.INVALID_REQUEST, ["broker 2"]),
        (attrs.evolve(BROKER, broker_id=-1), "c", Code.INVALID_REQUEST, ["-1"]),
        (attrs.evolve(CLIENT, version_min=NEWEST + 1, version_max=NEWEST + 2), "c", Code.INVALID_REQUEST, [str(NEWEST + 1), str(NEWEST)]),
        (attrs.evolve(CLIENT, version_min=0, version_max=0), "c", Code.INVALID_REQUEST, ["versions 0 to 0"]),
        (CLIENT, "", Code.BROKER_ID_NOT_REGISTERED, ["try again"]),
        (attrs.evolve(BROKER, cluster_id=""), "", Code.BROKER_ID_NOT_REGISTERED, ["try again"]),
        (attrs.evolve(BROKER, cluster_id="d"), "c", Code.INCONSISTENT_CLUSTER_ID, ["'d'", "'c'"]),
        (attrs.evolve(CLIENT, cluster_id="d"), "c", Code.INCONSISTENT_CLUSTER_ID, ["'d'", "'c'"]),
        (attrs.evolve(BROKER, cluster_id=""), "c", Code.INCONSISTENT_CLUSTER_ID, ["''", "'c'"]),
        (attrs.evolve(BROKER, broker_id=7), "c", Code.DUPLICATE_BROKER_REGISTRATION, ["broker 7"]),
        (attrs.evolve(BROKER, expects=4), "c", Code.BROKER_ID_NOT_REGISTERED, ["broker 4", "broker 7"]),
    ],
)
def test_a_guest_that_is_not_let_in_is_told_why(said: Handshake, mine: str, code: int, words: list[str]) -> None:
    answer = judge(said, mine, 7)
    assert answer.error == code
    assert all(word in answer.message for word in words), answer.message
    assert check_answer(answer, "", -1) is not None


def test_with_proofs_a_broker_may_ask_as_a_client_does() -> None:
    said = greeting("", "broker", -1, -1, 1)
    assert judge(said, "c", 7, named=True) == HandshakeAnswer(0, "", "c", 7, NEWEST)
    assert judge(attrs.evolve(said, broker_id=-2), "c", 7, named=True).error == Code.INVALID_REQUEST
    assert judge(attrs.evolve(BROKER, cluster_id=""), "c", 7, named=True).error == Code.INCONSISTENT_CLUSTER_ID


def test_not_knowing_the_cluster_yet_can_be_tried_again() -> None:
    assert CODES[judge(CLIENT, "", 7).error].retriable


@pytest.mark.parametrize(
    ("changes", "mine", "expects", "word"),
    [
        ({"error": 104, "message": "no"}, "c", 7, "no"),
        ({"error": 104, "message": "a\x1b[31m b\nc" + 300 * "d"}, "c", 7, "104: a?[31m b?c" + 289 * "d"),
        ({"version": NEWEST + 1}, "c", 7, "version"),
        ({"version": 0}, "c", 7, "version"),
        ({"cluster_id": "d"}, "c", 7, "'d'"),
        ({"cluster_id": ""}, "", 7, "''"),
        ({"broker_id": 8}, "c", 7, "broker 8"),
        ({"broker_id": -1}, "c", -1, "broker -1"),
    ],
)
def test_a_dialer_does_not_go_on_with_whom_it_did_not_mean(changes: dict[str, Any], mine: str, expects: int, word: str) -> None:
    good = HandshakeAnswer(0, "", "c", 7, NEWEST)
    assert check_answer(good, mine, expects) is None
    refused = check_answer(attrs.evolve(good, **changes), mine, expects)
    assert refused is not None
    assert word in refused.reason
