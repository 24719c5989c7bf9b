"""What a name means now, and requests that say which topic they were made for: repeated, they change no other, and nothing twice."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.harness import Node, World

from replog.controller import finding
from replog.errors import Code
from replog.messages import UpdateMetadata
from replog.metadata import layout
from replog.ports import Delete


def count(world: World) -> int:
    value = world.store.read(layout.topic_path("t"))
    assert value is not None
    return len(layout.decode_topic("", value.value).partitions)


def stores(call: Any, path: str) -> bool:
    return any(op.path == path for ops in call.argument for op in ops)


def found(world: World) -> dict[str, Any]:
    answer = world.admin("find_topic", name="t")
    assert answer is not None
    assert answer.error == Code.NONE, answer.message
    return answer.result


def test_a_topic_is_found_by_its_name_and_nothing_is_stored():
    world = World(3)
    topic = world.create(partitions=2)
    world.commits.clear()
    assert found(world) == {"topic_id": topic.hex(), "partitions": 2, "next_creation": 0}
    assert world.commits == []
    world.admin("remove_partitions", name="t", partitions=[1])
    assert found(world) == {"topic_id": topic.hex(), "partitions": 1, "next_creation": 1}


def test_a_topic_that_is_being_deleted_is_found_too():
    """Its deletion may be asked for again, and waited for."""
    world = World(3, slice_partitions_max=10)
    topic = world.create(partitions=40)
    asked: list[Any] = []

    def after(_address: Any, call: Any) -> None:
        if call.verb == "commit_each" and not asked and stores(call, layout.delete_topic_path("t")):
            asked.append(call)
            world.admin("find_topic", name="t", settle=False)

    world.after_store = after
    world.admin("delete_topic", name="t")
    assert [answer.result["topic_id"] for answer in world.client[-2:]] == [topic.hex()] * 2


def test_who_asks_is_told_who_leads_and_nothing_is_stored():
    world = World(3)
    topic = world.create(partitions=3, assignment={0: [1, 2], 1: [2, 3], 2: [3, 1]})
    world.commits.clear()
    before = world.admin("find_topic", name="t", leaders=[2, 0, 0, 7, -1])
    assert before.result["leaders"] == [[2, 0, 0, 3], [0, 0, 0, 1]]
    assert world.commits == []
    world.kill(3)
    answer = world.admin("find_topic", name="t", leaders=(2,))
    assert answer.result == {"topic_id": topic.hex(), "partitions": 3, "next_creation": 0, "leaders": [[2, 0, 1, 1]]}


def test_only_partitions_that_there_are_become_keys(monkeypatch: pytest.MonkeyPatch):
    """Others can be chosen by whoever asks: 170,000 that are on each other's way through a table kept the controller busy for 14 s."""
    world = World(3)
    world.create(partitions=3)
    kept: list[list[int]] = []

    def noted(_cluster: Any, _topic: Any, numbers: Any) -> list[Any]:
        kept.append(list(numbers))
        return []

    monkeypatch.setattr(finding, "_leaders", noted)
    world.admin("find_topic", name="t", leaders=[2**40, 2, *range(3, 9_000, 3), -1, 0, 2])
    assert kept == [[2, 0]]


@pytest.mark.parametrize("wanted", [True, 3, "all", [True], ["0"], {"0": 1}])
def test_whose_leaders_are_asked_for_is_a_list_of_numbers(wanted: object):
    world = World(1)
    world.create()
    answer = world.admin("find_topic", name="t", leaders=wanted)
    assert (answer.error, answer.message) == (Code.INVALID_REQUEST, f"leaders is a list of partition numbers, not {wanted!r}")


def deposed(world: World) -> Node:
    """The controller, paused while another one is elected; its session lives."""
    zombie = world.nodes[1]
    zombie.paused = True
    world.store.session().commit([Delete(layout.CONTROLLER, 0)])
    world.settle()
    assert world.controller_id == 2
    return zombie


def test_who_leads_is_not_told_by_a_controller_that_was_deposed():
    """It does not know it yet, and what it says of a leader that was deposed too would make that one believed (P-61)."""
    world = World(3)
    world.create(assignment={0: [3, 2]})
    zombie = deposed(world)
    world.kill(3)
    assert (world.state().leader, world.state().leader_epoch) == (2, 1)
    zombie.paused = False
    assert zombie.controller.is_controller
    answer = world.admin("find_topic", at=1, name="t", leaders=[0])
    assert (answer.error, answer.result) == (Code.REQUEST_TIMED_OUT, {})
    assert not zombie.controller.is_controller
    assert world.admin("find_topic", name="t", leaders=[0]).result["leaders"] == [[0, 0, 1, 2]]


def views(world: World) -> list[tuple[int, int]]:
    """The newest that each broker was told: controller epoch and version."""
    told = {n: [m.view for m in node.broker.received if isinstance(m, UpdateMetadata)] for n, node in world.nodes.items()}
    return [max((view.controller_epoch, view.version) for view in told[n]) for n in sorted(told)]


def test_a_view_as_new_as_is_said_shows_everything():
    world = World(3)
    for change in (lambda: world.create(), lambda: world.admin("add_partitions", name="t", total=2, count=1), lambda: world.bounce(1)):
        change()
        world.settle()
        answer = world.admin("find_view")
        assert answer.error == Code.NONE
        assert set(views(world)) == {(answer.result["controller_epoch"], answer.result["version"])}


FROM_MEMORY: dict[str, tuple[str, dict[str, Any]]] = {
    "a topic that was made meanwhile is not there": ("find_topic", {"name": "new"}),
    "a topic has as many partitions as before": ("find_topic", {"name": "t"}),
    "a topic is gone, so that its deletion is done": ("delete_topic", {"name": "new"}),
    "a topic that was deleted meanwhile exists": ("create_topic", {"name": "old"}),
    "as many partitions as wished are there": ("add_partitions", {"name": "old", "total": 2}),
    "those to be removed are not there": ("remove_partitions", {"name": "t", "partitions": [2]}),
    "an earlier view is the newest": ("find_view", {}),
    "nothing moves": ("list_reassignments", {}),
    "a partition is where it is wished": ("reassign", {"partitions": [["t", 0, [1, 2]]]}),
    "a broker is not registered": ("drain", {"broker": 9}),
    "a partition is led as before": ("explain", {"name": "t", "partition": 0}),
    "the level is as before": ("describe_features", {}),
}


@pytest.mark.parametrize("said", FROM_MEMORY)
def test_a_controller_that_was_deposed_answers_nothing_from_memory(said: str):
    """Also refusals: whoever asks takes them for certain."""
    world = World(3)
    world.create(assignment={0: [1, 2], 1: [2, 3]})
    world.create("old", partitions=2)
    zombie = deposed(world)
    world.create("new")
    world.admin("delete_topic", name="old")
    world.admin("add_partitions", name="t", total=3, count=2)
    zombie.paused = False
    verb, arguments = FROM_MEMORY[said]
    answer = world.admin(verb, at=1, **arguments)
    assert (answer.error, answer.result) == (Code.REQUEST_TIMED_OUT, {}), answer
    assert not zombie.controller.is_controller


def looks_at_the_seat(world: World) -> list[Any]:
    """Those that follow."""
    looks: list[Any] = []

    def note(_address: Any, call: Any) -> None:
        if call.verb == "read_each" and layout.CONTROLLER in call.argument:
            looks.append(call)

    world.after_store = note
    return looks


def test_many_questions_cost_one_look_at_the_seat():
    world = World(1)
    world.create()
    looks = looks_at_the_seat(world)
    for name in ("t", "u", "t", "u", "t"):
        world.admin("find_topic", name=name, settle=False)
    world.settle()
    assert [answer.error for answer in world.client[-5:]] == [0, 3, 0, 3, 0]
    assert len(looks) == 2  # one at once, for the first; the others have come while it was under way


def test_what_was_stored_for_a_wish_shows_that_this_is_the_controller():
    """Its answer, which follows the last commit, costs no look."""
    world = World(1)
    looks = looks_at_the_seat(world)
    world.create()
    assert world.admin("delete_topic", name="t").error == Code.NONE
    assert looks == []


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("x", Code.UNKNOWN_TOPIC_OR_PARTITION, "unknown topic 'x'; known are t"),
        ("a/b", Code.INVALID_TOPIC, "a/b"),
        (None, Code.INVALID_TOPIC, "None"),
    ],
)
def test_what_is_no_topic_is_not_found(name: object, code: int, text: str):
    world = World(1)
    world.create()
    answer = world.admin("find_topic", name=name)
    assert (answer.error, text in answer.message) == (code, True), answer


NOT_MEANT = {
    "another topic": ({"topic_id": "00" * 16}, Code.UNKNOWN_TOPIC_ID, f"the request is about {'00' * 16!r}"),
    "no id": ({"topic_id": 5}, Code.UNKNOWN_TOPIC_ID, "the request is about 5"),
    "removed since": ({"next_creation": 0}, Code.UNKNOWN_TOPIC_ID, "next_creation is 1, the request has 0"),
    "no number": ({"next_creation": "1"}, Code.INVALID_REQUEST, "next_creation is '1'"),
    "a bool": ({"next_creation": True}, Code.INVALID_REQUEST, "next_creation is True"),
}


@pytest.mark.parametrize("case", NOT_MEANT)
def test_partitions_are_not_added_to_what_the_request_was_not_made_for(case: str):
    world = World(3)
    topic = world.create(partitions=3)
    world.admin("remove_partitions", name="t", partitions=[2])
    said, code, text = NOT_MEANT[case]
    answer = world.admin("add_partitions", **{"name": "t", "total": 4, "topic_id": topic.hex(), "next_creation": 1, **said})
    assert (answer.error, text in answer.message, count(world)) == (code, True, 2), answer
    assert world.admin("add_partitions", name="t", total=4, topic_id=topic.hex(), next_creation=1).error == Code.NONE
    assert count(world) == 4


def test_partitions_that_were_added_and_removed_are_not_added_again_by_a_repetition():
    world = World(3)
    world.create(partitions=2)
    said = found(world)
    wish = {"name": "t", "total": 4, "count": said["partitions"], "topic_id": said["topic_id"], "next_creation": said["next_creation"]}
    for _ in range(2):
        assert world.admin("add_partitions", **wish).result == {"partitions": 4}
    assert world.admin("remove_partitions", name="t", partitions=[2, 3]).error == Code.NONE
    assert world.admin("add_partitions", **wish).error == Code.UNKNOWN_TOPIC_ID
    assert count(world) == 2


@pytest.mark.parametrize("said", [{}, {"next_creation": 0}])
def test_what_was_stored_is_not_added_again_because_somebody_removes_it_before_the_answer(said: dict[str, Any]):
    world = World(3, slice_partitions_max=10)
    going = {"partitions": [28, 29], "creations": [0, 0], "topic_id": world.create(partitions=2).hex()}
    asked: list[Any] = []

    def after(_address: Any, call: Any) -> None:
        if call.verb == "commit_each" and not asked and stores(call, layout.topic_path("t")):
            asked.append(call)
            world.admin("remove_partitions", name="t", **going, settle=False)

    world.after_store = after
    before = len(world.client)
    world.admin("add_partitions", name="t", total=30, **said)
    assert [answer.error for answer in world.client[before:]] == [Code.NONE, Code.NONE]
    assert asked
    assert count(world) == 28
