"""The feature level of the cluster: which it is, which each broker supports, and raising it (KIP-584).

Raised is what the record of the cluster says, in one transaction. Brokers hear of it by their watch on that record, so nobody has to be
told, and a broker that registers at the same moment finds that it has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from replog.controller.changes import IdentitySet
from replog.controller.decision import Decision, Piece, answered, pack
from replog.controller.events import AdminAsked
from replog.controller.refusal import Refusal
from replog.errors import Code
from replog.features import unsupported
from replog.metadata import layout
from replog.metadata.values import NUMBER_MAX
from replog.ports import Event as Told
from replog.ports import Put

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = ["describe_features", "raise_feature_level"]


def describe_features(controller: Controller, event: AdminAsked) -> Decision:
    """The cluster, its level, what each registered broker supports, by its number; and who says so, since when, and what waits there."""
    identity = _identity(controller)
    brokers = {b: list(broker.supports) for b, broker in sorted(controller.cluster.brokers.items())}
    in_office = {
        "broker": controller.broker_id,
        "epoch": controller.controller_epoch,
        "since_ms": controller.since_ms or None,
        "queued_events": event.events_ahead,
        "due_partitions": event.partitions_ahead,
    }
    known = {"cluster_id": identity.cluster_id, "level": identity.feature_level, "brokers": brokers}
    return answered(event, {**known, "controller": in_office})


def raise_feature_level(controller: Controller, event: AdminAsked) -> Decision:
    """Raise it to `level`, which everybody who is registered supports. It is a level to reach: having it already is fine."""
    level, identity = event.request.arguments.get("level"), _identity(controller)
    if not isinstance(level, int) or isinstance(level, bool) or not 1 <= level <= NUMBER_MAX:
        raise Refusal(Code.INVALID_REQUEST, f"level is a feature level from 1 up, not {level!r}")
    now = identity.feature_level
    if level < now:
        text = f"the cluster has feature level {now} and cannot go back to {level}: what that level brings may be stored already"
        raise Refusal(Code.FEATURE_UPDATE_FAILED, text)
    decided = answered(event, {"level": level})
    if level == now:
        return decided
    if why := unsupported(level, {b: broker.supports for b, broker in controller.cluster.brokers.items()}):
        raise Refusal(Code.FEATURE_UPDATE_FAILED, why)
    version, raised = controller.cluster.identity.version, evolve(identity, feature_level=level)
    op = Put(layout.CLUSTER, layout.encode_cluster(raised), version)
    told = Told("feature_level_raised", {"level": level, "before": now})
    return evolve(decided, steps=pack(controller.guard, [Piece((op,), (IdentitySet(raised, version + 1),), (told,))]))


def _identity(controller: Controller) -> layout.ClusterIdentity:
    """The record of the cluster. Raises Refusal where there is none that can be read."""
    identity = controller.cluster.identity.identity
    if identity is None:
        text = f"the metadata store has no record of the cluster at {layout.CLUSTER} that can be read"
        raise Refusal(Code.UNKNOWN_SERVER_ERROR, text)
    return identity
