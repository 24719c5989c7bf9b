"""Whether the cluster has a controller that answers: a view names the last one that its broker has heard of, dead or not."""

from __future__ import annotations

from typing import Final

from replog.client.client import Client
from replog.errors import ClusterAuthorizationFailed, ReplogError

__all__ = ["ACTING_S", "MAY_HIDE", "ask_controller", "why_no_controller"]

ACTING_S: Final = 5.0
"""How long a controller may take to say that it is one: as long as it takes to elect another after most failures."""
MAY_HIDE: Final = "there may be more: whoever may not describe the cluster sees those topics that it may describe"
"""What follows from it."""


def why_no_controller(client: Client, timeout_s: float | None = None) -> str:
    """Why nobody acts as the controller, as far as a question to it tells; "" if somebody does, or if it may not be asked."""
    return ask_controller(client, timeout_s)[0]


def ask_controller(client: Client, timeout_s: float | None = None) -> tuple[str, bool]:
    """Why nobody acts as the controller, as far as a question to it tells, "" if somebody does; and whether rules may hide topics.

    The controller answers once it has seen in the metadata store that it is still the one. So this is also whether the store is there. Who
    may not ask, as it may not describe the cluster, is told "": then the view has to do, without the topics that it may not describe.
    """
    limit_s = ACTING_S if timeout_s is None else min(timeout_s, ACTING_S)
    try:
        client.describe_features(timeout_s=limit_s)
    except ClusterAuthorizationFailed:
        return "", True
    except ReplogError as problem:
        return f"no controller answers, or the metadata store is away: {problem}", False
    return "", False
