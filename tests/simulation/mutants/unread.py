"""Bugs about what the store does not give out: who is let in meanwhile, and what becomes of what a controller could not read."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from tests.simulation.mutants.entry import Mutant, Patch
from tests.simulation.mutants.followers import SAFETY

from replog.broker.broker import Broker
from replog.controller import admitting as admitting_module
from replog.controller.cluster import Cluster
from replog.controller.events import DeletionsSeen, WishesSeen
from replog.controller.outboxes import BrokerOutbox, Outboxes
from replog.controller.reading import Reader
from replog.controller.term import Term
from replog.messages import LeaderAndIsr

__all__ = ["MUTANTS"]

_TESTS = "tests/unit/controller/test_hidden_losses.py::"
_LATE = "tests/unit/controller/test_read_late.py::"
_MOVES = "tests/unit/controller/test_hidden_moves.py::"


def lets_in_who_may_have_lost_it(patch: Patch) -> None:
    """A broker that has lost records is let in, although nobody can see what they were of; then it reports that no more."""
    patch.setattr(admitting_module, "is_kept_out", lambda _cluster, _broker_id: False)


def forgets_who_came_early(patch: Patch) -> None:
    """Of a broker that was let in early nothing is stored that says so: it goes on in the epoch of its earlier life."""
    patch.setattr(admitting_module, "_is_early", lambda _cluster, _broker_id: False)


def puts_away_what_was_not_read(patch: Patch) -> None:
    """A broker puts out of service what the controller could not read; whoever led it cannot go on in that epoch."""
    on_leader_and_isr = Broker.on_leader_and_isr

    def mutant(self: Broker, sender: Any, message: LeaderAndIsr, now_ms: int) -> None:
        on_leader_and_isr(self, sender, evolve(message, is_partial=False), now_ms)

    patch.setattr(Broker, "on_leader_and_isr", mutant)


def decides_before_deletions(patch: Patch) -> None:
    """A topic that is seen again is decided before anybody looks whether it is to be deleted: it is made whole first."""

    takes = Term._take_standing
    patch.setattr(Term, "_take_standing", lambda self, moves, _deletions: takes(self, moves, DeletionsSeen(())))


def ends_moves_before_wishes(patch: Patch) -> None:
    """The move of a topic that is seen again ends before anybody looks where it is wished to be by now."""
    takes = Term._take_standing

    def mutant(self: Term, moves: WishesSeen, deletions: DeletionsSeen) -> None:
        if self.loaded:
            moves = WishesSeen(moves.row, (), hidden=self.cluster.hidden_wishes)
        takes(self, moves, deletions)

    patch.setattr(Term, "_take_standing", mutant)


def ends_moves_with_hidden_wishes(patch: Patch) -> None:
    """A move ends although the store does not say where it is wished to be by now."""
    patch.setattr(Cluster, "is_wish_hidden", lambda _self, _partition: False)


def reads_once(patch: Patch) -> None:
    """What the store refused when a term began is not asked for again."""
    patch.setattr(Reader, "is_refused", lambda _self, _level: False)


def leaves_partial_notices(patch: Patch) -> None:
    """Who was told that something may be missing hears no more of that when it can be read."""
    patch.setattr(Outboxes, "blind", lambda _self: [])


def forgets_what_had_no_room(patch: Patch) -> None:
    """Of a broker that was out of sight for a moment the controller does not know any more what it had no room for."""
    goes_on = BrokerOutbox.go_on_from

    def mutant(self: BrokerOutbox, earlier: BrokerOutbox) -> None:
        goes_on(self, earlier)
        self._roomless = {}

    patch.setattr(BrokerOutbox, "go_on_from", mutant)


def doubts_nothing(patch: Patch) -> None:
    """Whether the wish to delete a topic can still be read is not looked at once the topic is."""
    patch.setattr(Reader, "doubted", lambda _self, _topics: {})


MUTANTS = (
    Mutant(
        "X69", "who may have lost what cannot be read is let in", "own", lets_in_who_may_have_lost_it,
        SAFETY, {"only": ("refuse", "kill", "expire", "unseat", "power", "wipe")},
        tests=(f"{_TESTS}test_who_lost_records_of_a_topic_that_is_not_known_waits_until_it_is",),
    ),
    Mutant(
        "X70", "a life that came early leads the epoch of another", "P-44", forgets_who_came_early,
        ("S5", *SAFETY), {"only": ("refuse", "kill", "expire", "unseat")},
        tests=(f"{_TESTS}test_no_life_leads_what_an_earlier_one_led_and_nobody_could_see",),
    ),
    Mutant(
        "X71", "what a controller could not read is put away", "own", puts_away_what_was_not_read,
        tests=("tests/unit/broker/test_partial_notice.py::test_a_leader_goes_on_although_a_partial_notice_does_not_name_its_copy",),
    ),
    Mutant(
        "X72", "a topic is decided before its deletion is seen", "own", decides_before_deletions,
        (*SAFETY, "S15"), {"only": ("refuse", "kill", "expire", "unseat"), "workloads": ("append", "topics")},
        tests=(f"{_TESTS}test_a_topic_of_which_a_state_was_refused_is_deleted_and_not_made_whole",),
    ),
    Mutant(
        "X73", "a move ends before its wish is seen", "P-87", ends_moves_before_wishes,
        ("asked",), {"only": ("refuse", "kill_all", "expire", "unseat"), "workloads": ("read", "reassign")},
        tests=(f"{_MOVES}test_what_is_wished_of_a_topic_that_can_be_read_again_is_looked_at_before_its_move_ends",),
    ),
    Mutant(
        "X74", "a move ends although its wish is hidden", "P-87", ends_moves_with_hidden_wishes,
        tests=(f"{_MOVES}test_a_move_whose_wish_cannot_be_read_ends_when_it_can_be",),
    ),
    Mutant(
        "X75", "what is read late is not read again", "own", reads_once,
        tests=(f"{_LATE}test_copies_of_a_deleted_topic_go_once_it_can_be_read_who_holds_them",),
    ),
    Mutant(
        "X76", "a broker that had a partial notice gets no other", "own", leaves_partial_notices,
        tests=(f"{_LATE}test_a_copy_of_a_topic_that_somebody_removes_while_it_is_hidden_is_put_away_then",),
    ),
    Mutant(
        "X77", "a topic is made whole although its deletion is refused", "own", doubts_nothing,
        tests=(f"{_LATE}test_a_topic_that_is_read_late_is_not_made_whole_if_the_wish_to_delete_it_is_refused_by_then",),
    ),
    Mutant(
        "X79", "a broker out of sight is not known to have had no room", "own", forgets_what_had_no_room,
        tests=(
            "tests/unit/controller/test_room.py"
            "::test_a_broker_whose_registration_was_out_of_sight_is_believed_that_it_has_room_again",
        ),
    ),
)  # fmt: skip
