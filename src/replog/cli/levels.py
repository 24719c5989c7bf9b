"""`replog cluster show|raise`: at which feature level a cluster is, and what its brokers support."""

from __future__ import annotations

from replog.cli.context import Context
from replog.cli.exits import OK

__all__ = ["raise_level", "show"]


def show(context: Context) -> int:
    """The cluster's level, each broker's, and to which it can be raised."""
    output = context.output
    with context.client() as client:
        found = client.describe_features(timeout_s=context.timeout_s)
    if output.is_json:
        output.json({name: value for name, value in found.to_dict().items() if name != "controller"})  # `replog controller` tells of that
        return OK
    rows = [(broker, low, high) for broker, (low, high) in found.brokers.items()]
    output.table(("broker", "lowest", "highest"), rows, f"cluster {found.cluster_id}: feature level {found.level}")
    if found.highest > found.level:
        output.note(f"every broker supports level {found.highest}: {context.typed('cluster', 'raise', str(found.highest))}")
    return OK


def raise_level(context: Context) -> int:
    """Let brokers write what a level brings."""
    output, level = context.output, context.arguments.level
    with context.client() as client:
        client.raise_feature_level(level, timeout_s=context.timeout_s)
    if output.is_json:
        output.json({"level": level})
    else:
        output.line(f"the cluster has feature level {level}")
    return OK
