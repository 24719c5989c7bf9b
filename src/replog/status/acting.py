"""Whether the cluster has a controller that answers: a view names the last one that its broker has heard of, dead or not."""

from __future__ import annotations

from typing import Final

from replog.client.client import Client
from replog.errors import ClusterAuthorizationFailed, ReplogError

__all__ = ["ACTING_S", "why_no_controller"]

ACTING_S: Final = 5.0
"""How long a controller may take to say that it is one: as long as it takes to elect another after most failures."""


def why_no_controller(client: Client, timeout_s: float | None = None) -> str:
    """Why nobody acts as the controller, as far as a question to it tells; "" if somebody does.

    The controller answers once it has seen in the metadata store that it is still the one. So this is also whether the store is there. Who
    may not ask is told "": then the view has to do.
    """
    limit_s = ACTING_S if timeout_s is None else min(timeout_s, ACTING_S)
    try:
        client.describe_features(timeout_s=limit_s)
    except ClusterAuthorizationFailed:
        return ""
    except ReplogError as problem:
        return f"no controller answers, or the metadata store is away: {problem}"
    return ""
