"""What every metadata store must do, as tests: subclass, say how sessions are opened, and run them.

::

    class TestMyStore(MetadataStoreContract):
        @pytest.fixture
        def open_session(self, tmp_path):
            ...
            return partial(MyStore, ...)     # each call: another session on one store that was empty
"""

from __future__ import annotations

import pytest

from replog.errors import ReplogError, UsageError
from replog.ports import Check, Conflict, Create, Delete, MetadataStore, Op, Put, Versioned
from replog.testing.contract_sessions import OpenSession
from replog.testing.lasting_contract import LastingContract
from replog.testing.race_contract import RaceContract
from replog.testing.session_contract import SessionContract
from replog.testing.watch_contract import WatchContract

__all__ = ["MetadataStoreContract", "OpenSession"]

MALFORMED_PATHS = ("", "/", "a", "a/b", "//", "//a", "/a//b", "/a/", "/..", "/a/../b", "/.", "/a/./b", "/a\0b", "/a\nb", "/" + "x" * 2_000)


class MetadataStoreContract(RaceContract, SessionContract, LastingContract, WatchContract):
    """The contract of `MetadataStore`. Give it `open_session` and `end`, `settle` where watches come late, and `open_short_session`.

    `lasts`, `is_shared` and `expires` (see `ContractSessions`) say what a store does not do, and what is then not asked of it.
    """

    large_bytes = 2 * 1024 * 1024  # a value too large for one transaction: set it to one that is where a store takes more than this

    # ------------------------------------------------------------------------------------------- one operation each

    def test_create_then_read(self, store: MetadataStore) -> None:
        (created,) = store.commit([Create("/a", b"one")])
        found = store.read("/a")
        assert found == Versioned(b"one", 0, created)
        assert type(found.value) is bytes
        assert store.read("/b") is None

    def test_create_makes_parents_which_are_nodes_without_a_value(self, store: MetadataStore) -> None:
        store.commit([Create("/a/b/c", b"x")])
        assert store.list("/") == ["a"]
        assert store.list("/a") == ["b"]
        parent = store.read("/a/b")
        assert parent is not None
        assert parent.value == b""
        with pytest.raises(Conflict):
            store.commit([Create("/a/b", b"late")])
        with pytest.raises(Conflict):
            store.commit([Check("/a", -1)])

    def test_create_of_what_exists_conflicts(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b"one")])
        with pytest.raises(Conflict) as caught:
            store.commit([Create("/a", b"two")])
        assert caught.value.path == "/a"
        assert _value(store, "/a") == b"one"

    def test_put_raises_the_version_and_keeps_the_creation_number(self, store: MetadataStore) -> None:
        (created,) = store.commit([Create("/a", b"0")])
        assert store.commit([Put("/a", b"1", 0)]) == [1]
        assert store.commit([Put("/a", b"2")]) == [2]
        assert store.read("/a") == Versioned(b"2", 2, created)

    def test_put_of_the_same_value_is_a_change(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b"0")])
        assert store.commit([Put("/a", b"0", 0)]) == [1]

    @pytest.mark.parametrize(
        "op", [Put("/a", b"x", 1), Put("/b", b"x"), Delete("/a", 1), Delete("/b"), Check("/a", 1), Check("/b", 0), Check("/b", None)]
    )
    def test_another_version_or_a_missing_path_conflicts(self, store: MetadataStore, op: Op) -> None:
        store.commit([Create("/a", b"0")])
        with pytest.raises(Conflict) as caught:
            store.commit([op])
        assert caught.value.path == op.path
        assert _value(store, "/a") == b"0"

    def test_delete(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b""), Create("/b", b"")])
        store.commit([Put("/b", b"x")])
        assert store.commit([Delete("/a"), Delete("/b", 1)]) == [0, 0]
        assert store.read("/a") is None
        assert store.read("/b") is None

    def test_delete_of_a_path_with_children_conflicts(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b""), Create("/a/b", b"")])
        with pytest.raises(Conflict):
            store.commit([Delete("/a")])
        store.commit([Delete("/a/b"), Delete("/a")])
        assert store.read("/a") is None

    def test_a_node_that_was_written_anew_is_another_one(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b"old"), Create("/b", b"")])
        before = store.read("/a")
        assert before is not None
        store.commit([Delete("/a")])
        store.commit([Create("/a", b"new")])
        made = before.created
        for op in (Delete("/a", 0, made), Check("/a", 0, made), Delete("/a", None, made), Check("/a", None, made)):
            with pytest.raises(Conflict) as caught:
                store.commit([Put("/b", b"x"), op])
            assert caught.value.path == "/a"
        assert (_value(store, "/a"), _value(store, "/b")) == (b"new", b"")
        (now,) = store.read_each(["/a"])
        assert now is not None
        refused, done = store.commit_each([[Delete("/a", 0, before.created)], [Check("/a", 0, now.created), Delete("/a", 0, now.created)]])
        assert isinstance(refused, Conflict)
        assert done == [0, 0]
        assert store.read("/a") is None

    def test_check(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b"")])
        assert store.commit([Check("/a", 0), Check("/a", None), Check("/b", -1)]) == [0, 0, 0]
        with pytest.raises(Conflict) as caught:
            store.commit([Check("/a", -1)])
        assert caught.value.path == "/a"

    def test_parents_that_were_only_implied_go_with_their_last_child(self, store: MetadataStore) -> None:
        store.commit([Create("/made", b"kept"), Create("/made/x/y", b""), Create("/made/x/z", b"")])
        store.commit([Delete("/made/x/y")])
        assert store.list("/made") == ["x"]
        store.commit([Delete("/made/x/z")])
        assert store.list("/made") == []
        assert _value(store, "/made") == b"kept"
        store.commit([Create("/made/x/y", b"again")])
        assert store.list("/made/x") == ["y"]

    def test_a_parent_that_was_written_stays(self, store: MetadataStore) -> None:
        store.commit([Create("/a/b", b"")])
        store.commit([Put("/a", b"mine")])
        store.commit([Delete("/a/b")])
        assert _value(store, "/a") == b"mine"

    def test_list_is_sorted_and_one_level_deep(self, store: MetadataStore) -> None:
        store.commit([Create(f"/a/{name}/deep", b"") for name in ("c", "a", "10", "9", "ä")])
        assert store.list("/a") == ["10", "9", "a", "c", "ä"]
        assert store.list("/nothing") == []

    def test_read_each_answers_in_order(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b"1"), Create("/b", b"2")])
        found = store.read_each(["/b", "/x", "/a", "/b"])
        assert [stored and stored.value for stored in found] == [b"2", None, b"1", b"2"]
        assert store.read_each([]) == []

    @pytest.mark.parametrize("value", [b"", b"\0", bytes(range(256)), b"x" * 1_000_000], ids=["empty", "zero", "all", "1 MB"])
    def test_values_are_bytes(self, store: MetadataStore, value: bytes) -> None:
        store.commit([Create("/a", value)])
        assert _value(store, "/a") == value
        store.commit([Put("/a", value[::-1])])
        assert _value(store, "/a") == value[::-1]

    def test_paths_are_unicode(self, store: MetadataStore) -> None:
        store.commit([Create("/ü/日本 語/%", b"x")])
        assert store.list("/ü") == ["日本 語"]
        assert _value(store, "/ü/日本 語/%") == b"x"

    # ------------------------------------------------------------------------------------------------ transactions

    def test_operations_see_earlier_ones_of_their_transaction(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b"0"), Put("/a", b"1", 0), Check("/a", 1), Create("/a/b", b""), Delete("/a/b"), Put("/a", b"2", 1)])
        stored = store.read("/a")
        assert stored is not None
        assert (stored.value, stored.version) == (b"2", 2)

    def test_a_conflict_applies_nothing(self, store: MetadataStore) -> None:
        store.commit([Create("/a", b"0"), Create("/b", b"0")])
        before = store.read_each(["/a", "/b"])
        with pytest.raises(Conflict) as caught:
            store.commit([Put("/a", b"1"), Delete("/b"), Create("/c/d", b""), Put("/a", b"2", 7), Create("/e", b"")])
        assert caught.value.path == "/a"
        assert store.read_each(["/a", "/b"]) == before
        assert store.read_each(["/c", "/c/d", "/e"]) == [None] * 3

    def test_an_empty_transaction_does_nothing(self, store: MetadataStore) -> None:
        assert store.commit([]) == []
        assert store.commit_each([]) == []
        assert store.commit_each([[]]) == [[]]

    def test_replacing_in_one_transaction(self, store: MetadataStore) -> None:
        (first,) = store.commit([Create("/p/a", b"old")])
        second = store.commit([Delete("/p/a"), Create("/p/a", b"new")])[1]
        assert second > first
        assert store.read("/p/a") == Versioned(b"new", 0, second)

    def test_creation_numbers_grow_over_the_whole_store(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        numbers = []
        for store in (one, two, one):
            numbers += store.commit([Create("/a/b", b"")])
            numbers += store.commit([Create("/c", b"", ephemeral=True)])
            store.commit([Delete("/a/b"), Delete("/c")])
        assert numbers == sorted(set(numbers))

    def test_of_two_that_race_on_a_version_one_wins(self, sessions: OpenSession) -> None:
        one, two = sessions(), sessions()
        one.commit([Create("/a", b"0")])
        seen = one.read("/a"), two.read("/a")
        assert seen[0] == seen[1]
        one.commit([Put("/a", b"one", 0)])
        with pytest.raises(Conflict):
            two.commit([Put("/a", b"two", 0)])
        assert _value(two, "/a") == b"one"

    def test_commit_each_gives_a_result_to_each(self, store: MetadataStore) -> None:
        results = store.commit_each([
            [Create("/a", b"0")],
            [Create("/b", b"0"), Create("/a", b"again")],
            [Put("/a", b"1", 0), Check("/b", -1)],
            [Delete("/missing")],
            [Create("/c", b"")],
        ])
        assert [type(result) for result in results] == [list, Conflict, list, Conflict, list]
        assert results[2] == [1, 0]
        refused = [result.path for result in results if isinstance(result, Conflict)]
        assert refused == ["/a", "/missing"]
        assert store.read("/b") is None
        assert _value(store, "/a") == b"1"
        assert store.list("/") == ["a", "c"]

    def test_commit_each_of_many(self, store: MetadataStore) -> None:
        results = store.commit_each([[Create(f"/many/{number}", b"x")] for number in range(3_000)])
        assert not [result for result in results if isinstance(result, ReplogError)]
        assert len(store.list("/many")) == 3_000
        results = store.commit_each([[Delete(f"/many/{number}", 0)] for number in range(3_000)])
        assert not [result for result in results if isinstance(result, ReplogError)]
        assert store.list("/many") == []

    def test_a_transaction_that_is_too_long_is_refused(self, store: MetadataStore) -> None:
        ops = [Create(f"/a{number}", b"") for number in range(store.commit_ops_max + 1)]
        with pytest.raises(UsageError, match=str(store.commit_ops_max)):
            store.commit(ops)
        with pytest.raises(UsageError, match=str(store.commit_ops_max)):
            store.commit_each([[Create("/b", b"")], ops])
        assert store.read_each(["/a0", "/b"]) == [None, None]
        assert len(store.commit(ops[:-1])) == store.commit_ops_max

    def test_what_is_too_large_is_refused_alone(self, store: MetadataStore) -> None:
        """A store need not have a limit; one that has tells of it as the result of that transaction."""
        value = bytes(self.large_bytes)
        results = store.commit_each([[Create("/a", b"")], [Create("/large", value), Create("/with", b"")], [Create("/b/c", b"")]])
        assert [type(result) for result in results] == [list, type(results[1]), list]
        if isinstance(results[1], list):
            assert _value(store, "/large") == value
        else:
            assert (type(results[1]), store.list("/")) == (UsageError, ["a", "b"])
            with pytest.raises(UsageError):
                store.commit([Create("/large", value)])

    @pytest.mark.parametrize("path", MALFORMED_PATHS)
    def test_a_malformed_path_is_refused(self, store: MetadataStore, path: str) -> None:
        for op in (Create(path, b""), Put(path, b""), Delete(path), Check(path, None)):
            with pytest.raises(UsageError):
                store.commit([Create("/good", b""), op])
            with pytest.raises(UsageError):
                store.commit_each([[Create("/good", b"")], [op]])
        with pytest.raises(UsageError):
            store.read(path)
        with pytest.raises(UsageError):
            store.read_each(["/good", path])
        if path != "/":
            with pytest.raises(UsageError):
                store.list(path)
            with pytest.raises(UsageError):
                store.watch(path, print)
        assert store.read("/good") is None


def _value(store: MetadataStore, path: str) -> bytes | None:
    stored = store.read(path)
    return None if stored is None else stored.value
