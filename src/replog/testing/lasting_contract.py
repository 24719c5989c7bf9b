"""What outlives the sessions of a store, and other processes see of it, as tests: part of `MetadataStoreContract`."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final

import pytest

from replog.ports import Create, Put, SessionLost, UnknownOutcome, Versioned
from replog.testing.contract_sessions import ContractSessions, OpenSession, kept_alive
from replog.testing.contract_traits import asked_if
from replog.testing.eventually import eventually

__all__ = ["LastingContract"]

_TRIES: Final = 5


class LastingContract(ContractSessions):
    """The part of the contract that is about a store which nobody has open, or somebody else."""

    @asked_if("lasts")
    def test_nodes_and_numbers_outlive_the_last_session(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        (kept,) = one.commit([Create("/kept/a", b"0")])
        one.commit([Put("/kept/a", b"1")])
        (newest,) = two.commit([Create("/ids/1", b"", ephemeral=True)])
        before = {one.session_id, two.session_id}
        one.close()
        two.close()
        later = sessions()
        assert later.read("/kept/a") == Versioned(b"1", 1, kept)
        assert later.list("/ids") == []
        (created,) = later.commit([Create("/ids/1", b"", ephemeral=True)])
        assert created > newest
        assert later.session_id not in before

    @asked_if("is_shared")
    def test_another_process_sees_the_same_store_and_counts_on(self, open_session: OpenSession, sessions: OpenSession) -> None:
        one = sessions()
        numbers, ids = one.commit([Create("/nodes/0", b"")]), [one.session_id]
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:
            for number in (1, 3):
                created, session_id, seen = _somewhere_else(other, open_session, f"/nodes/{number}")
                assert seen == [str(earlier) for earlier in range(number)]
                ids.append(session_id)
                numbers += [created, *one.commit([Create(f"/nodes/{number + 1}", b"")])]
        assert numbers == sorted(set(numbers))
        assert len(set(ids)) == len(ids)
        assert one.list("/nodes") == ["0", "1", "2", "3", "4"]

    @asked_if("is_shared")
    def test_the_session_of_a_process_that_is_killed_ends(self, request: pytest.FixtureRequest, sessions: OpenSession) -> None:
        """Nobody ends it: others find out, by a lock, a connection or its time. Tried again where the machine stood still for so long
        that a short session was over before its process was killed."""
        fixture = "open_short_session" if self.expires else "open_session"
        open_session = request.getfixturevalue(fixture)
        other = sessions()
        other.commit([Create("/ids/kept", b"")])

        def only_what_is_kept_is_left() -> bool:
            return other.list("/ids") == ["kept"]

        for number in range(_TRIES):
            path, fired = f"/ids/{number}", list[str]()
            with kept_alive(other):
                with _owned_elsewhere(open_session, path, fixture, self.patience_s) as begun:
                    for watched in ("/ids", path):
                        other.watch(watched, fired.append)
                    was_there = begun and other.list("/ids") == [str(number), "kept"]
                if was_there:
                    eventually(only_what_is_kept_is_left, self.patience_s)
                    self.settle(lambda: len(fired) == 2, other)  # noqa: B023  it is called at once
                    eventually(lambda: sorted(fired) == ["/ids", path], self.patience_s)  # noqa: B023
                    assert other.read(path) is None
                    return
        raise AssertionError(f"in each of {_TRIES} tries a session ended although its process lived and its owner said so")


@contextmanager
def _owned_elsewhere(open_session: OpenSession, path: str, fixture: str, patience_s: float) -> Iterator[bool]:
    """While another process has an ephemeral node: it is killed at the end. False if it has lost its session before it had one."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    owner = spawn.Process(target=_own, args=(open_session, path, theirs))
    try:
        try:
            owner.start()
            theirs.close()  # the end of that process is then the end of what comes
            assert ours.poll(patience_s), f"it has done neither within {patience_s} s"
            begun: bool = ours.recv()
        except Exception as problem:
            raise AssertionError(_not_opened(open_session, path, fixture)) from problem
        yield begun
    finally:
        if owner.pid is not None:
            owner.kill()
            owner.join()
        theirs.close()
        ours.close()


def _own(open_session: OpenSession, path: str, there: Connection) -> None:
    store = open_session()
    try:
        store.keep_alive()
        store.commit([Create(path, b"", ephemeral=True)])
    except (SessionLost, UnknownOutcome):  # the machine stood still
        there.send(False)
        return
    there.send(True)
    while not there.poll(0.01):  # until it is killed, or who started it is gone
        store.keep_alive()


def _somewhere_else(process: ProcessPoolExecutor, open_session: OpenSession, path: str) -> tuple[int, str, list[str]]:
    try:
        return process.submit(_create, open_session, path).result()
    except Exception as problem:
        raise AssertionError(_not_opened(open_session, path, "open_session")) from problem


def _not_opened(open_session: OpenSession, path: str, fixture: str) -> str:
    return (
        f"another process could not open a session and create {path}; it is handed `{fixture}`, here {open_session!r}, "
        "which must be importable there, such as functools.partial(MyStore, folder). Set `is_shared = False` if no other process "
        "can open the store"
    )


def _create(open_session: OpenSession, path: str) -> tuple[int, str, list[str]]:
    store = open_session()
    try:
        seen = store.list("/nodes")
        return store.commit([Create(path, b"")])[0], store.session_id, seen
    finally:
        store.close()
