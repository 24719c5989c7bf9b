"""What is larger than is allowed: topics of a time when more was, and answers that no frame carries."""

from __future__ import annotations

from tests.unit.controller.harness import World, pid

from replog.config import BATCH_BYTES_MAX
from replog.errors import Code
from replog.messages import AdminAnswer, LeaderAndIsr, Unsent
from replog.metadata import layout
from replog.model import Assignment
from replog.ports import Create


def test_a_topic_of_a_time_when_larger_batches_were_allowed_is_led() -> None:
    world = World(3)
    entry = layout.TopicEntry(b"x" * 16, {"max_batch_bytes": 512 << 20}, {0: Assignment((2, 1))}, 1)
    world.store.commit([Create(layout.topic_path("t"), layout.encode_topic(entry))])
    world.settle()
    assert world.state(0).leader == 2
    assert world.nodes[2].broker.states[pid(b"x" * 16)].config.max_batch_bytes == BATCH_BYTES_MAX


def test_whoever_asked_hears_that_the_answer_is_too_large() -> None:
    world = World(1)
    world.settle()
    controller = world.nodes[1].controller
    controller.outbox.messages.clear()
    controller.receive(2, Unsent(2, AdminAnswer(7, 0, result={"a": 1}, origin=5), "too large"), world.now_ms)
    controller.receive(2, Unsent(2, LeaderAndIsr(1, 1, 1, 1, False, 1, []), "too large"), world.now_ms)
    assert controller.outbox.messages == [(2, AdminAnswer(7, Code.MESSAGE_TOO_LARGE, "too large", origin=5))]
