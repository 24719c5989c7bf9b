"""The first frame each way: who is there, of which cluster, which versions; pure decisions of both ends."""

from __future__ import annotations

from attrs import frozen

from replog.codec import PROTOCOL_VERSION
from replog.errors import Code
from replog.messages import BROKER, CLIENT, Handshake, HandshakeAnswer
from replog.security.identity import identity_from
from replog.transport.tcp.lanes import LANES

__all__ = ["VERSION_MIN", "Refused", "check_answer", "greeting", "judge"]

VERSION_MIN = 1
"""The oldest protocol version that is still spoken."""


@frozen
class Refused:
    """Why a dialer does not go on with whom it reached."""

    reason: str


def greeting(cluster_id: str, role: str, broker_id: int, expects: int, lane: int) -> Handshake:
    """What a dialer says."""
    return Handshake(cluster_id, role, broker_id, expects, lane, VERSION_MIN, PROTOCOL_VERSION)


def judge(said: Handshake, cluster_id: str, broker_id: int, *, named: bool = False) -> HandshakeAnswer:
    """What broker `broker_id` of this cluster ("": it does not know yet) answers to whoever dials it.

    `named`: it asks for proofs, so that there are admins, and names of clients.
    """
    error, message = _fault(said, cluster_id, broker_id, named)
    return HandshakeAnswer(error, message, cluster_id, broker_id, 0 if error else min(said.version_max, PROTOCOL_VERSION))


def _fault(said: Handshake, cluster_id: str, broker_id: int, named: bool) -> tuple[int, str]:
    who = identity_from(said.role)
    if who is None or (who.is_broker and who.name) or not (named or said.role in (BROKER, CLIENT)):
        return Code.INVALID_REQUEST, f"there is no role {said.role!r:.40}"
    if said.lane not in LANES:
        return Code.INVALID_REQUEST, f"there is no lane {said.lane}"
    if said.role != BROKER and said.broker_id != -1:
        return Code.INVALID_REQUEST, f"a client claims to be broker {said.broker_id}"
    if said.role == BROKER and not (-1 if named else 0) <= said.broker_id < 2**31:  # -1: it asks as a client does
        return Code.INVALID_REQUEST, f"a broker claims the id {said.broker_id}"
    if said.version_min > PROTOCOL_VERSION or said.version_max < max(VERSION_MIN, said.version_min):
        mine = f"{VERSION_MIN} to {PROTOCOL_VERSION}"
        return Code.INVALID_REQUEST, f"you speak versions {said.version_min} to {said.version_max} of the protocol, this broker {mine}"
    if not cluster_id:
        return Code.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered yet and does not know its cluster; try again"
    if said.cluster_id != cluster_id and (said.cluster_id or said.broker_id >= 0):
        return Code.INCONSISTENT_CLUSTER_ID, f"you belong to cluster {said.cluster_id!r:.80}, broker {broker_id} to cluster {cluster_id!r}"
    if said.role == BROKER and said.broker_id == broker_id:
        return Code.DUPLICATE_BROKER_REGISTRATION, f"you claim to be broker {broker_id}, which is who you reached"
    if said.expects not in (-1, broker_id):
        return Code.BROKER_ID_NOT_REGISTERED, f"you expect broker {said.expects}; this is broker {broker_id}"
    return Code.NONE, ""


def check_answer(answer: HandshakeAnswer, cluster_id: str, expects: int) -> Refused | None:
    """What a dialer that belongs to this cluster ("": to any) and expects that broker (-1: any) makes of an answer; None: all is well."""
    if answer.error:
        text = "".join(one if one.isprintable() else "?" for one in answer.message[:300])  # of whoever it is: for logs and terminals
        return Refused(f"refused with error {answer.error}: {text}")
    if not VERSION_MIN <= answer.version <= PROTOCOL_VERSION:
        return Refused(f"answered with version {answer.version} of the protocol; asked for were {VERSION_MIN} to {PROTOCOL_VERSION}")
    if not answer.cluster_id or (cluster_id and answer.cluster_id != cluster_id):
        return Refused(f"belongs to cluster {answer.cluster_id!r:.80}, and this process to {cluster_id!r}")
    if answer.broker_id < 0 or expects not in (-1, answer.broker_id):
        return Refused(f"is broker {answer.broker_id}, and broker {expects} was expected")
    return None
