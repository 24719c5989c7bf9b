"""Bugs of what is kept for those who wait, which nothing shows as long as there is room."""

from __future__ import annotations

from tests.simulation.mutants.entry import Mutant, Patch

from replog.broker.sessions import Session, Sessions
from replog.errors import Code
from replog.messages import Fetch

__all__ = ["MUTANTS"]


def refuses_whom_it_could_answer(patch: Patch) -> None:
    """Readers that wait have all the places: another is refused, although there is something for it to read."""
    answer_now = Sessions._answer_now

    def mutant(self: Sessions, session: Session, fetch: Fetch) -> None:
        if self._is_full():
            self._refuse(session.reader, fetch, Code.QUOTA_EXCEEDED)
        else:
            answer_now(self, session, fetch)

    patch.setattr(Sessions, "_answer_now", mutant)


MUTANTS = (
    Mutant(
        "X99", "readers that wait keep others from reading", "own", refuses_whom_it_could_answer,
        tests=("tests/unit/broker/test_sessions.py::test_whoever_waits_keeps_nobody_from_reading_what_is_there",),
    ),
)  # fmt: skip
