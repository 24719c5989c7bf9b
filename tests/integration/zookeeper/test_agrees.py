"""Any transactions, on the reference and on ZooKeeper: the same results, the same refusals, the same tree."""

from __future__ import annotations

from itertools import count, product

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.integration.zookeeper_server import ZooKeeperServer

from replog.metadata.memory import MemoryStore
from replog.metadata.session import TreeSession
from replog.metadata.zookeeper import ZooKeeperStore
from replog.ports import Check, Conflict, Create, Delete, Op, Put

pytestmark = pytest.mark.zookeeper

paths = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
versions = st.none() | st.integers(0, 2)
operations: st.SearchStrategy[Op] = st.one_of(
    st.builds(Create, paths, st.binary(max_size=2), st.booleans()),
    st.builds(Create, paths, st.just(b"")),
    st.builds(Put, paths, st.binary(max_size=2), versions),
    st.builds(Delete, paths, st.none()),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, st.none() | st.integers(-1, 2)),
)
steps = st.lists(st.tuples(st.integers(0, 1), st.lists(st.lists(operations, max_size=4), max_size=3)), max_size=15)
ALL = ["/" + "/".join(names) for depth in (1, 2, 3) for names in product("ab", repeat=depth)]
_numbers = count(1)


def play(root: TreeSession, script: list[tuple[int, list[list[Op]]]]) -> list[object]:
    trace: list[object] = []
    with root, root.session() as other:
        for number, batches in script:
            for ops, result in zip(batches, (root, other)[number].commit_each(batches), strict=True):
                if isinstance(result, Conflict):
                    trace.append(result.path)
                else:
                    assert isinstance(result, list)
                    trace.append([-1 if isinstance(op, Create) else value for op, value in zip(ops, result, strict=True)])
                    made = {op.path: value for op, value in zip(ops, result, strict=True) if isinstance(op, Create)}
                    gone = {op.path for op in ops if isinstance(op, Delete)}
                    for path in sorted(made.keys() - gone if len(batches) == 1 else ()):
                        found = root.read(path)
                        assert found is not None
                        assert found.created == made[path]
            trace.append([(found and (found.value, found.version)) for found in root.read_each(ALL)])
            trace.append([root.list(path) for path in ("/", *ALL)])
    return trace


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=50)
@given(script=steps)
@example(script=[(0, [[Create("/a/b", b"")]]), (0, [[Create("/a", b"", ephemeral=True)], [Check("/a/b", -1), Create("/b", b"")]])])
@example(script=[(0, [[Create("/a", b"", ephemeral=True)]]), (1, [[Check("/a/b/a", -1), Create("/b", b"")]])])
@example(script=[(0, [[Create("/a/b", b"")]]), (0, [[Delete("/a", 0)], [Delete("/a/b")]])])
@example(script=[(0, [[Create("/a/b", b"")]]), (1, [[Check("/b", 0), Delete("/a/b")], [Delete("/a/b")]])])
def test_zookeeper_agrees_with_the_reference(server: ZooKeeperServer, script: list[tuple[int, list[list[Op]]]]) -> None:
    address = f"{server.address}/agrees-{next(_numbers)}"
    assert play(ZooKeeperStore(address), script) == play(MemoryStore(), script)
