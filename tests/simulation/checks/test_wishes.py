"""What clients have asked the controller for, and what the store and the brokers have of it: each difference is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from tests.simulation.checks.situations import booted, holds, violates

from replog.client.operations import AdminOp
from replog.messages import Admin, AdminAnswer
from replog.metadata import layout
from replog.metadata.wishes import encode_elect, encode_replicas
from replog.model import Assignment
from replog.ports import Create, Delete, Put
from replog.testing.simulator.wishes import Wishes
from replog.testing.simulator.world import World

pytestmark = pytest.mark.simulation

CLIENT, BROKERS, CONTROLLER, SESSION = ("client", 1), 3, ("controller", 2), 7
ID, OTHER = b"1" * 16, b"2" * 16
ASKED = {"name": "a", "partitions": 2, "replication_factor": 2, "config": {"min_isr": 1, "retention_bytes": 9}}
ENTRY = layout.TopicEntry(ID, {"min_isr": 1, "retention_bytes": 9}, {0: Assignment((1, 2)), 1: Assignment((2, 3))})
PATH, WISH = layout.topic_path("a"), layout.delete_topic_path("a")


def ask(wishes: Wishes, wish: Admin, *, client: Any = CLIENT, copies: int = 1, session: int = SESSION) -> None:
    """A client asks; so many copies reach the controller, by way of broker 1."""
    wishes.sent(client, 1, wish)
    wishes.heard(1, client, wish, 1)
    passed_on = evolve(wish, origin=wish.request)
    wishes.sent(1, CONTROLLER, passed_on)
    for _ in range(copies):
        wishes.heard(CONTROLLER, 1, passed_on, session)


def answer(wishes: Wishes, request: int, error: int = 0) -> None:
    """The controller answers one copy."""
    wishes.sent(CONTROLLER, 1, AdminAnswer(request, error, origin=request))


def asked(verb: str = "create_topic", request: int = 1, **arguments: Any) -> Wishes:
    wishes = Wishes()
    ask(wishes, Admin(request, verb, {**ASKED, **arguments} if verb == "create_topic" else arguments))
    return wishes


def ask_deletion(wishes: Wishes, request: int = 2, **how: Any) -> None:
    ask(wishes, Admin(request, "delete_topic", {"name": "a"}), **how)


def delete(topic_id: bytes = ID) -> list[Any]:
    """A deletion is stored as a wish."""
    return [Create(WISH, layout.encode_delete_topic(topic_id))]


GONE = [Delete(PATH), Delete(WISH)]


def create(entry: layout.TopicEntry = ENTRY, path: str = PATH) -> list[Any]:
    return [Create(path, layout.encode_topic(entry))]


def test_a_topic_as_it_was_asked_for() -> None:
    wishes = asked()
    holds(wishes.applied, create(), BROKERS)
    holds(wishes.sent, 1, CLIENT, AdminAnswer(1, 0, result={"topic_id": ID.hex()}))
    holds(wishes.applied, [Put(PATH, layout.encode_topic(ENTRY))], BROKERS)


@pytest.mark.parametrize(
    "entry",
    [
        evolve(ENTRY, config={"min_isr": 2, "retention_bytes": 9}),
        evolve(ENTRY, config={"min_isr": 1}),
        evolve(ENTRY, config={"min_isr": 1, "retention_bytes": 9, "flush": "ack"}),
        evolve(ENTRY, config={"min_isr": 1, "retention_bytes": 9, "what": 1}),
        evolve(ENTRY, partitions={0: Assignment((1, 2))}),
        evolve(ENTRY, partitions={0: Assignment((1, 2)), 2: Assignment((2, 3))}),
        evolve(ENTRY, partitions={0: Assignment((1, 2)), 1: Assignment((2, 3, 1))}),
        evolve(ENTRY, partitions={0: Assignment((1, 2)), 1: Assignment((2, 4))}),
        evolve(ENTRY, partitions={0: Assignment((1, 2)), 1: Assignment((2, 3), adding=(3,))}),
    ],
)
def test_a_topic_other_than_it_was_asked_for(entry: layout.TopicEntry) -> None:
    violates("asked", asked().applied, create(entry), BROKERS)


@pytest.mark.parametrize(("replicas", "right"), [((2, 1), True), ((1, 2), False)])
def test_an_assignment_is_stored_as_given(replicas: tuple[int, ...], right: bool) -> None:
    wishes = asked(assignment={0: [2, 1]}, partitions=None, replication_factor=None)
    entry = evolve(ENTRY, partitions={0: Assignment(replicas)})
    (holds if right else lambda *given: violates("asked", *given))(wishes.applied, create(entry), BROKERS)


def test_min_isr_has_its_default_where_none_was_given() -> None:
    wishes = asked(config={"retention_bytes": 9})
    violates("asked", wishes.applied, create(evolve(ENTRY, config={"min_isr": 2, "retention_bytes": 9})), BROKERS)
    holds(wishes.applied, create(), BROKERS)


def test_nothing_comes_or_goes_that_nobody_asked_for() -> None:
    wishes = asked()
    violates("asked", wishes.applied, create(path=layout.topic_path("b")), BROKERS)
    wishes.applied(create(), BROKERS)
    violates("asked", wishes.applied, [Put(PATH, layout.encode_topic(evolve(ENTRY, next_creation=1)))], BROKERS)
    violates("asked", wishes.applied, [Delete(PATH)], BROKERS)
    violates("asked", wishes.applied, delete(), BROKERS)
    ask_deletion(wishes)
    violates("asked", wishes.applied, [Delete(PATH)], BROKERS)  # what goes was stored as a wish before
    holds(wishes.applied, delete(), BROKERS)
    holds(wishes.applied, GONE, BROKERS)
    violates("asked", wishes.applied, create(), BROKERS)  # the same id again
    holds(wishes.applied, create(evolve(ENTRY, topic_id=OTHER)), BROKERS)


def created(wishes: Wishes, topic_id: bytes, request: int) -> None:
    ask(wishes, Admin(request, "create_topic", ASKED))
    wishes.applied(create(evolve(ENTRY, topic_id=topic_id)), BROKERS)
    answer(wishes, request)


def test_a_wish_that_was_answered_is_fulfilled_no_more() -> None:
    """Once a topic was created, deleted and created again, nothing of that happens without another wish."""
    wishes = Wishes()
    created(wishes, ID, 1)
    ask_deletion(wishes)
    wishes.applied(delete(), BROKERS)
    wishes.applied(GONE, BROKERS)
    answer(wishes, 2)
    violates("asked", wishes.applied, create(evolve(ENTRY, topic_id=OTHER)), BROKERS)
    created(wishes, OTHER, 3)
    violates("asked", wishes.applied, delete(OTHER), BROKERS)
    violates("asked", wishes.applied, [Delete(PATH)], BROKERS)
    ask_deletion(wishes, 4)
    holds(wishes.applied, delete(OTHER), BROKERS)


def test_a_deletion_is_of_the_topic_that_was_there() -> None:
    wishes = asked()
    wishes.applied(create(), BROKERS)
    ask_deletion(wishes)
    wishes.applied(delete(OTHER), BROKERS)
    violates("asked", wishes.applied, GONE, BROKERS)


def refused(wishes: Wishes) -> None:
    answer(wishes, 2, error=3)


def deposed(wishes: Wishes) -> None:
    answer(wishes, 2, error=41)


def session_ends(wishes: Wishes) -> None:
    wishes.ended(SESSION)


def another_session_ends(wishes: Wishes) -> None:
    wishes.ended(SESSION + 1)


@pytest.mark.parametrize(
    ("copies", "what", "good"),
    [
        (0, (), False),
        (1, (), True),
        (1, (refused,), False),
        (2, (refused,), True),
        (2, (refused, refused), False),
        (1, (deposed,), True),  # its last transaction may still be on the way
        (1, (deposed, session_ends), False),
        (2, (session_ends,), False),
        (1, (another_session_ends,), True),
    ],
)
def test_a_copy_is_good_until_its_outcome_is_known(copies: int, what: tuple[Callable[[Wishes], None], ...], good: bool) -> None:
    wishes = asked()
    wishes.applied(create(), BROKERS)
    ask_deletion(wishes, copies=copies)
    for one in what:
        one(wishes)
    (holds if good else lambda *given: violates("asked", *given))(wishes.applied, delete(), BROKERS)


def test_a_broker_passes_on_what_it_was_asked_for_and_once() -> None:
    wish, wishes = Admin(1, "create_topic", ASKED), Wishes()
    violates("asked", wishes.sent, 1, CONTROLLER, wish)
    wishes.heard(1, CLIENT, wish, SESSION)
    violates("asked", wishes.sent, 1, CONTROLLER, evolve(wish, arguments={**ASKED, "partitions": 3}))
    wishes.heard(1, CLIENT, wish, SESSION)
    holds(wishes.sent, 1, CONTROLLER, wish)
    violates("asked", wishes.sent, 1, CONTROLLER, wish)


def test_in_a_run_every_copy_is_followed() -> None:
    """The occasions themselves: a wish is good while it is under way, and no longer."""
    world = booted(drop=0.0, repeat=0.0, slow=0.0, unsure=0.0)
    client = next(iter(world.clients.values()))
    op = client.submit(AdminOp("create_topic", client.topic_wish("a", 1), world.now_ms + 5_000))
    assert world.run_until(world.now_ms + 5_000, lambda: bool(world.wishes._under_way("create_topic", "a")))
    assert world.run_until(world.now_ms + 5_000, lambda: op.done)
    assert op.error is None
    assert world.wishes._open == {} or not any(world.wishes._open.values())
    (controller,) = (node for node in world.nodes.values() if node.controller is not None and node.controller.is_controller)
    op = client.submit(AdminOp("create_topic", client.topic_wish("b", 1), world.now_ms + 5_000))
    assert world.run_until(world.now_ms + 5_000, lambda: bool(world.wishes._under_way("create_topic", "b")))
    controller.kill()
    assert world.wishes._under_way("create_topic", "b")
    for node in world.nodes.values():
        node.kill()
    world.run_until(world.now_ms + world.plan.shape.session_ms + 1)
    assert not world.wishes._under_way("create_topic", "b")


def test_who_is_not_in_office_only_refuses() -> None:
    world, wish = booted(), Admin(1, "create_topic", ASKED, 1)
    for node in world.nodes.values():
        assert node.controller is not None
        node._hear_wish(("controller", node.broker_id), 1, wish)
        assert bool(world.wishes._under_way("create_topic", "a")) == node.controller.is_controller
        world.wishes.ended(node.session)


@pytest.mark.parametrize(
    "answer",
    [AdminAnswer(1, 0, result={"topic_id": OTHER.hex()}), AdminAnswer(9, 0, result={"topic_id": ID.hex()})],
)
def test_a_creation_is_granted_that_was_not_made(answer: AdminAnswer) -> None:
    wishes = asked()
    wishes.applied(create(), BROKERS)
    violates("asked", wishes.sent, 1, CLIENT, answer)
    holds(wishes.sent, 1, CLIENT, evolve(answer, error=36))
    holds(wishes.sent, 1, 2, answer)


def test_a_creation_is_granted_that_somebody_else_asked_for() -> None:
    wishes = asked()
    ask(wishes, Admin(1, "create_topic", {**ASKED, "partitions": 3}), client=("client", 2))
    wishes.applied(create(), BROKERS)
    violates("asked", wishes.sent, 1, ("client", 2), AdminAnswer(1, 0, result={"topic_id": ID.hex()}))


def test_a_deletion_is_granted_while_the_topic_is_there() -> None:
    wishes = asked()
    wishes.applied(create(), BROKERS)
    ask_deletion(wishes)
    wishes.applied(delete(), BROKERS)
    violates("asked", wishes.sent, 1, CLIENT, AdminAnswer(2, 0))
    wishes.applied(GONE, BROKERS)
    holds(wishes.sent, 1, CLIENT, AdminAnswer(2, 0))


# ---------------------------------------------------------------------------------------------------------- moves


def ask_move(wishes: Wishes, target: list[int] | None, request: int = 5) -> None:
    ask(wishes, Admin(request, "reassign", {"partitions": [["a", 0, target]]}))


def wish(target: tuple[int, ...] | None) -> list[Any]:
    return [Create(layout.reassigned_path("a", 0), encode_replicas(target))]


def moved(assignment: Assignment) -> list[Any]:
    entry = evolve(ENTRY, partitions={**ENTRY.partitions, 0: assignment})
    return [Put(layout.topic_path("a"), layout.encode_topic(entry), 0)]


def test_a_move_is_wished_begun_and_ended() -> None:
    wishes, before = asked(), ENTRY.partitions[0].replicas
    wishes.applied(create(), BROKERS)
    violates("asked", wishes.applied, wish((4, 5)), BROKERS)
    violates("asked", wishes.applied, moved(Assignment((4, 5, *before), 0, (4, 5), before, before)), BROKERS)
    ask_move(wishes, [4, 5])
    holds(wishes.applied, wish((4, 5)), BROKERS)
    violates("asked", wishes.applied, moved(Assignment((4, 5), 0, (4, 5), (), before)), BROKERS)
    violates("asked", wishes.applied, moved(Assignment((4, *before), 0, (4,), before, before)), BROKERS)
    violates("asked", wishes.applied, moved(Assignment((4, 5, *before), 0, (4,), before, before)), BROKERS)
    holds(wishes.applied, moved(Assignment((4, 5, *before), 0, (4, 5), before, before)), BROKERS)
    violates("asked", wishes.applied, moved(Assignment(before)), BROKERS)
    violates("asked", wishes.applied, moved(Assignment((4, 5), 0, (4,))), BROKERS)
    holds(wishes.applied, moved(Assignment((4, 5))), BROKERS)


def test_a_move_is_taken_back() -> None:
    wishes, before = asked(), ENTRY.partitions[0].replicas
    wishes.applied(create(), BROKERS)
    ask_move(wishes, [4, 5])
    wishes.applied(wish((4, 5)), BROKERS)
    wishes.applied(moved(Assignment((4, 5, *before), 0, (4, 5), before, before)), BROKERS)
    ask_move(wishes, None, 6)
    holds(wishes.applied, wish(None), BROKERS)
    violates("asked", wishes.applied, moved(Assignment((4, 5))), BROKERS)
    holds(wishes.applied, moved(Assignment(before)), BROKERS)


# ------------------------------------------------------------------------------------------------------------ the end


def changes_the_topic(world: World) -> None:
    found = world.root.read(layout.topic_path("t"))
    assert found is not None
    entry = layout.decode_topic("t", found.value)
    world.root.commit([Put(layout.topic_path("t"), layout.encode_topic(evolve(entry, config={"min_isr": 1})))])


def makes_a_topic(world: World) -> None:
    world.root.commit(create())


def makes_a_partition(world: World) -> None:
    found = world.root.read(layout.partition_state_path("t", 0))
    assert found is not None
    world.root.commit([Create(layout.partition_state_path("t", 7), found.value)])


def loses_a_log(world: World) -> None:
    directory = world.nodes[2].directory
    directory.quarantine(directory.identities()[0], 0)


def keeps_another_configuration(world: World) -> None:
    broker = world.nodes[2].broker
    assert broker is not None
    for partition in broker.partitions.values():
        partition.config = evolve(partition.config, min_isr=1)


@pytest.mark.parametrize("spoil", [changes_the_topic, makes_a_topic, makes_a_partition, loses_a_log, keeps_another_configuration])
def test_at_the_end_all_is_as_it_was_asked_for(spoil: Callable[[World], None]) -> None:
    world = booted()
    holds(world.wishes.check, world)
    spoil(world)
    violates("asked", world.wishes.check, world)


@pytest.mark.parametrize(
    ("arguments", "may"),
    [
        ({"partitions": [["a", 0]], "unclean": True}, True),
        ({"partitions": None, "unclean": True}, True),
        ({"partitions": [["a", 1]], "unclean": True}, False),
        ({"partitions": [["a", 0]], "unclean": False}, False),
        ({"partitions": [["a", 0]]}, False),
    ],
)
def test_an_unclean_election_is_asked_for_until_it_is_answered(arguments: dict[str, Any], may: bool) -> None:
    wishes = asked("elect", **arguments)
    assert wishes.asks_uncleanly("a", 0) is may
    answer(wishes, 1)
    assert not wishes.asks_uncleanly("a", 0)


def test_a_wish_in_the_store_for_an_unclean_election_is_good_for_the_transaction_that_takes_it_away() -> None:
    wishes, path = Wishes(), layout.elect_path("a", 0)
    wishes.applied([Create(path, encode_elect())], BROKERS)
    assert not wishes.asks_uncleanly("a", 0)
    wishes.applied([Delete(path)], BROKERS)
    wishes.applied([Create(path, b"{")], BROKERS)
    wishes.applied([Delete(path)], BROKERS)
    wishes.applied([Create(path, encode_elect(unclean=True))], BROKERS)
    assert wishes.asks_uncleanly("a", 0)
    wishes.applied([Delete(path)], BROKERS)
    assert wishes.asks_uncleanly("a", 0)
    assert not wishes.asks_uncleanly("a", 1)
    wishes.applied([], BROKERS)
    assert not wishes.asks_uncleanly("a", 0)
