"""Who may say what: a client never replicates, commands or changes an ISR, and a broker speaks in its own name only.

A table from message type to rule. Decoding has checked types and ranges; this checks that the sender is entitled.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NamedTuple

from replog import messages as m
from replog.codec import FROM_CONTROLLER, TO_CONTROLLER
from replog.messages import CLIENT

__all__ = ["refusal"]


class _Rule(NamedTuple):
    """A message of a broker: the route it takes, and whose name it bears (None: nobody's)."""

    route: int
    name: Callable[[Any], int] | None = None


_BROKERS: Final[dict[type[Any], _Rule]] = {
    m.Fetch: _Rule(0, attrgetter("replica")),
    m.Fetched: _Rule(0),
    m.Flushed: _Rule(0, attrgetter("replica")),
    m.Metadata: _Rule(TO_CONTROLLER),
    m.Admin: _Rule(TO_CONTROLLER),
    m.Heartbeat: _Rule(TO_CONTROLLER, attrgetter("broker_id")),
    m.AlterIsr: _Rule(TO_CONTROLLER, attrgetter("broker_id")),
    m.ReplicasFailed: _Rule(TO_CONTROLLER, attrgetter("broker_id")),
    m.ControlledShutdown: _Rule(TO_CONTROLLER, attrgetter("broker_id")),
    m.LeaderAndIsrAnswer: _Rule(TO_CONTROLLER, attrgetter("broker_id")),
    m.StopReplicaAnswer: _Rule(TO_CONTROLLER, attrgetter("broker_id")),
    m.ReplicaStatesAnswer: _Rule(TO_CONTROLLER, attrgetter("broker_id")),
    m.LeaderAndIsr: _Rule(FROM_CONTROLLER, attrgetter("controller_id")),
    m.StopReplica: _Rule(FROM_CONTROLLER, attrgetter("controller_id")),
    m.UpdateMetadata: _Rule(FROM_CONTROLLER, attrgetter("controller_id")),
    m.ReplicaStates: _Rule(FROM_CONTROLLER, attrgetter("controller_id")),
    m.AlterIsrAnswer: _Rule(FROM_CONTROLLER),
    m.ControlledShutdownAnswer: _Rule(FROM_CONTROLLER),
    m.AdminAnswer: _Rule(FROM_CONTROLLER),
}
"""Between brokers."""

_CLIENTS: Final = frozenset({m.Produce, m.Stage, m.Publish, m.Fetch, m.ListOffsets, m.OffsetsForLeaderEpoch, m.Metadata, m.Admin})
"""From a client to a broker."""

_ANSWERS: Final = frozenset({m.Produced, m.Published, m.Fetched, m.ListedOffsets, m.Epochs, m.ClusterView, m.AdminAnswer})
"""From a broker to a client."""


def refusal(message: Any, route: int, *, peer: int, role: str) -> str | None:
    """Why this message may not come from that peer (a broker's id, -1: a client) to a process of this role; None: it may."""
    kind = type(message)
    if role == CLIENT:
        return _of_client(kind, route, kind in _ANSWERS, "a broker to a client")
    if peer < 0:
        problem = _of_client(kind, route, kind in _CLIENTS, "a client")
        if problem is None and kind is m.Fetch and message.replica != -1:
            return f"a client fetches as replica {message.replica}"
        if problem is None and kind is m.Admin and message.origin is not None:
            return "a client forwards the wish of somebody else"
        return problem
    rule = _BROKERS.get(kind)
    if rule is None:
        return f"{kind.__name__} from broker {peer}: brokers do not send that to each other"
    if route != rule.route:
        return f"{kind.__name__} from broker {peer} on route {route}; it takes route {rule.route}"
    if rule.name is not None and rule.name(message) != peer:
        return f"{kind.__name__} from broker {peer} in the name of broker {rule.name(message)}"
    if kind is m.Admin and message.origin is None:
        return f"Admin from broker {peer} without the number of who wants it"
    return None


def _of_client(kind: type[Any], route: int, known: bool, who: str) -> str | None:
    if not known:
        return f"{kind.__name__} from {who}: that is not its to send"
    return None if route == 0 else f"{kind.__name__} from {who} on route {route}: clients know no controller"
