"""What people and programs may ask the controller for: one verb, one function that decides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from attrs import evolve

from replog.controller import alter, asking, elections, explaining, features, finding, missing, partitions, removal, shutdown, topics
from replog.controller.decision import Decision
from replog.controller.events import AdminAsked
from replog.controller.refusal import Refusal
from replog.errors import Code
from replog.messages import AdminAnswer

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = ["VERBS", "admin_asked"]

VERBS: Final[dict[str, Callable[[Controller, AdminAsked], Decision]]] = {
    "create_topic": topics.create_topic,
    "create_missing_topic": missing.create_missing_topic,
    "delete_topic": topics.delete_topic,
    "add_partitions": partitions.add_partitions,
    "remove_partitions": removal.remove_partitions,
    "alter_topic": alter.alter_topic,
    "elect": elections.elect_leaders,
    "drain": shutdown.drain,
    "explain": explaining.explain,
    "find_topic": finding.find_topic,
    "find_view": finding.find_view,
    "reassign": asking.reassign,
    "list_reassignments": asking.list_reassignments,
    "describe_features": features.describe_features,
    "raise_feature_level": features.raise_feature_level,
}
"""Each may raise Refusal. A verb that takes several slices comes again as the same event, and goes on from what is stored."""


def admin_asked(controller: Controller, event: AdminAsked) -> Decision:
    """Grant or refuse a wish; the answer leaves after the commit. Where nothing is stored, no commit shows that this is the controller:
    one that was deposed and does not know it yet would refuse what there is, or say that something is there which is gone (P-61)."""
    request = event.request
    verb = VERBS.get(request.verb)
    try:
        if verb is None:
            raise Refusal(Code.INVALID_REQUEST, f"unknown verb {request.verb!r}; known are {', '.join(sorted(VERBS))}")
        decision = verb(controller, event)
    except Refusal as refusal:
        answer = AdminAnswer(request.request, refusal.code, str(refusal), origin=request.origin)
        decision = Decision(answers=((event.sender, answer),))
    return evolve(decision, as_controller=bool(decision.answers) and not any(step.ops for step in decision.steps))
