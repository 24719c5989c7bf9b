"""That the checks of a transaction hold when it commits, as races of threads: part of `MetadataStoreContract`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from replog.ports import Check, Conflict, Create, MetadataStore, Op, Put, SessionLost, UnknownOutcome, Versioned
from replog.testing.contract_sessions import ContractSessions, OpenSession

__all__ = ["RaceContract"]

ROUNDS = 25
WHOLE_ROUNDS = 100
ENDED_ROUNDS = 25
ENDED_THREADS = 4
THREADS_PER_SESSION = 2


class RaceContract(ContractSessions):
    """The part of the contract that is about commits at the same time: in each round one of several threads of two sessions wins."""

    def test_of_threads_that_race_on_a_version_one_wins(self, sessions: OpenSession) -> None:
        stores = sessions(), sessions()
        stores[0].commit([Create("/seat", b"")])
        won = [_race(stores, [[Put("/seat", b"", version)]] * 2) for version in range(ROUNDS)]
        assert won == [[[version + 1]] for version in range(ROUNDS)]

    def test_of_threads_that_race_to_create_one_wins(self, sessions: OpenSession) -> None:
        stores = sessions(), sessions()
        stores[0].commit([Create("/seat", b"")])
        won = [_race(stores, [[Check("/seat", 0), Create(f"/won/{number}", b"")]] * 2) for number in range(ROUNDS)]
        assert [len(results) for results in won] == [1] * ROUNDS
        created = [results[0][1] for results in won]
        assert created == sorted(set(created))
        assert len(stores[1].list("/won")) == ROUNDS

    def test_a_check_holds_until_its_transaction_is_applied(self, sessions: OpenSession) -> None:
        """Each session checks what the other one writes: whichever is first, it makes the check of the other fail."""
        stores = sessions(), sessions()
        stores[0].commit([Create("/seat", b"")])
        won = []
        for number in range(ROUNDS):
            seat = stores[0].read("/seat")
            assert seat is not None
            version, claim = seat.version, f"/claims/{number}"
            won.append(_race(stores, [[Check("/seat", version), Create(claim, b"")], [Check(claim, -1), Put("/seat", b"", version)]]))
        assert [len(results) for results in won] == [1] * ROUNDS

    def test_a_transaction_is_seen_whole_or_not_at_all(self, sessions: OpenSession) -> None:
        """Whoever reads one after the other what is written together finds nothing older than what he has read before."""
        writer, reader = sessions(), sessions()
        writer.commit([Create("/a", b"0"), Create("/b", b"0")])
        begun, over = threading.Event(), threading.Event()
        read: list[list[int]] = []

        def look() -> None:
            while not over.is_set():
                read.append([int(_found(reader, path).value) for path in ("/a", "/b", "/a")])
                begun.set()

        with _threads_in_turns(), ThreadPoolExecutor(1) as pool:
            looking = pool.submit(look)
            begun.wait()
            try:
                for number in range(1, WHOLE_ROUNDS + 1):
                    writer.commit([Put("/a", b"%d" % number), Put("/b", b"%d" % number)])
            finally:
                over.set()
            looking.result()
        assert [found for found in read if found != sorted(found)] == []

    def test_a_session_that_is_ended_while_it_writes_has_then_written(self, sessions: OpenSession) -> None:
        """That it lives must hold when its transaction is applied, as any check: who has seen its end sees no write of it later."""
        other = sessions()
        other.commit([Create("/seat", b"")])
        late = []
        for _ in range(ENDED_ROUNDS):
            one = sessions()
            with _threads_in_turns(), _writing(one, "/seat"):
                self.end(one, other)
                seen = _found(other, "/seat").version
            late.append(_found(other, "/seat").version - seen)
        assert late == [0] * ENDED_ROUNDS, f"writes of a session after its end, in each round: {late}"


@contextmanager
def _writing(store: MetadataStore, path: str) -> Iterator[None]:
    """Threads put a node as fast as they can, until their session is lost; they have come to their end when this is over."""
    begun, over = threading.Event(), threading.Event()

    def write() -> None:
        try:
            while not over.is_set():
                with suppress(UnknownOutcome):  # its end breaks the connection of some
                    store.commit([Put(path, b"")])
                begun.set()
        except SessionLost:
            return
        finally:
            begun.set()

    with ThreadPoolExecutor(ENDED_THREADS) as pool:
        writing = [pool.submit(write) for _ in range(ENDED_THREADS)]
        begun.wait()
        try:
            yield
        finally:
            over.set()
        for each in writing:
            each.result()


def _found(store: MetadataStore, path: str) -> Versioned:
    found = store.read(path)
    assert found is not None
    return found


def _race(stores: Sequence[MetadataStore], batches: Sequence[Sequence[Op]]) -> list[list[int]]:
    """Commit the batch of each session in several threads at once; the results of those that were not refused."""
    begin = threading.Barrier(len(stores) * THREADS_PER_SESSION)

    def attempt(store: MetadataStore, ops: Sequence[Op]) -> list[int] | None:
        begin.wait()
        try:
            return store.commit(ops)
        except Conflict:
            return None

    with _threads_in_turns(), ThreadPoolExecutor(begin.parties) as pool:
        attempts = [pool.submit(attempt, *one) for one in zip(stores, batches, strict=True) for _ in range(THREADS_PER_SESSION)]
        results = [each.result() for each in attempts]
    return [result for result in results if result is not None]


@contextmanager
def _threads_in_turns() -> Iterator[None]:
    """A thread of this process gives way as often as it can, wherever it is: not only where it waits for something."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
