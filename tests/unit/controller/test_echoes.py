"""A look at the topics that only a step of this controller has brought about: it waits, and covers what has changed until then."""

from __future__ import annotations

import pytest
from tests.unit.controller.harness import World

from replog.config import TopicConfig
from replog.controller import nodes
from replog.controller.changes import Due, Topic, TopicGone, TopicSet
from replog.controller.decision import Step
from replog.controller.echoes import Echoes
from replog.controller.reading import DECODED_MAX
from replog.metadata import layout
from replog.metadata.wishes import Meant, encode_replicas
from replog.model import Assignment
from replog.ports import Create, Delete, StoreCall

TOPICS = DECODED_MAX + 10
PAUSE_MS = TOPICS // 2
TOPIC = Topic("tool", b"t" * 16, TopicConfig(min_isr=1), {0: Assignment((1,))})
OWN = [Step(changes=(TopicSet(TOPIC),))]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Levels that a controller has listed."""
    listed: list[str] = []
    store_call = World._store_call

    def noting(world: World, node: object, address: object, actor: object, call: StoreCall) -> None:
        listed.extend([call.argument] if call.verb == "list" else [])
        store_call(world, node, address, actor, call)  # type: ignore[arg-type]

    monkeypatch.setattr(World, "_store_call", noting)
    return listed


@pytest.fixture
def world() -> World:
    """Some more topics than one turn reads, looked at just now."""
    made = World(3, reconcile_ms=30_000)
    for number in range(TOPICS):
        made.create(f"t{number:03}", partitions=1)
    made.advance(PAUSE_MS)
    made.advance(29_000 - (made.now_ms - 1_000))  # until shortly before the next `reconcile`
    return made


def look(world: World) -> None:
    """Somebody else's topic has the topics looked at."""
    world.store.commit([nodes.create(TOPIC)])
    world.settle()


def remove(world: World, name: str) -> None:
    """By hand."""
    for path in (layout.partition_state_path(name, 0), layout.topic_path(name)):
        world.store.commit([Delete(path)])


@pytest.mark.parametrize("change", ["create", "delete"])
def test_what_the_controller_has_stored_brings_one_look_when_the_pause_is_over(world: World, looks: list[str], change: str) -> None:
    look(world)
    looks.clear()
    for number in range(5):
        if change == "create":
            world.create(f"more{number}", partitions=1)
        else:
            world.admin("delete_topic", name=f"t00{number}")
    assert looks.count(layout.TOPICS) == 0
    world.advance(PAUSE_MS - 10)
    assert looks.count(layout.TOPICS) == 0
    world.advance(20)
    assert looks.count(layout.TOPICS) == 1


def test_what_somebody_else_stores_is_found_at_once_and_beside_a_step_of_ones_own_after_the_pause(world: World) -> None:
    look(world)
    assert world.state(0, "tool").leader == 1
    world.create("own", partitions=1)
    remove(world, "t003")
    world.store.commit([nodes.create(Topic("other", b"o" * 16, TopicConfig(min_isr=1), {0: Assignment((2,))}))])
    world.settle()
    assert "other" not in world.leader._term.cluster.names
    world.advance(PAUSE_MS)
    assert world.state(0, "other").leader == 2
    assert "t003" not in world.leader._term.cluster.names
    remove(world, "other")
    world.settle()
    assert "other" not in world.leader._term.cluster.names, "the watch is armed again, and what it says is not awaited"


ANEW = b"n" * 16
WISHES = {
    "delete": (layout.delete_topic_path("other"), layout.encode_delete_topic(ANEW)),
    "add": (layout.partition_add_path("other", 1), encode_replicas((1,))),
    "add to this one": (layout.partition_add_path("other", 1), encode_replicas((1,), Meant(ANEW))),
}


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("is_known", [False, True], ids=["new", "made anew"])
def test_a_wish_about_a_topic_that_somebody_else_has_just_made_is_not_dropped(world: World, wish: str, is_known: bool) -> None:
    if is_known:
        world.create("other", partitions=1)
    look(world)
    world.create("own", partitions=1)
    if is_known:
        remove(world, "other")
    world.store.commit([nodes.create(Topic("other", ANEW, TopicConfig(min_isr=1), {0: Assignment((2,))}))])
    world.settle()
    assert ANEW not in world.leader._term.cluster.topics
    world.store.commit([Create(*WISHES[wish])])
    world.settle()
    if wish == "delete":
        assert "other" not in world.store.list(layout.TOPICS)
        assert world.store.list(layout.DELETE_TOPICS) == []
    else:
        assert world.state(1, "other").leader == 1


def test_what_is_no_wish_brings_no_look(world: World, looks: list[str]) -> None:
    look(world)
    world.create("own", partitions=1)
    looks.clear()
    world.store.commit([Create(layout.delete_topic_path("other"), b"junk")])
    world.settle()
    assert looks.count(layout.TOPICS) == 0
    assert world.store.list(layout.DELETE_TOPICS) == []


def test_a_scan_of_everything_waits_for_nothing(world: World, looks: list[str]) -> None:
    look(world)
    world.create("own", partitions=1)
    looks.clear()
    world.leader._term.reconcile()
    world.create("another", partitions=1)
    assert looks.count(layout.TOPICS) == 1


def test_other_watches_are_not_taken_for_it(world: World) -> None:
    look(world)
    world.admin("create_topic", name="own", partitions=1, settle=False)
    world.kill(next(node for node in world.nodes if node != world.controller_id))
    assert len(world.leader._term.cluster.brokers) == 2


def test_a_term_counts_from_what_it_has_read_when_it_began(world: World, looks: list[str]) -> None:
    world.kill(world.controller_id)
    looks.clear()
    world.create("own", partitions=1)
    assert looks.count(layout.TOPICS) == 0


# --------------------------------------------------------------------------------------------------------- the rule by itself

SINCE_MS = 1_000


def fresh() -> Echoes:
    echoes = Echoes(pause_max_ms=2_000)
    echoes.end(SINCE_MS)
    return echoes


@pytest.mark.parametrize(
    ("steps", "topics", "at_ms", "due_ms"),
    [
        (OWN, 1_000, 1_000, 1_500),
        ([Step(changes=(TopicGone(b""),))], 1_000, 1_499, 1_500),
        (OWN, 1_000, 1_500, None),
        (OWN, DECODED_MAX + 1, 1_000, 1_100),
        (OWN, DECODED_MAX, 1_000, None),
        (OWN, 1_000_000, 1_000, 3_000),
        ([], 1_000, 1_000, None),
        ([Step(changes=(Due(()),))], 1_000, 1_000, None),
    ],
)
def test_the_pause_follows_from_how_many_topics_there_are(steps: list[Step], topics: int, at_ms: int, due_ms: int | None) -> None:
    echoes = fresh()
    echoes.store(steps)
    assert echoes.is_one(topics, at_ms) is (due_ms is not None)
    assert echoes.deadline_ms() == due_ms
    if due_ms is not None:
        assert [echoes.is_due(due_ms - 1), echoes.is_due(due_ms), echoes.is_due(due_ms)] == [False, True, False]
    assert echoes.deadline_ms() is None


def test_a_look_that_begins_sees_what_was_stored_before() -> None:
    echoes = fresh()
    echoes.store(OWN)
    echoes.store([])
    assert echoes.is_one(1_000, SINCE_MS)
    echoes.begin()
    assert echoes.deadline_ms() is None
    assert not echoes.is_one(1_000, SINCE_MS)
