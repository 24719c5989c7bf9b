"""What outlives the sessions of a store, and other processes see of it, as tests: part of `MetadataStoreContract`."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from replog.ports import Create, Put, Versioned
from replog.testing.contract_sessions import ContractSessions, OpenSession, asked_if

__all__ = ["LastingContract"]


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


def _somewhere_else(process: ProcessPoolExecutor, open_session: OpenSession, path: str) -> tuple[int, str, list[str]]:
    try:
        return process.submit(_create, open_session, path).result()
    except Exception as problem:
        raise AssertionError(
            f"another process could not open a session and create {path}; it is handed `open_session`, here {open_session!r}, "
            "which must be importable there, such as functools.partial(MyStore, folder). Set `is_shared = False` if no other process "
            "can open the store"
        ) from problem


def _create(open_session: OpenSession, path: str) -> tuple[int, str, list[str]]:
    store = open_session()
    try:
        seen = store.list("/nodes")
        return store.commit([Create(path, b"")])[0], store.session_id, seen
    finally:
        store.close()
