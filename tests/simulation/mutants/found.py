"""Bugs that were there until the simulator found them: each is switched on again here, and must still be found."""

from __future__ import annotations

from typing import Any

from tests.simulation.mutants.entry import Mutant, Patch

from replog.broker.fetching import Fetcher, Fetching
from replog.broker.sessions import Session, Sessions
from replog.client.core import ClientCore
from replog.client.operations import Operation
from replog.controller import topics
from replog.controller.views import Views
from replog.messages import Fetched
from replog.model import PartitionId
from replog.partition.partition import Partition

__all__ = ["MUTANTS"]


def forgets_its_timer(patch: Patch) -> None:
    """A request that was sent again before its pause was over has no timer left when the pause ends."""
    due = ClientCore._due

    def mutant(self: ClientCore, op: Operation, now_ms: int) -> None:
        under_way = op.address is not None and now_ms < min(op.deadline_ms, op.patience_at)
        if not under_way:
            due(self, op, now_ms)

    patch.setattr(ClientCore, "_due", mutant)


def says_nothing_of_the_end(patch: Patch) -> None:
    """A client that waits at the end of a log gets an answer that does not name the partition."""
    reply = Sessions._answer

    def mutant(self: Sessions, session: Session) -> None:
        ready = set(session.ready)
        reply(self, session)
        if not session.is_follower:
            message = self._outbox.messages[-1][1]
            message.entries = [entry for entry in message.entries if entry.partition in ready]

    patch.setattr(Sessions, "_answer", mutant)


def believes_late_lanes(patch: Patch) -> None:
    """A late fetch opens a closed lane again, and takes back what the follower has acknowledged since."""
    patch.setattr(Sessions, "_is_late", lambda self, session, fetch, identity: False)


def tells_nobody_of_deletions(patch: Patch) -> None:
    """A deletion whose outcome the controller did not hear is known to the store and to it, and to no broker."""
    patch.setattr(topics, "stops_of", lambda cluster, changes: ())


def tells_of_what_goes(patch: Patch) -> None:
    """A broker that restarts while a topic is being deleted is told to lead it, in the epoch of its last life."""
    notice = Views.notice

    def mutant(self: Views, partition: PartitionId) -> Any:
        deletions, self._cluster.deletions = self._cluster.deletions, {}
        try:
            return notice(self, partition)
        finally:
            self._cluster.deletions = deletions

    patch.setattr(Views, "notice", mutant)


def answers_with_the_next_heartbeat(patch: Patch) -> None:
    """A fetch that has waited long enough is due, and nobody answers it until another timer runs."""
    answer = Sessions.answer_waiting

    def mutant(self: Sessions, now_ms: int) -> None:
        if self.parked.has_told or now_ms % 400 < 20:  # the other timer
            answer(self, now_ms)

    patch.setattr(Sessions, "answer_waiting", mutant)


_CHURN = {"files": False, "workloads": ("topics",), "clients": 3, "think_ms": 60, "partitions": 1, "brokers": 3, "replicas": 3}
_UNHEARD = {**_CHURN, "only": ("unsure",), "unsure": 0.1}
_RESTARTS = {**_CHURN, "only": ("kill", "rolling", "slow_store", "unsure"), "session_ms": 1_500}
_WAITS = {"files": False, "workloads": ("append", "follow"), "partitions": 1, "brokers": 3, "replicas": 3}
_LATE_LANE = "tests/unit/broker/test_sessions.py::test_a_late_opening_fetch_of_a_closed_lane_takes_nothing_back"

def serves_who_was_refused(patch: Patch) -> None:
    """A follower that was refused by who leads the epoch a moment later is sent records before its log was compared."""

    def changed(self: Sessions, partition: Partition) -> None:
        for session in (*partition.sessions, *partition.readers):
            if session.asked[partition.identity].leader_epoch not in (partition.leader_epoch, -1) or partition.failed:
                session.ready[partition.identity] = None
                self.parked.tell(session)

    patch.setattr(Sessions, "changed", changed)


def takes_any_refusal_for_the_answer(patch: Patch) -> None:
    """A fetch that was replaced was refused when it came again: nobody waits for its answer any more."""
    answered = Fetching.answered

    def mutant(self: Fetching, fetcher: Fetcher, fetched: Fetched, now_ms: int) -> bool:
        fetcher.unanswered.pop(fetched.request, None)
        return answered(self, fetcher, fetched, now_ms)

    patch.setattr(Fetching, "answered", mutant)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "X78", "who was refused is sent records uncompared", "KIP-320", serves_who_was_refused,
        tests=("tests/unit/broker/test_sessions.py::test_who_was_refused_gets_nothing_before_it_has_asked_again",),
    ),
    Mutant("X10", "a request sent again early has no timer", "own", forgets_its_timer, ("L7",), {**_WAITS, "drop": 0.2}),
    Mutant("X11", "an empty answer does not name its partition", "own", says_nothing_of_the_end, ("L7", "readable", "L4", "L8"), _WAITS),
    Mutant("X12", "a late fetch of a closed lane counts", "own", believes_late_lanes, tests=(_LATE_LANE,)),
    Mutant("X13", "nobody is told of a deletion with an unknown outcome", "own", tells_nobody_of_deletions, ("L7",), _UNHEARD),
    Mutant("X14", "a broker is told of a topic that is being deleted", "own", tells_of_what_goes, ("S5",), _RESTARTS),
    Mutant(
        "X83", "a refusal stands for the answer to a replaced fetch", "own", takes_any_refusal_for_the_answer,
        tests=("tests/unit/broker/test_fetching.py::test_a_refusal_of_a_repetition_does_not_stand_for_the_answer",),
    ),
    Mutant("X15", "a waiting fetch is due and nobody answers it", "own", answers_with_the_next_heartbeat, ("S21",), _WAITS),
)
