"""Whether the cluster has a controller that answers: a view names the last one that its broker has heard of, dead or not."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from replog.client.client import Client
from replog.client.results import ControllerDescription, FeatureLevels
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
    controller: ControllerDescription | None = None
    """The one that has answered, as it describes itself; None: none has, it may not be asked, or it runs an older version."""


def look(client: Client, timeout_s: float | None = None) -> Look:
    """The cluster as a broker knows it after the controller has answered; each question takes `timeout_s` at most.

    A view names the controller and the brokers that its broker has heard of last, and during an election that is what was before. So
    another view is taken, until its brokers are those that the controller has, and its epoch the controller's, if that says which: for
    `HEARING_S`, or `timeout_s` if that is less. Raises Unavailable if no broker answers.
    """
    view, asked = client._view(timeout_s), _ask(client, timeout_s)
    limit_s = HEARING_S if timeout_s is None else min(timeout_s, HEARING_S)
    give_up_s, again = time.monotonic() + limit_s, False
    while asked.known is not None:
        view = client._view(timeout_s)
        unheard = _unheard(view, asked.known)
        if not unheard:
            return Look(view, "", False, asked.known.controller)
        if again and time.monotonic() >= give_up_s:  # the first view may also be newer than the answer
            return Look(view, f"a broker has not heard from the controller {unheard}", False)
        client._wait(_never, _AGAIN_S)
        asked, again = _ask(client, timeout_s), True
    return Look(view, asked.no_controller, asked.may_hide)


def _unheard(view: View, known: FeatureLevels) -> str:
    """What the controller knows and the view does not say, or the other way round; "": they agree."""
    if others := set(known.brokers).symmetric_difference(view.brokers):
        return f"that others are registered now: {', '.join(map(str, sorted(others)))}"
    if known.controller is not None and known.controller.controller_epoch != view.controller_epoch:
        return f"that its epoch is {known.controller.controller_epoch}, and knows of epoch {view.controller_epoch}"
    return ""


class _Answer(NamedTuple):
    """What became of a question to the controller."""

    no_controller: str
    may_hide: bool
    known: FeatureLevels | None
    """What it says: the brokers that are registered there, and its epoch; None: it does not answer, or may not be asked."""


def _ask(client: Client, timeout_s: float | None = None) -> _Answer:
    """Ask the controller which brokers there are, and which one it is.

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
    return _Answer("", False, known)


def _never() -> bool:
    return False
