"""Why a wish is not granted: raised by whoever judges it, answered or kept beside the wish by whoever asked for the judgement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from replog.config import check_topic_name
from replog.controller.changes import Topic
from replog.controller.cluster import Cluster
from replog.controller.decision import Decision, answered
from replog.controller.events import AdminAsked, Event, IsrProposed
from replog.errors import Code, ReplogError, StoreFull, UsageError
from replog.messages import AdminAnswer, AlterIsrAnswer
from replog.model import Address
from replog.ports import Conflict

__all__ = ["Refusal", "check_readable", "failed", "id_of", "named", "resigned", "standing", "stored_and_gone", "why_given_up"]


class Refusal(Exception):
    """A wish that cannot be granted: the code and the text of the answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def named(arguments: Mapping[str, Any]) -> str:
    """The topic name among the arguments of a request. Raises Refusal if it is none."""
    try:
        return check_topic_name(arguments.get("name"))
    except UsageError as error:
        raise Refusal(Code.INVALID_TOPIC, str(error)) from error


def check_readable(cluster: Cluster, name: str) -> None:
    """Raises Refusal if there is a topic of this name that cannot be read now: nobody is told that there is none."""
    if name in cluster.hidden.topics:
        text = f"topic {name!r} is there, and it, a state of it or the wish to delete it cannot be read now (event store_value_unreadable)"
        raise Refusal(Code.UNKNOWN_SERVER_ERROR, text)


def id_of(cluster: Cluster, name: str) -> bytes:
    """The id of the topic of this name. Raises Refusal, with the names that there are."""
    check_readable(cluster, name)
    topic_id = cluster.names.get(name)
    if topic_id is None:
        known = ", ".join(islice(sorted(cluster.names), 10)) or "none"
        raise Refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"unknown topic {name!r}; known are {known}")
    return topic_id


def standing(cluster: Cluster, name: str) -> Topic:
    """The topic of this name, which is not being deleted. Raises Refusal, with the names that there are."""
    topic_id = id_of(cluster, name)
    if topic_id in cluster.deletions:
        raise Refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} is being deleted")
    return cluster.topics[topic_id]


def stored_and_gone(cluster: Cluster, event: AdminAsked, result: dict[str, Any]) -> Decision | None:
    """The answer to a request that was stored, as its `progress` says with the id of its topic, if that topic is deleted since.

    It was done: a refusal would say that it was not.
    """
    topic_id = event.progress
    if topic_id is None or (topic_id in cluster.topics and topic_id not in cluster.deletions):
        return None
    return answered(event, result)


def resigned(events: Iterable[Event], waiters: Iterable[list[tuple[Address, AdminAnswer]]]) -> Iterator[tuple[Address, Any]]:
    """What everyone who waits for an answer is told at the end of a term: to look for another controller."""
    for event in events:
        if isinstance(event, IsrProposed):
            yield event.sender, AlterIsrAnswer(event.proposal.request, Code.NOT_CONTROLLER, [])
        elif isinstance(event, AdminAsked):
            yield event.sender, _resigned(event.request.request, event.request.origin)
    for waiting in waiters:
        for sender, said in waiting:
            yield sender, _resigned(said.request, said.origin)


def _resigned(request: int, origin: Any) -> AdminAnswer:
    """Whoever asks again is to reckon with its having been done: the last commit may have been applied."""
    return AdminAnswer(request, Code.REQUEST_TIMED_OUT, "the controller has resigned, and this may have been done", origin=origin)


def failed(request: int, origin: Any, why: str) -> AdminAnswer:
    """The answer to a request that was given up."""
    return AdminAnswer(request, Code.UNKNOWN_SERVER_ERROR, why, origin=origin)


def why_given_up(error: ReplogError | None, asked: str, unreadable: Mapping[str, str]) -> str:
    """Why an event was given up, for people; `error` is what the store said last, `unreadable` what is wrong at paths (by path)."""
    if isinstance(error, StoreFull):
        return f"the metadata store's disk is full: {asked} was not done ({error})"
    if isinstance(error, Conflict) and error.path in unreadable:
        wrong = unreadable[error.path].removeprefix(f"{error.path}: ")
        return f"{asked} was not done, because what the store has at {error.path} cannot be read: {wrong}"
    if isinstance(error, UsageError):  # too large, or not allowed
        return f"the metadata store refused {asked}, which was not done: {error}"
    if error is None or isinstance(error, Conflict):
        return f"the store kept changing under {asked}; try again"
    return f"the store failed under {asked}, which may have been done: {error}"
