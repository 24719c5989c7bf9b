"""Three processes with a session and an ephemeral node each: killed, stopped, hanging, kept from writing."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from replog.metadata.file import FileStore
from replog.ports import Create, Versioned
from replog.testing.eventually import eventually

from .conftest import Child, Start

pytestmark = pytest.mark.processes

SESSION_MS = 3_000

MEMBER = """
import select
number, session_ms = arguments
store = FileStore(path, session_ms=int(session_ms))
store.on_session(lambda state: say("state", state))
looked = []
store.commit([Create("/ids/" + number, b"", ephemeral=True)])
say("session", store.session_id)
hanging, changed, rest = False, ["/ids"], b""
while True:
    if not hanging:
        store.keep_alive()
        if changed:
            changed.clear()
            try:
                store.watch("/ids", changed.append)
                say("ids", ",".join(store.list("/ids")))
            except SessionLost:
                pass
    ready, _, _ = select.select([0], [], [], 0.02)
    if ready:
        received = os.read(0, 4096)
        if not received:
            break
        *commands, rest = (rest + received).split(b"\\n")
        for command in commands:
            if command == b"write":
                try:
                    say("wrote", store.commit([Put("/value", number.encode())])[0])
                except ReplogError as error:
                    say("refused", type(error).__name__)
            elif command == b"end":
                store.close()
                say("closed")
                sys.exit(0)
            else:
                hanging = command == b"hang"
                say(command.decode())
"""


@pytest.fixture
def members(start: Start) -> list[Child]:
    """Members 1, 2 and 3, each of which sees all of them."""
    members = [start(MEMBER, number, SESSION_MS) for number in (1, 2, 3)]
    for member in members:
        eventually(lambda member=member: "ids 1,2,3" in member.lines)
    return members


def see(members: list[Child], ids: str) -> None:
    """Wait until the watch of each member has shown it these ids."""
    for member in members:
        eventually(lambda member=member: _last(member, "ids") == ids)


def lost(members: list[Child]) -> list[bool]:
    return ["state lost" in member.lines for member in members]


def test_a_killed_member_goes_and_the_others_see_it(members: list[Child], path: Path) -> None:
    victim, *others = members
    victim.kill()
    see(others, "ids 2,3")
    assert lost(others) == [False, False]
    with FileStore(path, session_ms=SESSION_MS) as store:
        assert store.list("/ids") == ["2", "3"]
    for member in others:
        member.tell("end")
        assert member.finish()[-1] == "closed"


def test_members_that_are_killed_one_after_another_all_go(members: list[Child], start: Start) -> None:
    members[0].kill()
    members[1].kill()
    see(members[2:], "ids 3")
    again = start(MEMBER, 1, SESSION_MS)
    see([again, members[2]], "ids 1,3")
    assert lost([again, members[2]]) == [False, False]


def test_a_stopped_member_learns_that_its_session_is_lost_before_it_writes(members: list[Child], path: Path) -> None:
    with FileStore(path, session_ms=SESSION_MS) as store:
        members[1].tell("write")
        eventually(lambda: _refused(members[1]) == "refused Conflict")  # there is nothing at /value yet
        store.commit([Create("/value", b"")])
        victim, *others = members
        _stop_outside_writes(victim, path)
        victim.tell("write")  # the first that it finds when it goes on
        see(others, "ids 2,3")
        victim.signal(signal.SIGCONT)
        eventually(lambda: "state lost" in victim.lines)
        eventually(lambda: _refused(victim))
        assert _refused(victim) == "refused SessionLost"
        assert lost(others) == [False, False]
        found = store.read("/value")
        assert isinstance(found, Versioned)
        assert (found.value, found.version) == (b"", 0)


def test_a_member_whose_loop_hangs_goes_although_its_process_lives(members: list[Child]) -> None:
    victim, *others = members
    victim.tell("hang")
    see(others, "ids 2,3")
    assert lost(others) == [False, False]
    eventually(lambda: "state lost" in victim.lines)
    states = [line for line in victim.lines if line.startswith("state")]
    assert states in (["state suspended", "state lost"], ["state lost"])
    victim.tell("go on")
    victim.tell("write")
    eventually(lambda: _refused(victim) == "refused SessionLost")
    assert lost(others) == [False, False]


def test_nobody_ends_a_session_while_nobody_can_write(members: list[Child], path: Path) -> None:
    """Somebody is stopped in the middle of a long transaction: all renewals fail, far longer than a session lasts."""
    blocker = sqlite3.connect(path, isolation_level=None, timeout=30)
    blocker.execute("BEGIN IMMEDIATE")
    for member in members:
        eventually(lambda member=member: "state suspended" in member.lines)
    leases = "SELECT min(renewed_ns), count(*) FROM sessions"
    (oldest, count) = blocker.execute(leases).fetchone()
    eventually(lambda: time.monotonic_ns() - oldest > 2 * SESSION_MS * 1_000_000)
    assert blocker.execute(leases).fetchone() == (oldest, count) == (oldest, 3)
    blocker.execute("ROLLBACK")
    blocker.close()
    for member in members:
        eventually(lambda member=member: _last(member, "state") == "state connected")
    assert lost(members) == [False] * 3
    with FileStore(path, session_ms=SESSION_MS) as store:
        assert store.list("/ids") == ["1", "2", "3"]


def test_members_whose_file_is_removed_are_lost(members: list[Child], path: Path) -> None:
    os.unlink(path)
    for member in members:
        eventually(lambda member=member: "state lost" in member.lines)
        member.tell("write")
        eventually(lambda member=member: _refused(member) == "refused SessionLost")
    assert not path.exists()


def _last(member: Child, *words: str) -> str | None:
    """The last line that begins with one of these words."""
    return next((line for line in reversed(member.lines) if line.startswith(words)), None)


def _refused(member: Child) -> str | None:
    return _last(member, "refused", "wrote")


def _stop_outside_writes(victim: Child, path: Path) -> None:
    """Whoever is stopped in the middle of a write keeps everybody from writing: that is another test."""
    guard = sqlite3.connect(path, isolation_level=None, timeout=30)
    guard.execute("BEGIN IMMEDIATE")
    victim.signal(signal.SIGSTOP)
    status = Path(f"/proc/{victim.process.pid}/stat")
    eventually(lambda: status.read_text().rpartition(")")[2].split()[0] == "T")
    guard.execute("ROLLBACK")
    guard.close()
