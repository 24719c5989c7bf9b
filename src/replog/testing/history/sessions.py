"""Rules of store sessions: an ephemeral node goes with its session, and a watch fires after the change can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from attrs import frozen

from replog.ports import Versioned
from replog.testing.history.events import NEVER
from replog.testing.history.report import Report

__all__ = ["Fired", "Touch", "judge_ephemeral", "judge_watches"]


class Touch(Protocol):
    """A call on a path, as these rules see it."""

    @property
    def kind(self) -> str: ...
    @property
    def session(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def ephemeral(self) -> bool: ...
    @property
    def outcome(self) -> str: ...
    @property
    def invoked(self) -> int: ...
    @property
    def completed(self) -> int: ...
    @property
    def result(self) -> int: ...
    @property
    def found(self) -> Versioned | None: ...


@frozen
class Fired:
    """A watch that was delivered: armed at one rank, told at another."""

    session: str
    path: str
    armed: int
    told: int


def judge_ephemeral(path: str, accesses: Sequence[Touch], endings: Mapping[str, Touch], report: Report) -> bool:
    """No read that begins when a session is over finds a node of it. Returns whether one did."""
    over: dict[int, Touch] = {}  # creation number -> the end of its session
    for access in accesses:
        ending = endings.get(access.session)
        if access.ephemeral and access.outcome == "ok" and ending is not None and ending.completed != NEVER:
            over[access.result] = ending
    broken = False
    for access in accesses if over else ():
        ending = None if access.found is None else over.get(access.found.created)
        if ending is not None and ending.completed < access.invoked:
            broken = True
            report.add("ephemeral-outlives-session", path, f"{access}; the session {ending.session} was over at {ending.completed}")
    return broken


def judge_watches(
    path: str,
    accesses: Sequence[Touch],
    fired: Sequence[Fired],
    paths: Mapping[str, Sequence[Touch]],
    endings: Mapping[str, Touch],
    report: Report,
) -> bool:
    """A session that is told of a change and reads does not find what it had found before. Returns whether one did.

    Judged only where the change that fired the watch is certain: every one that can have fired it began after the session's last
    read before, and none is of unknown outcome. A watch also fires for children: a path with children is not judged.
    """
    if not fired or any(other.startswith(path.rstrip("/") + "/") for other in paths):
        return False
    sessions = {access.session for access in accesses if access.ephemeral}
    ends = [ending for session, ending in endings.items() if session in sessions]
    changes = [access for access in accesses if access.kind in ("create", "put", "delete") and access.outcome in ("ok", "unknown")]
    broken = False
    for watch in fired:
        reads = [access for access in accesses if access.kind == "read" and access.session == watch.session]
        before = [read for read in reads if watch.armed < read.invoked and read.completed < watch.told]
        after = [read for read in reads if read.invoked > watch.told]
        causes = [change for change in changes if change.invoked < watch.told and change.completed > watch.armed]
        clear = not any(end.invoked < watch.told and end.completed > watch.armed for end in ends)
        if not (before and after and causes and clear):
            continue
        known, now = before[-1], after[0]
        certain = all(cause.outcome == "ok" and cause.invoked > known.completed for cause in causes)
        if known.found is None:  # the only state that can come back
            gone = [change for change in changes if change.kind == "delete"]
            certain = certain and not any(touch.invoked < now.completed for touch in (*gone, *ends))
        if certain and now.found == known.found:
            broken = True
            report.add("watch-before-change", path, f"{now}, as before the watch of {watch.session} fired at {watch.told}")
    return broken
