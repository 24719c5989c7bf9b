"""Whether the cluster has a controller that answers: a view names the last one that its broker has heard of, dead or not."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from replog.client.client import Client
from replog.client.view import View
from replog.errors import ClusterAuthorizationFailed, ReplogError

__all__ = ["ACTING_S", "HEARING_S", "MAY_HIDE", "Look", "look"]

ACTING_S: Final = 5.0
"""How long a controller may take to say that it is one: as long as it takes to elect another after most failures."""
HEARING_S: Final = 2.0
"""How long brokers may take to hear from a controller of who is there; after that it is told that they have not."""
_AGAIN_S: Final = 0.05
MAY_HIDE: Final = "there may be more: whoever may not describe the cluster sees those topics that it may describe"
"""What follows from it."""


class Look(NamedTuple):
    """What is known of a cluster at one moment."""

    view: View
    no_controller: str
    """Why nobody acts as the controller, as far as a question to it tells; "" if somebody does, or if it may not be asked."""
    may_hide: bool
    """Whether rules may hide topics of the view."""


def look(client: Client, timeout_s: float | None = None) -> Look:
    """The cluster as a broker knows it after the controller has answered; each question takes `timeout_s` at most.

    A view names the controller and the brokers that its broker has heard of last, and during an election that is what was before. So
    another view is taken, until its brokers are those that the controller has: for `HEARING_S`, or `timeout_s` if that is less. An
    election after which the same brokers are registered is not noticed so. Raises Unavailable if no broker answers.
    """
    view, asked = client._view(timeout_s), _ask(client, timeout_s)
    limit_s = HEARING_S if timeout_s is None else min(timeout_s, HEARING_S)
    give_up_s, again = time.monotonic() + limit_s, False
    while asked.registered is not None:
        view = client._view(timeout_s)
        unheard = asked.registered.symmetric_difference(view.brokers)
        if not unheard:
            break
        if again and time.monotonic() >= give_up_s:  # the first view may also be newer than the answer
            who = ", ".join(map(str, sorted(unheard)))
            return Look(view, f"a broker has not heard from the controller that others are registered now: {who}", False)
        client._wait(_never, _AGAIN_S)
        asked, again = _ask(client, timeout_s), True
    return Look(view, asked.no_controller, asked.may_hide)


class _Answer(NamedTuple):
    """What became of a question to the controller."""

    no_controller: str
    may_hide: bool
    registered: frozenset[int] | None
    """The brokers that are registered there; None: it does not answer, or may not be asked."""


def _ask(client: Client, timeout_s: float | None = None) -> _Answer:
    """Ask the controller which brokers there are.

    It answers once it has seen in the metadata store that it is still the one. So this is also whether the store is there. Who may not ask,
    as it may not describe the cluster, is told "": then the view has to do, without the topics that it may not describe.
    """
    limit_s = ACTING_S if timeout_s is None else min(timeout_s, ACTING_S)
    try:
        known = client.describe_features(timeout_s=limit_s)
    except ClusterAuthorizationFailed:
        return _Answer("", True, None)
    except ReplogError as problem:
        return _Answer(f"no controller answers, or the metadata store is away: {problem}", False, None)
    return _Answer("", False, frozenset(known.brokers))


def _never() -> bool:
    return False
