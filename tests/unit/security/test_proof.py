"""What is proven, and that it proves nothing else."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from replog.messages import Handshake, HandshakeAnswer
from replog.security.proof import (
    NONCE_BYTES,
    dialer_proof,
    fresh_nonce,
    is_dialer_proof,
    is_listener_proof,
    listener_proof,
    transcript,
)

SECRET, OTHER = b"s" * 32, b"o" * 32
SAID = Handshake("c", "client", -1, 7, 1, 1, 1, b"d" * 32)
ANSWER = HandshakeAnswer(0, "", "c", 7, 1, b"l" * 32)
WORDS = transcript(SAID, ANSWER, b"channel")


def test_who_knows_the_secret_proves_it() -> None:
    assert is_dialer_proof([SECRET], WORDS, dialer_proof(SECRET, WORDS)) == SECRET
    assert is_listener_proof(SECRET, WORDS, listener_proof(SECRET, WORDS))
    assert len(dialer_proof(SECRET, WORDS)) == 32


def test_each_accepted_secret_counts_and_says_which_it_was() -> None:
    assert is_dialer_proof([OTHER, SECRET], WORDS, dialer_proof(SECRET, WORDS)) == SECRET
    assert is_dialer_proof([SECRET, OTHER], WORDS, dialer_proof(SECRET, WORDS)) == SECRET


@pytest.mark.parametrize("proof", [b"", b"\0" * 32, dialer_proof(OTHER, WORDS), listener_proof(SECRET, WORDS), dialer_proof(SECRET, b"")])
def test_nothing_else_is_a_proof_of_the_dialer(proof: bytes) -> None:
    assert is_dialer_proof([SECRET], WORDS, proof) is None
    assert is_dialer_proof([], WORDS, proof) is None


@pytest.mark.parametrize("proof", [b"", dialer_proof(SECRET, WORDS), listener_proof(OTHER, WORDS), listener_proof(SECRET, b"")])
def test_nothing_else_is_a_proof_of_the_listener(proof: bytes) -> None:
    """The proof of the dialer least of all: given back to it, it would prove nothing."""
    assert not is_listener_proof(SECRET, WORDS, proof)


CHANGED_SAID = {
    "cluster_id": "d", "role": "admin", "broker_id": 2, "expects": -1, "lane": 2, "version_min": 0, "version_max": 2, "nonce": b"e" * 32
}  # fmt: skip
CHANGED_ANSWER = {"error": 1, "message": "x", "cluster_id": "d", "broker_id": 8, "version": 2, "nonce": b"m" * 32}


@pytest.mark.parametrize(("field", "value"), CHANGED_SAID.items())
def test_a_proof_is_bound_to_what_the_dialer_has_said(field: str, value: Any) -> None:
    words = transcript(attrs.evolve(SAID, **{field: value}), ANSWER, b"channel")
    assert is_dialer_proof([SECRET], words, dialer_proof(SECRET, WORDS)) is None


@pytest.mark.parametrize(("field", "value"), CHANGED_ANSWER.items())
def test_a_proof_is_bound_to_what_the_listener_has_said(field: str, value: Any) -> None:
    words = transcript(SAID, attrs.evolve(ANSWER, **{field: value}), b"channel")
    assert is_dialer_proof([SECRET], words, dialer_proof(SECRET, WORDS)) is None


def test_every_field_but_the_proofs_is_bound() -> None:
    assert {field.name for field in attrs.fields(Handshake)} == {*CHANGED_SAID, "proof"}
    assert {field.name for field in attrs.fields(HandshakeAnswer)} == {*CHANGED_ANSWER, "proof"}


def test_a_proof_is_bound_to_the_certificate_of_the_listener() -> None:
    assert is_dialer_proof([SECRET], transcript(SAID, ANSWER, b"another"), dialer_proof(SECRET, WORDS)) is None


def test_texts_that_join_to_the_same_are_told_apart() -> None:
    one = attrs.evolve(SAID, cluster_id="ab", role="client")
    two = attrs.evolve(SAID, cluster_id="a", role="bclient")
    assert transcript(one, ANSWER, b"") != transcript(two, ANSWER, b"")


def test_nonces_are_long_and_never_the_same() -> None:
    assert {len(fresh_nonce()) for _ in range(100)} == {NONCE_BYTES}
    assert len({fresh_nonce() for _ in range(100)}) == 100
