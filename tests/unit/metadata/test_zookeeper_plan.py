"""What a transaction becomes at ZooKeeper, and what its answers mean: tables, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import (
    APIError,
    BadVersionError,
    ConnectionLoss,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from replog.errors import UsageError
from replog.metadata.zookeeper.connection import Connection, meaning
from replog.metadata.zookeeper.nodes import Nodes
from replog.metadata.zookeeper.plan import Known, Parent, Planner, Stale, Step, outcome_of, parents_of
from replog.ports import Check, Conflict, Create, Delete, Op, Put, UnknownOutcome


def implied(children: int) -> Parent:
    return Parent(0, children, implied=True)


def explicit(children: int, *, ephemeral: bool = False) -> Parent:
    return Parent(3, children, implied=False, ephemeral=ephemeral)


def spelt(steps: list[Step]) -> list[str]:
    """create/put/delete/check, path, what belongs to no operation in brackets."""
    said = []
    for step in steps:
        null = " null" if step.verb == "create" and step.value is None else ""
        version = f" {step.version}" if step.version >= 0 else ""
        text = f"{step.verb} {step.path}{version}{null}"
        said.append(f"({text})" if step.op is None else text)
    return said


PUT = Put("/z", b"")  # its answer says the number of the transaction: creations need not ask for it

PLANS: list[tuple[list[Op], Known, list[str]]] = [
    ([Put("/a", b"", 4), Check("/b", 2), Check("/c", None), Delete("/d", 1)], {}, ["put /a 4", "check /b 2", "check /c", "delete /d 1"]),
    ([Create("/a", b"x")], {}, ["create /a", "put /a", "delete /a", "create /a"]),
    ([PUT, Create("/a", b"x"), Create("/b", b"")], {}, ["put /z", "create /a", "create /b"]),
    ([PUT, Create("/a/b/c", b"")], {}, ["put /z", "(create /a null)", "(create /a/b null)", "create /a/b/c"]),
    ([PUT, Create("/a/b/c", b"")], {"/a": implied(1)}, ["put /z", "(create /a/b null)", "create /a/b/c"]),
    ([PUT, Create("/a/b", b""), Create("/a/c", b"")], {}, ["put /z", "(create /a null)", "create /a/b", "create /a/c"]),
    ([PUT, Create("/a", b""), Create("/a/b", b"")], {}, ["put /z", "create /a", "create /a/b"]),
    # a parent goes with its last child, if nobody wrote it
    ([Delete("/a/b")], {"/a": implied(1)}, ["delete /a/b", "(delete /a 0)"]),
    ([Delete("/a/b")], {"/a": implied(2)}, ["delete /a/b"]),
    ([Delete("/a/b")], {"/a": explicit(1)}, ["delete /a/b"]),
    ([Delete("/a/b")], {}, ["delete /a/b"]),
    ([Delete("/a/b/c")], {"/a": implied(1), "/a/b": implied(1)}, ["delete /a/b/c", "(delete /a/b 0)", "(delete /a 0)"]),
    ([Delete("/a/b/c")], {"/a": implied(2), "/a/b": implied(1)}, ["delete /a/b/c", "(delete /a/b 0)"]),
    ([Delete("/a/b/c")], {"/a": explicit(1), "/a/b": implied(1)}, ["delete /a/b/c", "(delete /a/b 0)"]),
    ([Delete("/a/b"), Put("/a", b"")], {"/a": implied(1)}, ["delete /a/b", "put /a"]),
    ([PUT, Delete("/a/b"), Create("/a/b", b"")], {"/a": implied(1)}, ["put /z", "delete /a/b", "create /a/b"]),
    ([PUT, Delete("/a/b"), Create("/a/c", b"")], {"/a": implied(1)}, ["put /z", "delete /a/b", "create /a/c"]),
    ([PUT, Create("/a/b", b""), Delete("/a/b")], {}, ["put /z", "(create /a null)", "create /a/b", "delete /a/b", "(delete /a 0)"]),
    ([Delete("/a/b"), Delete("/a")], {"/a": implied(1)}, ["delete /a/b", "delete /a"]),
    ([Delete("/a/b"), Delete("/a/c")], {"/a": implied(2)}, ["delete /a/b", "delete /a/c", "(delete /a 0)"]),
    # that something is not there is checked by making it
    ([Check("/a", -1)], {}, ["create /a null", "delete /a"]),
    ([Check("/a/b", -1)], {"/a": explicit(0)}, ["create /a/b null", "delete /a/b"]),
    ([Check("/a/b/c", -1)], {}, ["(create /a null)", "(delete /a)"]),
    ([Check("/a/b/c", -1)], {"/a": implied(1)}, ["(create /a/b null)", "(delete /a/b)"]),
    ([Check("/a/b", -1)], {"/a": explicit(0, ephemeral=True)}, ["(check /a)"]),
    ([Check("/a/b/c/d", -1)], {"/a": explicit(0, ephemeral=True)}, ["(check /a)"]),
    ([PUT, Create("/a", b"", ephemeral=True), Check("/a/b", -1)], {}, ["put /z", "create /a", "(check /a)"]),
    ([], {}, []),
]


@pytest.mark.parametrize(("ops", "known", "steps"), PLANS)
def test_plan(ops: list[Op], known: Known, steps: list[str]) -> None:
    assert spelt(Planner(known).plan(ops)) == steps


def test_each_transaction_is_planned_as_if_those_before_it_were_applied() -> None:
    planner = Planner({"/p": implied(2)})
    assert spelt(planner.plan([Delete("/p/a")])) == ["delete /p/a"]
    assert spelt(planner.plan([Delete("/p/b")])) == ["delete /p/b", "(delete /p 0)"]
    assert spelt(planner.plan([PUT, Create("/p/c", b"")])) == ["put /z", "(create /p null)", "create /p/c"]
    assert spelt(planner.plan([PUT, Create("/p/d", b"")])) == ["put /z", "create /p/d"]
    assert list(planner.losing) == ["/p"]


def test_what_another_transaction_decides_is_not_planned_with() -> None:
    """The ephemeral node is there if that was applied; else there may be another one, with what is looked for below it."""
    planner = Planner({"/a": explicit(1), "/a/b": explicit(0)})
    planner.plan([Create("/a", b"", ephemeral=True)])
    for _ in range(2):
        with pytest.raises(Stale):
            planner.plan([Create("/x", b"", ephemeral=True), Check("/a/b", -1)])
    with pytest.raises(Stale):
        planner.plan([Check("/x/y", -1)])


def test_a_parent_that_others_were_to_remove_is_looked_at_again() -> None:
    planner = Planner({"/a": implied(1)})
    planner.plan([Check("/z", 0), Delete("/a/b")])
    assert spelt(planner.plan([Delete("/a/b")])) == ["delete /a/b"]
    assert list(planner.losing) == ["/a"]


def test_what_must_be_read_before() -> None:
    batches: list[list[Op]] = [
        [Create("/a/b/c", b""), Put("/x/y", b"")],
        [Delete("/a/d"), Check("/q/r", 1), Check("/s/t", -1)],
        [Create("/top", b"")],
    ]
    assert parents_of(batches) == ["/a/b", "/a", "/s"]


STAT = SimpleNamespace(version=5, mzxid=77)
CREATE: list[Op] = [Create("/a/b", b"")]


def answers_of(steps: list[Step], at: int, error: Exception) -> list[object]:
    return [RolledBackError()] * at + [error] + [RuntimeInconsistency()] * (len(steps) - at - 1)


def test_results_are_numbers_of_creations_and_versions() -> None:
    ops: list[Op] = [Check("/c", 0), Create("/a/b", b""), Put("/d", b""), Delete("/e"), Create("/f", b""), Put("/d", b"")]
    steps = Planner({}).plan(ops)
    later = SimpleNamespace(version=6, mzxid=77)
    answers = {"create": ["path"] * 3, "put": [STAT, later], "delete": [True], "check": [True]}
    assert outcome_of(ops, steps, [answers[step.verb].pop(0) for step in steps]) == [0, 77, 5, 0, 77, 6]


@pytest.mark.parametrize(
    ("ops", "at", "error", "path", "said"),
    [
        ([Create("/a", b"")], 0, NodeExistsError(), "/a", "it exists"),
        ([Put("/a", b"", 4)], 0, BadVersionError(), "/a", "it is not at version 4"),
        ([Put("/a", b"")], 0, NoNodeError(), "/a", "it does not exist"),
        ([Delete("/a")], 0, NotEmptyError(), "/a", "it has children"),
        ([Delete("/a")], 0, NoNodeError(), "/a", "it does not exist"),
        ([Check("/a", 0)], 0, NoNodeError(), "/a", "it does not exist"),
        ([Check("/a", -1)], 0, NodeExistsError(), "/a", "it exists"),
        ([Put("/a", b""), Put("/b", b""), Put("/c", b"")], 1, NoNodeError(), "/b", "it does not exist"),
        ([Create("/a/b/c", b"")], 2, NoChildrenForEphemeralsError(), "/a/b", "an ephemeral node has no children"),
    ],
)
def test_a_refusal_names_the_path(ops: list[Op], at: int, error: Exception, path: str, said: str) -> None:
    steps = Planner({}).plan(ops)
    outcome = outcome_of(ops, steps, answers_of(steps, at, error))
    assert isinstance(outcome, Conflict)
    assert (outcome.path, str(outcome).partition(": ")[2]) == (path, said)


@pytest.mark.parametrize(
    ("ops", "known", "at", "error"),
    [
        (CREATE, {}, 0, NodeExistsError()),  # the parent was made meanwhile
        (CREATE, {"/a": implied(1)}, 0, NoNodeError()),  # it went meanwhile
        ([Delete("/a/b")], {"/a": implied(1)}, 1, NotEmptyError()),  # it has another child
        ([Delete("/a/b")], {"/a": implied(1)}, 1, BadVersionError()),  # it was written
        ([Delete("/a/b")], {"/a": implied(1)}, 1, NoNodeError()),
        ([Check("/a/b", -1)], {}, 0, NodeExistsError()),  # the parent is there by now; the node may be too
        ([Check("/a/b", -1)], {"/a": implied(1)}, 0, NoNodeError()),
        ([Check("/a/b", -1)], {"/a": explicit(0, ephemeral=True)}, 0, NoNodeError()),
        ([Check("/a/b", -1)], {"/a": explicit(0)}, 0, NoChildrenForEphemeralsError()),  # it is an ephemeral node by now
    ],
)
def test_parents_that_changed_meanwhile_refuse_nobody(ops: list[Op], known: Known, at: int, error: Exception) -> None:
    steps = Planner(known).plan(ops)
    with pytest.raises(Stale):
        outcome_of(ops, steps, answers_of(steps, at, error))


@pytest.mark.parametrize(("error", "kind"), [(NoAuthError(), UsageError), (APIError(), UsageError), (RuntimeError("?"), UnknownOutcome)])
def test_other_errors(error: Exception, kind: type[Exception]) -> None:
    ops: list[Op] = [Put("/a", b"")]
    assert isinstance(outcome_of(ops, Planner({}).plan(ops), [error]), kind)


def test_an_answer_that_is_not_one_is_an_unknown_outcome() -> None:
    ops: list[Op] = [Put("/a", b""), Put("/b", b"")]
    steps = Planner({}).plan(ops)
    assert isinstance(outcome_of(ops, steps, [STAT]), UnknownOutcome)
    assert isinstance(outcome_of(ops, steps, [RolledBackError(), RuntimeInconsistency()]), UnknownOutcome)


def test_errors_of_kazoo_are_told_in_words() -> None:
    assert str(meaning(ConnectionLoss(), "a read")) == "lost the connection to ZooKeeper (a read) on the way: connection loss"
    unknown = outcome_of([PUT], [Step("put", "/z", b"", op=0)], [RolledBackError()])
    assert str(unknown) == "ZooKeeper refused a transaction and did not say why: rolled back"
    refused = outcome_of([PUT], [Step("put", "/z", b"", op=0)], [APIError("what")])
    assert str(refused).startswith("/z: ZooKeeper refused it (")
    assert "Error" not in str(refused)


class Server:
    """As much of a `Connection` as transactions need: nothing is there, and whatever is created can be."""

    watches = acl = ()
    _timeout_s, _hosts = 1.0, "here"
    read = Connection.read

    def __init__(self, *denied: str) -> None:
        self.sent: list[list[str]] = []
        self.denied = denied

    def send(self, call: Any) -> Any:
        def transaction() -> Any:
            return SimpleNamespace(operations=(ops := []), commit_async=lambda: ops)

        return call(SimpleNamespace(get_async=str, sync_async=str, transaction=transaction))

    def answer(self, asked: Any) -> Any:
        if isinstance(asked, str):
            return NoAuthError() if asked in self.denied else NoNodeError()
        self.sent.append([operation.path for operation in asked])
        return [SimpleNamespace(mzxid=7, version=0) for _ in asked]


def test_a_transaction_that_is_too_large_is_refused_alone():
    server = Server()
    nodes = Nodes(server, "/chroot", request_bytes_max=1_000)  # type: ignore[arg-type]
    results = nodes.transact("me", [[Create("/a", b"")], [Create("/large", bytes(1_000))], [Create("/b", b"")]])
    assert [type(result) for result in results] == [list, UsageError, list]
    assert "a transaction of 1" in str(results[1])
    assert [set(paths) for paths in server.sent] == [{"/chroot/a"}, {"/chroot/b"}]


def test_a_transaction_below_a_node_that_may_not_be_read_is_refused_alone():
    server = Server("/chroot/a")
    nodes = Nodes(server, "/chroot", request_bytes_max=1_000)  # type: ignore[arg-type]
    results = nodes.transact("me", [[Create("/b/x", b"")], [Put("/c", b""), Create("/a/x", b"")], [Create("/d", b"")]])
    assert [type(result) for result in results] == [list, UsageError, list]
    assert str(results[1]).startswith("/a: the access list of a node")
    assert [set(paths) for paths in server.sent] == [{"/chroot/b", "/chroot/b/x"}, {"/chroot/d"}]


class Closed(Server):
    """Another thread closes the store while the answer to a transaction is waited for."""

    def answer(self, asked: Any) -> Any:
        if isinstance(asked, str):
            return super().answer(asked)
        self.sent.append([])
        raise UsageError("the store at here was closed while a call was waiting")


def test_what_became_of_a_transaction_whose_store_was_closed_meanwhile_is_unknown() -> None:
    server = Closed()
    nodes = Nodes(server, "", request_bytes_max=1_000)  # type: ignore[arg-type]
    (result,) = nodes.transact("me", [[Create("/a", b"")]])
    assert isinstance(result, UnknownOutcome)
    assert "closed while a call was waiting; whether it was applied is unknown" in str(result)
    assert len(server.sent) == 1


class Busy(Server):
    """Somebody else changes the parents, each time."""

    def answer(self, asked: Any) -> Any:
        answer = super().answer(asked)
        return answer if isinstance(asked, str) else [RolledBackError(), NoNodeError(), *(RuntimeInconsistency() for _ in asked[2:])]


def test_a_transaction_that_others_always_come_between_names_what_was_to_be_written() -> None:
    """Not its guard: whoever hears that the guard has failed believes to be deposed."""
    nodes = Nodes(Busy(), "", request_bytes_max=1_000)  # type: ignore[arg-type]
    (result,) = nodes.transact("me", [[Check("/controller_epoch", 3), Create("/a/b", b"")]])
    assert isinstance(result, Conflict)
    assert (result.path, "20 times" in str(result)) == ("/a/b", True)
