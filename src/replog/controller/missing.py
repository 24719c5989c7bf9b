"""Topics that somebody writes to or reads from and that do not exist: a broker asks for them (`broker.missing`).

Made as the controller's configuration says, once, however many brokers ask: for whoever comes second the topic exists, as he wished.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve

from replog.config import BrokerConfig
from replog.controller import topics
from replog.controller.decision import Decision
from replog.controller.events import AdminAsked
from replog.controller.refusal import Refusal, check_readable, named
from replog.errors import Code
from replog.messages import AdminAnswer
from replog.ports import Event as Told

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = ["create_missing_topic"]


def create_missing_topic(controller: Controller, event: AdminAsked) -> Decision:
    """Make the topic `name` unless it exists; events tell of it, because nobody has asked for it by hand."""
    cluster, config, request = controller.cluster, controller.config, event.request
    name = named(request.arguments)
    check_readable(cluster, name)
    if not config.auto_create_topics:
        raise Refusal(Code.POLICY_VIOLATION, f"topic {name!r} is not made: the controller's broker has auto_create_topics off")
    known = cluster.names.get(name)
    if known is not None and known != event.token:
        answer = AdminAnswer(request.request, Code.NONE, origin=request.origin)
        return Decision(answers=((event.sender, answer),))
    count = len(cluster.topics) + len(cluster.hidden.topics)
    if known is None and count >= config.auto_create_topics_max:
        limit = f"the limit is {config.auto_create_topics_max} (auto_create_topics_max)"
        raise Refusal(Code.POLICY_VIOLATION, f"topic {name!r} is not made: there are {count} topics; {limit}")
    wish = evolve(event, request=evolve(request, verb="create_topic", arguments=_arguments(name, config)))
    decision = topics.create_topic(controller, wish)
    if known is not None:
        return decision
    told = Told("topic_auto_created", {"topic": name, "topic_id": event.token.hex(), "broker": event.sender})
    first, *others = decision.steps
    return evolve(decision, steps=(evolve(first, told=(*first.told, told)), *others))


def _arguments(name: str, config: BrokerConfig) -> dict[str, Any]:
    """What `create_topic` is told."""
    return {
        "name": name,
        "partitions": config.auto_create_partitions,
        "replication_factor": config.auto_create_replication_factor or None,
        "config": {"min_isr": config.auto_create_min_isr} if config.auto_create_min_isr else {},
    }
