"""Challenge and response: both ends show that they know a secret, bound to everything that was said before, and never say it.

The proof of an end is HMAC-SHA256 over a label of its own (so that neither can be given back to its author) and over both
handshakes: cluster, versions, role, broker ids, lane, both nonces; and over the certificate of the listener where there is
TLS, so that whoever stands in between with another certificate passes on what is of no use. Who dials proves first:
nobody gets anything to guess at by connecting. Sources: DESIGN, section 9; RFC 2104; RFC 5802, section 6 (channel binding).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from hashlib import sha256
from struct import Struct
from typing import Final

from replog.messages import Handshake, HandshakeAnswer

__all__ = ["NONCE_BYTES", "dialer_proof", "fresh_nonce", "is_dialer_proof", "is_listener_proof", "listener_proof", "transcript"]

NONCE_BYTES: Final = 32
_DIALER: Final = b"replog dialer 1"
_LISTENER: Final = b"replog listener 1"
_LENGTH: Final = Struct("<I")


def fresh_nonce() -> bytes:
    """Bytes that were never used and that nobody foresees."""
    return secrets.token_bytes(NONCE_BYTES)


def transcript(said: Handshake, answer: HandshakeAnswer, channel: bytes) -> bytes:
    """All that both have said, without proofs, in one way only; `channel` identifies the listener's certificate, b"" without TLS."""
    fields = (
        said.cluster_id, said.role, said.broker_id, said.expects, said.lane, said.version_min, said.version_max, said.nonce,
        answer.error, answer.message, answer.cluster_id, answer.broker_id, answer.version, answer.nonce, channel,
    )  # fmt: skip
    parts = [field if isinstance(field, bytes) else str(field).encode() for field in fields]
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def dialer_proof(secret: bytes, said: bytes) -> bytes:
    """What whoever dialed sends, after this transcript."""
    return _proof(secret, _DIALER, said)


def listener_proof(secret: bytes, said: bytes) -> bytes:
    """What whoever listens answers, after this transcript."""
    return _proof(secret, _LISTENER, said)


def is_dialer_proof(known: Sequence[bytes], said: bytes, proof: bytes) -> bytes | None:
    """Which of these secrets the dialer knows; None: none. Takes as long with no secret as with one."""
    found = None
    for secret in known or (secrets.token_bytes(NONCE_BYTES),):
        if hmac.compare_digest(dialer_proof(secret, said), proof) and known:
            found = secret
    return found


def is_listener_proof(secret: bytes, said: bytes, proof: bytes) -> bool:
    """Whether the listener knows this secret."""
    return hmac.compare_digest(listener_proof(secret, said), proof)


def _proof(secret: bytes, label: bytes, said: bytes) -> bytes:
    return hmac.digest(secret, _LENGTH.pack(len(label)) + label + said, sha256)
