"""From the first frame of a connection until it is open: who the other end is, what it has to prove, and what it is told if it does not.

What is refused for want of a proof gets one and the same answer, whoever it claimed to be, and not before `REFUSE_AFTER_MS`; of
one address so many wait for that at most, and further ones are closed without an answer. Others from there are not held up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, frozen

from replog.codec import CodecError
from replog.errors import Code
from replog.messages import BROKER, CLIENT, Handshake, HandshakeAnswer
from replog.security.identity import Identity, identity_from
from replog.security.proof import NONCE_BYTES, dialer_proof, fresh_nonce, is_dialer_proof, is_listener_proof, listener_proof, transcript
from replog.transport.tcp.connection import Connection
from replog.transport.tcp.connections import Unwelcome
from replog.transport.tcp.handshake import check_answer, greeting, judge

if TYPE_CHECKING:
    from replog.security.door import Door
    from replog.security.settings import Security

__all__ = ["REFUSE_AFTER_MS", "UNPROVEN_MAX", "Reception", "Verdict", "door_of", "unknown"]

REFUSE_AFTER_MS: Final = 1_000
UNPROVEN_MAX: Final = 16
"""Connections of one address that wait to be refused."""
_UNPROVEN: Final = "you have not proven who you are"


def unknown(topic_id: bytes) -> str | None:
    """No topic is known."""
    return None


def door_of(security: Security | None, topic_of: Callable[[bytes], str | None], now_ms: Callable[[], int]) -> Door | None:
    """What looks at the messages of those who were let in; None without security."""
    if security is None:
        return None
    from replog.security.audit import Refusals
    from replog.security.door import Door  # nothing of it for whoever uses none

    return Door(security, topic_of, Refusals(now_ms))


@frozen
class Verdict:
    """What a listener does about a frame: `answer` is sent, and then it is open, or it waits for a proof, or it ends."""

    answer: HandshakeAnswer
    said: Handshake | None = None
    """As whom it is let in; None: not, or not yet."""
    later: bool = False
    """It is refused for want of a proof."""


class Reception:
    """Of one transport. Decides; what it decides is carried out by the transport."""

    def __init__(self, role: str, security: Security | None, *, on_event: Callable[[str, dict[str, Any]], None]) -> None:
        self._role = role
        self._security = security
        self._on_event = on_event
        self._files: Any = None
        if security is not None and security.tls is not None:
            from replog.security.tls import TlsFiles  # no TLS for whoever uses none

            self._files = TlsFiles(security)
            self._files.loaded(listens=False)  # what is wrong with them is said now
        self._unproven: Counter[str] = Counter()

    def tls_of(self, connection: Connection) -> Any:
        """What a connection that has just been made is to be secured with; None: it is not."""
        return None if self._files is None else self._files.loaded(listens=not connection.dialed)

    # ------------------------------------------------------------------------------------------------------ who is dialed

    def judge(self, connection: Connection, said: Any, cluster_id: str) -> Verdict:
        """What a listener makes of a frame on a connection that is not open. Raises CodecError for what is no handshake."""
        if type(said) is not Handshake:
            raise CodecError(f"{type(said).__name__} before the handshake")
        assert isinstance(connection.local, int)
        if connection.exchange is not None:
            return self._proven(connection, said)
        answer = judge(said, cluster_id, connection.local, named=self._security is not None)
        if answer.error:
            return Verdict(answer)
        if self._security is None:
            return Verdict(answer, said)
        shown = connection.socket.identity if self._files is not None else None
        if shown is not None and _covers(shown, said):
            connection.identity = shown
            return Verdict(answer, said)
        if not self._security.secret or len(said.nonce) != NONCE_BYTES:
            return self._refused(connection, answer)
        answer.nonce = fresh_nonce()
        connection.exchange = said, answer
        return Verdict(answer)

    def _proven(self, connection: Connection, again: Handshake) -> Verdict:
        assert self._security is not None
        said, answer = connection.exchange
        words = transcript(said, answer, self._channel(connection))
        known = is_dialer_proof(self._security.secret.get(said.role, ()), words, again.proof)
        if known is None or evolve(again, proof=b"") != said:
            return self._refused(connection, answer)
        connection.identity = Identity(BROKER, str(said.broker_id)) if said.broker_id >= 0 else identity_from(said.role)
        connection.exchange = None
        return Verdict(evolve(answer, proof=listener_proof(known, words)), said)

    def _channel(self, connection: Connection) -> bytes:
        channel: bytes = connection.socket.channel if self._files is not None else b""
        return channel

    def _refused(self, connection: Connection, answer: HandshakeAnswer) -> Verdict:
        return Verdict(evolve(answer, error=Code.CLUSTER_AUTHORIZATION_FAILED, message=_UNPROVEN, version=0, nonce=b""), later=True)

    def may_wait(self, connection: Connection) -> bool:
        """Count one that is refused for want of a proof; False: too many of its address wait for that already."""
        self.failed(connection, _UNPROVEN)
        address = connection.origin
        if self._unproven[address] >= UNPROVEN_MAX:
            return False
        self._unproven[address] += 1
        connection.exchange = address
        return True

    def failed(self, connection: Connection, reason: str) -> None:
        """Tell that somebody has not proven who it is."""
        self._on_event("authentication_failed", {"from": connection.name, "reason": reason})

    def ended(self, connection: Connection) -> None:
        """It is closed: if it waited to be refused, another one may."""
        if connection.refusal is not None and isinstance(connection.exchange, str):
            self._unproven[connection.exchange] -= 1
            if not self._unproven[connection.exchange]:
                del self._unproven[connection.exchange]

    # ---------------------------------------------------------------------------------------------------------- who dials

    def greet(self, connection: Connection, cluster_id: str) -> Handshake:
        """What is said first on a connection that was dialed."""
        local, security = connection.local, self._security
        broker_id = local if isinstance(local, int) and self._role == BROKER else -1
        role = self._role if self._role == BROKER or security is None else security.claim() or CLIENT
        said = greeting(cluster_id, role, broker_id, connection.expects, connection.lane)
        if security is not None:
            said.nonce = fresh_nonce() if role in security.secret else b""
            connection.exchange = said, None, b""
        return said

    def heard(self, connection: Connection, answer: Any, cluster_id: str) -> Handshake | None:
        """What a dialer makes of an answer: what it says next, or None if the connection is open.

        Raises Unwelcome if it does not go on with whom it has reached, CodecError for what is no answer.
        """
        if type(answer) is not HandshakeAnswer:
            raise CodecError(f"{type(answer).__name__} in place of the answer to a handshake")
        refused = check_answer(answer, cluster_id, connection.expects)
        if refused is not None:
            raise Unwelcome(f"{connection.name} {refused.reason}")
        if self._security is None:
            if answer.nonce:
                raise Unwelcome(f"{connection.name} asks for a proof, and this process has no secret; give security=")
            return None
        said, first, secret = connection.exchange
        if first is not None:
            self._check_proof(connection, said, first, secret, answer)
            return None
        if self._files is not None:
            shown = connection.socket.identity
            if shown != Identity(BROKER, str(answer.broker_id)):
                raise Unwelcome(f"{connection.name} says that it is broker {answer.broker_id}; its certificate is of {shown or 'nobody'}")
        return self._next(connection, said, answer)

    def _next(self, connection: Connection, said: Handshake, answer: HandshakeAnswer) -> Handshake | None:
        assert self._security is not None
        if not answer.nonce:
            if self._files is None:
                raise Unwelcome(f"{connection.name} asks for no proof, and gives none: it uses no security, or is none of the cluster's")
            connection.identity, connection.exchange = Identity(BROKER, str(answer.broker_id)), None
            return None
        known = self._security.secret.get(said.role)
        if known is None or len(answer.nonce) != NONCE_BYTES:
            raise Unwelcome(f"{connection.name} asks for a proof, and this process has no secret of {said.role}")
        connection.exchange = said, answer, known[0]  # which may have changed when the answer comes
        return evolve(said, proof=dialer_proof(known[0], transcript(said, answer, self._channel(connection))))

    def _check_proof(self, connection: Connection, said: Handshake, first: HandshakeAnswer, secret: bytes, answer: HandshakeAnswer) -> None:
        words = transcript(said, first, self._channel(connection))
        if not is_listener_proof(secret, words, answer.proof) or evolve(answer, proof=b"") != first:
            raise Unwelcome(f"{connection.name} has not proven that it knows the secret of {said.role}")
        connection.identity, connection.exchange = Identity(BROKER, str(first.broker_id)), None


def _covers(shown: Identity, said: Handshake) -> bool:
    """Whether a certificate is proof enough: a broker's of itself, and any of a client, who may then do what the certificate says."""
    if said.role == BROKER:
        return shown == Identity(BROKER, str(said.broker_id))
    return said.role == CLIENT
