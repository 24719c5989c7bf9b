"""The store of the example keeps the contract, across processes too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from examples.custom_store import JsonStore

from replog.errors import StoreCorrupt
from replog.ports import Create, Delete, MetadataStore, Put
from replog.testing.eventually import eventually
from replog.testing.store_contract import MetadataStoreContract, OpenSession

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "custom_store.py"


def opened(folder: Path) -> MetadataStore:
    store: MetadataStore = JsonStore(folder)
    return store


class TestJsonStore(MetadataStoreContract):
    expires = False

    @pytest.fixture
    def open_session(self, tmp_path: Path) -> OpenSession:
        return partial(opened, tmp_path / "meta")

    def settle(self, done: Callable[[], bool], *stores: MetadataStore) -> None:
        for store in stores:
            store.poll()  # type: ignore[attr-defined]
        eventually(done)

    def end(self, store: MetadataStore, other: MetadataStore) -> None:
        other.end_session(store.session_id)  # type: ignore[attr-defined]


def test_a_session_ends_with_its_process(tmp_path: Path) -> None:
    with JsonStore(tmp_path) as store:
        store.commit([Create("/ids/kept", b"")])
        code = (
            "import custom_store, os, signal\n"
            "from replog.ports import Create\n"
            f"store = custom_store.JsonStore({str(tmp_path)!r})\n"
            "store.commit([Create('/ids/1', b'', ephemeral=True)])\n"
            "print('there', flush=True)\n"
            "input()\n"
        )
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=EXAMPLE.parent) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"there\n"
            assert store.list("/ids") == ["1", "kept"]
            fired: list[str] = []
            store.watch("/ids", fired.append)
            child.kill()
        eventually(lambda: fired == ["/ids"])
        assert store.list("/ids") == ["kept"]


def test_a_store_that_a_callback_closes_tells_nothing_more(tmp_path: Path) -> None:
    with JsonStore(tmp_path) as other:
        one = JsonStore(tmp_path)
        told: list[str] = []

        def changed(path: str) -> None:
            told.append(path)
            one.close()

        other.commit([Create("/a", b""), Create("/b", b"")])
        one.watch("/a", changed)
        one.watch("/b", changed)
        other.commit([Delete("/a"), Delete("/b")])
        eventually(lambda: bool(told) and one._delivering.acquire(blocking=False))
        assert told == ["/a"]


def test_a_file_that_is_no_tree_is_named(tmp_path: Path) -> None:
    JsonStore(tmp_path).close()
    (tmp_path / "tree.json").write_text("{")
    with pytest.raises(StoreCorrupt, match=r"tree\.json: it is no tree"):
        JsonStore(tmp_path)


def test_a_watch_that_is_older_than_what_the_file_remembers_is_told(tmp_path: Path) -> None:
    with JsonStore(tmp_path) as one, JsonStore(tmp_path) as two:
        told: list[str] = []
        two.commit([Create("/a", b"")])
        one.watch("/a", told.append)
        two.commit([Put("/a", b"1")])
        two.commit([Create(f"/many/{n}", b"") for n in range(1_000)])  # more than it keeps
        eventually(lambda: told == ["/a"])
        one.watch("/a", told.append)
        two.commit([Create("/b", b"")])
        one.poll()
        assert told == ["/a"]


def test_a_folder_that_is_opened_again_goes_on_counting(tmp_path: Path) -> None:
    with JsonStore(tmp_path) as store:
        store.commit([Create(f"/many/{n}", b"") for n in range(1_000)])
    with JsonStore(tmp_path) as store:
        told: list[str] = []
        store.watch("/many", told.append)
        store.poll()
        assert told == []
        store.commit([Create("/many/more", b"")])
        eventually(lambda: told == ["/many"])
