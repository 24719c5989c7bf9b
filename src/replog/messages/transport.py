"""What two ends of a connection tell each other before anything else. No actor ever sees these: transports do."""

from __future__ import annotations

from typing import Final, Literal

from attrs import define

__all__ = ["BROKER", "CLIENT", "Handshake", "HandshakeAnswer", "Role"]

Role = Literal["client", "broker"]
"""As what somebody connects. Who it then proves to be may be an admin as well: `replog.security.identity.Proven`."""
CLIENT: Final = "client"
"""May append, read and wish."""
BROKER: Final = "broker"
"""May also replicate, command and change an ISR, all in its own name."""


@define
class Handshake:
    """The first frame of whoever connects: who it is, and what it believes to have reached (design, section 7).

    `cluster_id`: "" if it does not know yet. `expects`: the broker it wants to reach, -1 for whoever listens there. `lane`
    separates kinds of messages: none waits behind those of another lane. Versions are of the protocol (`replog.codec`).
    `nonce` and `proof` are for identities that are proven; empty where none is asked for.
    """

    cluster_id: str
    role: str
    broker_id: int
    """-1 for a client, and for whoever asks as one with the secret of brokers: a broker's own process."""
    expects: int
    lane: int
    version_min: int
    version_max: int
    nonce: bytes = b""
    proof: bytes = b""


@define
class HandshakeAnswer:
    """The first frame of whoever listens. With an error nothing follows it, and the connection is closed."""

    error: int
    message: str
    """For people; "" without an error."""
    cluster_id: str
    broker_id: int
    version: int
    """The newest that both speak."""
    nonce: bytes = b""
    proof: bytes = b""
