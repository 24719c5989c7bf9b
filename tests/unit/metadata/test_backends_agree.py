"""Any operations, on the reference and on the store in a file: the same results, the same tree, the same watches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replog.metadata.file import FileStore
from replog.metadata.memory import MemoryStore
from replog.metadata.session import TreeSession
from replog.ports import Check, Conflict, Create, Delete, Op, Put

paths = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
versions = st.none() | st.integers(0, 2)
operations: st.SearchStrategy[Op] = st.one_of(
    st.builds(Create, paths, st.binary(max_size=2), st.booleans()),
    st.builds(Put, paths, st.binary(max_size=2), versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, st.none() | st.integers(-1, 2)),
)
steps = st.lists(st.tuples(st.integers(0, 2), st.just("leave") | st.lists(st.lists(operations, max_size=4), max_size=3)), max_size=12)
ALL = ["/" + "/".join(names) for depth in (1, 2, 3) for names in product("ab", repeat=depth)]


@pytest.fixture(scope="module")
def shared_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileStore]:
    folder: Path = tmp_path_factory.mktemp("agree")
    with FileStore(folder / "store.db", private=True) as store:
        yield store


def play(root: TreeSession, script: list[tuple[int, object]]) -> list[object]:
    """What a run looks like from outside; creation numbers are compared by their order, for a store may have had a life before."""
    trace: list[object] = []
    sessions = [root.session() for _ in range(3)]
    fired: list[str] = []
    for number, step in script:
        for path in ("/", *ALL):
            root.watch(path, fired.append)
        if step == "leave":
            sessions[number].close()
            sessions[number] = root.session()
        else:
            assert isinstance(step, list)
            for result, ops in zip(sessions[number].commit_each(step), step, strict=True):
                created = [isinstance(op, Create) for op in ops]
                trace.append(
                    (str(result), result.path)
                    if isinstance(result, Conflict)
                    else [0 if made else value for made, value in zip(created, result, strict=True)]  # type: ignore[arg-type]
                )
        trace.append((tuple(fired), look(root)))
        fired.clear()
    for store in sessions:
        store.close()
    while left := [path for path in reversed(ALL) if root.read(path) is not None and not root.list(path)]:
        root.commit([Delete(left[0])])
    assert root.list("/") == []
    return trace


def look(store: TreeSession) -> object:
    nodes = [(path, found) for path, found in zip(ALL, store.read_each(ALL), strict=True) if found is not None]
    order = [path for path, found in sorted(nodes, key=lambda item: item[1].created)]
    assert len({found.created for _, found in nodes}) == len(nodes)
    return [(path, found.value, found.version, store.list(path)) for path, found in nodes], order


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=100)
@given(script=steps)
def test_backends_agree(shared_file: FileStore, script: list[tuple[int, object]]) -> None:
    assert play(MemoryStore(), script) == play(shared_file, script)
