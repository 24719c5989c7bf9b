"""The node of a topic: what the store keeps of it, in how many bytes, and how many it may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.controller.changes import Topic
from replog.controller.refusal import Refusal
from replog.errors import Code
from replog.metadata import layout
from replog.ports import Create, Put

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = ["create", "fitting", "node_bytes", "put", "too_large"]


def _value(topic: Topic) -> bytes:
    config = topic.config.to_mapping()
    return layout.encode_topic(layout.TopicEntry(topic.topic_id, config, topic.assignments, topic.next_creation, topic.former))


def node_bytes(topic: Topic) -> int:
    """What the store keeps of a topic."""
    return len(_value(topic))


def create(topic: Topic) -> Create:
    """Store a new topic."""
    return Create(layout.topic_path(topic.topic), _value(topic))


def put(topic: Topic) -> Put:
    """Store a changed topic, whose version is the one that it will have."""
    return Put(layout.topic_path(topic.topic), _value(topic), topic.version - 1)


def fitting(controller: Controller, topic: Topic) -> Topic:
    """The topic, if what the store keeps of it is not too large. Raises Refusal, with the size and the limit."""
    size, limit = node_bytes(topic), controller.config.topic_bytes_max
    if size > limit:
        raise too_large(topic.topic, len(topic.assignments), str(size), limit)
    return topic


def too_large(name: str, partitions: int, size: str, limit: int) -> Refusal:
    """Why there is no topic of that size, in words."""
    text = f"topic {name!r} of {partitions} partitions takes {size} bytes in the metadata store; the limit is {limit} (topic_bytes_max)"
    return Refusal(Code.INVALID_PARTITIONS, text)
