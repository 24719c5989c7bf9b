"""Which topic has a name now: asked before a change, so that the request for it can say what is meant, and be repeated without harm.

A broker may not have heard of the topic yet, or know the one before; the controller decides. It also says how new a view of the cluster is
that shows everything: whoever has one may be sure that nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from replog.controller.changes import Topic
from replog.controller.cluster import Cluster
from replog.controller.decision import Decision, answered
from replog.controller.events import AdminAsked
from replog.controller.refusal import Refusal, named, standing
from replog.errors import Code
from replog.messages import Admin

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = ["check_meant", "find_topic", "find_view"]


def find_topic(controller: Controller, event: AdminAsked) -> Decision:
    """The id of topic `name`, how many partitions it has, and the creation number that more of them would get. It may be being deleted.

    `leaders`: a list of partition numbers; the answer says for each that has a leader epoch [number, creation number, leader epoch, leader
    or None]; what leaders say is held against it (KIP-320).
    """
    cluster, request = controller.cluster, event.request
    name = named(request.arguments)
    topic_id = cluster.names.get(name)
    topic = cluster.topics[topic_id] if topic_id is not None and topic_id in cluster.deletions else standing(cluster, name)
    result: dict[str, Any] = {"topic_id": topic.topic_id.hex(), "partitions": len(topic.assignments), "next_creation": topic.next_creation}
    wanted = request.arguments.get("leaders")
    if wanted is None:
        return answered(event, result)
    if not isinstance(wanted, list | tuple) or not all(type(number) is int for number in wanted):
        raise Refusal(Code.INVALID_REQUEST, f"leaders is a list of partition numbers, not {wanted!r}")
    # What there is not is left out before it is a key: numbers that anybody chooses could all be in each other's way.
    numbers = dict.fromkeys(number for number in wanted if number in topic.assignments)
    result["leaders"] = list(_leaders(cluster, topic, numbers))
    return answered(event, result)


def find_view(controller: Controller, event: AdminAsked) -> Decision:
    """Controller epoch and version of the newest view that brokers are told: in one at least as new is whatever was there before this was
    asked, or that it is gone. Brokers show everybody what he may see of it, so that it is asked for without a topic."""
    return answered(event, {"controller_epoch": controller.controller_epoch, "version": controller.view_version})


def _leaders(cluster: Cluster, topic: Topic, numbers: Iterable[int]) -> Iterator[list[Any]]:
    for number in numbers:
        state = cluster.states.get(topic.identity(number))
        if state is not None:
            yield [number, topic.assignments[number].creation, state.leader_epoch, state.leader]


def check_meant(topic: Topic, request: Admin) -> None:
    """Raise Refusal if the request was made for another topic (`topic_id`), or before partitions were removed (`next_creation`).

    That number grows when those are removed that were added under it (S36): whoever asks again may have added them, and is not to do
    it once more. What the request does not say is not checked.
    """
    topic_id, creation = request.arguments.get("topic_id"), request.arguments.get("next_creation")
    if topic_id is not None and topic_id != topic.topic_id.hex():
        text = f"topic {topic.topic!r} has id {topic.topic_id.hex()}; the request is about {topic_id!r}"
        raise Refusal(Code.UNKNOWN_TOPIC_ID, text)
    if creation is not None and (not isinstance(creation, int) or isinstance(creation, bool)):
        raise Refusal(Code.INVALID_REQUEST, f"next_creation is {creation!r}; it is a creation number")
    if creation is not None and creation != topic.next_creation:
        text = f"partitions of topic {topic.topic!r} were removed since: next_creation is {topic.next_creation}, the request has {creation}"
        raise Refusal(Code.UNKNOWN_TOPIC_ID, text)
