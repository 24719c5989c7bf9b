"""Histories of metadata stores: bad ones made by hand, good ones from the real store in memory."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from attrs import define

from replog.errors import UsageError
from replog.metadata.memory import MemoryStore
from replog.ports import Conflict, Create, Delete, Op, Put, Versioned
from replog.testing.history.registers import Access, RegisterHistory, check_registers

P = "/p"
Bad = Callable[[], RegisterHistory]


def created(history: RegisterHistory, number: int = 1, *, session: str = "s", ephemeral: bool = False) -> None:
    """A node with the value a."""
    history.invoke_create(session, P, b"a", ephemeral=ephemeral).ok(number)


def read(history: RegisterHistory, value: str | None, version: int = 0, number: int = 1, session: str = "s") -> None:
    """What a session found."""
    found = None if value is None else Versioned(value.encode(), version, number)
    history.invoke_read(session, P).ok(found=found)


def stale_read() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    history.invoke_put("s", P, b"b", 0).ok(1)
    read(history, "a", 0, session="t")
    return history


def lost_update() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    one, other = history.invoke_put("s", P, b"b", 0), history.invoke_put("t", P, b"c", 0)
    one.ok(1)
    other.ok(1)
    return history


def conflict_without_a_cause() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    history.invoke_put("s", P, b"b", 0).conflict()
    return history


def created_twice() -> RegisterHistory:
    history = RegisterHistory()
    created(history, 1)
    created(history, 2, session="t")
    return history


def creation_numbers_fall() -> RegisterHistory:
    history = RegisterHistory()
    created(history, 5)
    history.invoke_delete("s", P, 0).ok()
    created(history, 4)
    return history


def wrong_version() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    history.invoke_put("s", P, b"b", None).ok(2)
    return history


def refused_yet_done() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    history.invoke_put("s", P, b"b", 7).conflict()
    read(history, "b", 1)
    return history


def failed_yet_done() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    history.invoke_put("s", P, b"b", 0).fail()
    read(history, "b", 1)
    return history


def unknown_and_undone() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    history.invoke_put("s", P, b"b", 0).info()
    read(history, "b", 1)
    read(history, "a", 0)
    return history


def vanished() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    read(history, None)
    return history


def number_changes() -> RegisterHistory:
    history = RegisterHistory()
    history.invoke_create("s", P, b"a").info()
    read(history, "a", 0, 3)
    read(history, "a", 0, 4)
    return history


def unknown_too_late() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    history.invoke_put("s", P, b"b", None).ok(2)
    history.invoke_put("s", P, b"c", None).info()
    return history


def gone_before_its_session() -> RegisterHistory:
    history = RegisterHistory()
    created(history, ephemeral=True)
    read(history, None)
    history.invoke_end("s").ok()
    return history


def lasting_node_gone_with_a_session() -> RegisterHistory:
    history = RegisterHistory()
    created(history, 1, session="t", ephemeral=True)
    history.invoke_delete("t", P, 0).ok()
    created(history, 2)
    history.invoke_end("t").ok()
    read(history, None)
    return history


def outlives() -> RegisterHistory:
    history = RegisterHistory()
    created(history, ephemeral=True)
    history.invoke_end("s").ok()
    read(history, "a", session="t")
    return history


def watch_too_early() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    history.armed("t", P)
    read(history, "a", session="t")
    put = history.invoke_put("s", P, b"b", 0)
    history.watch_fired("t", P)
    read(history, "a", session="t")
    put.ok(1)
    return history


def watch_before_a_creation() -> RegisterHistory:
    history = RegisterHistory()
    history.armed("t", P)
    read(history, None, session="t")
    create = history.invoke_create("s", P, b"a")
    history.watch_fired("t", P)
    read(history, None, session="t")
    create.ok(1)
    return history


BAD: list[tuple[str, Bad]] = [
    ("not-linearizable", stale_read),
    ("not-linearizable", lost_update),
    ("not-linearizable", conflict_without_a_cause),
    ("not-linearizable", created_twice),
    ("not-linearizable", creation_numbers_fall),
    ("not-linearizable", wrong_version),
    ("not-linearizable", refused_yet_done),
    ("not-linearizable", failed_yet_done),
    ("not-linearizable", unknown_and_undone),
    ("not-linearizable", vanished),
    ("not-linearizable", number_changes),
    ("not-linearizable", unknown_too_late),
    ("not-linearizable", gone_before_its_session),
    ("not-linearizable", lasting_node_gone_with_a_session),
    ("ephemeral-outlives-session", outlives),
    ("watch-before-change", watch_too_early),
    ("watch-before-change", watch_before_a_creation),
]


@pytest.mark.parametrize(("kind", "bad"), BAD, ids=[bad.__name__ for _, bad in BAD])
def test_is_found(kind: str, bad: Bad) -> None:
    report = check_registers(bad())
    assert report.counts == {kind: 1}, str(report)
    assert P in str(report)


def concurrent_answers() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    put = history.invoke_put("s", P, b"b", 0)
    read(history, "b", 1, session="t")
    late = history.invoke_read("u", P)
    put.ok(1)
    late.ok(found=Versioned(b"b", 1, 1))
    return history


def unknown_much_later() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    history.invoke_put("s", P, b"b", 0).info()
    read(history, "a", 0)
    read(history, "b", 1)
    return history


def unknown_never() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    history.invoke_put("s", P, b"b", 0).info()
    history.invoke_delete("s", P, None).info()
    history.invoke_create("s", "/other", b"b").info()
    history.invoke_put("s", P, b"c", 0).ok(1)
    read(history, "c", 1)
    return history


def replaced_by_an_unknown_creation() -> RegisterHistory:
    history = RegisterHistory()
    created(history, 1)
    history.invoke_delete("s", P, 0).info()
    history.invoke_create("t", P, b"z").info()
    read(history, "z", 0, 9)
    read(history, "z", 0, 9)
    return history


def unknown_twice_the_same() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    history.invoke_put("s", P, b"b", 0).info()
    history.invoke_put("s", P, b"b", None).info()
    read(history, "b", 1)
    read(history, "b", 2)
    return history


def unknown_three_in_a_row() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    for value in (b"b", b"c", b"d"):
        history.invoke_put("s", P, value, None).info()
    history.invoke_put("s", P, b"e", 3).ok(4)
    return history


def read_while_the_session_ends() -> RegisterHistory:
    history = RegisterHistory()
    created(history, ephemeral=True)
    end = history.invoke_end("s")
    read(history, "a", session="t")
    read(history, None, session="t")
    end.ok()
    read(history, None, session="t")
    return history


def watch_for_an_older_change() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    history.armed("t", P)
    history.invoke_put("s", P, b"b", 0).ok(1)
    read(history, "b", 1, session="t")
    history.watch_fired("t", P)
    read(history, "b", 1, session="t")
    return history


def watch_for_what_is_gone_again() -> RegisterHistory:
    history = RegisterHistory()
    history.armed("t", P)
    read(history, None, session="t")
    created(history)
    history.invoke_delete("s", P, 0).ok()
    history.watch_fired("t", P)
    read(history, None, session="t")
    return history


def watch_for_nothing() -> RegisterHistory:
    history = RegisterHistory()
    created(history)
    history.armed("t", P)
    read(history, "a", session="t")
    history.watch_fired("t", P)
    read(history, "a", session="t")
    return history


GOOD = [
    concurrent_answers,
    unknown_much_later,
    unknown_never,
    replaced_by_an_unknown_creation,
    unknown_twice_the_same,
    unknown_three_in_a_row,
    read_while_the_session_ends,
    watch_for_an_older_change,
    watch_for_what_is_gone_again,
    watch_for_nothing,
]


@pytest.mark.parametrize("good", GOOD, ids=[good.__name__ for good in GOOD])
def test_what_is_legal_is_no_error(good: Bad) -> None:
    report = check_registers(good())
    assert report.ok, str(report)
    assert report.notes == {}


@define(eq=False)
class Under:
    """A call under way: done at the store or not yet, and what it will be told."""

    access: Access
    op: Op | None
    done: bool = False
    result: int = 0
    found: Versioned | None = None
    conflict: bool = False


class Interleaver:
    """Clients of a real store; each call begins, is done, and is told at moments that a seed decides, if it is."""

    def __init__(self, seed: int, paths: int = 3) -> None:
        self.chance = random.Random(f"registers {seed}")
        self.history = RegisterHistory()
        self.root = MemoryStore()
        self.stores: dict[str, MemoryStore] = {}
        self.under: dict[str, Under] = {}
        self.abandoned: list[tuple[str, Under]] = []
        self.versions: dict[str, int] = {}
        self.paths = [f"/p/{number}" for number in range(paths)]
        self.calls = 0
        for _ in range(4):
            self.join()

    def join(self) -> None:
        store = self.root.session()
        self.stores[store.session_id] = store

    def run(self, calls: int) -> RegisterHistory:
        while self.calls < calls:
            session = self.chance.choice(list(self.stores))
            roll = self.chance.random()
            if roll < 0.005:
                self.expire(session)
            elif roll < 0.05 and self.abandoned:
                lost, under = self.abandoned.pop(self.chance.randrange(len(self.abandoned)))
                if lost in self.stores:
                    self.execute(lost, under)
            elif session not in self.under:
                self.begin(session)
            elif not self.under[session].done:
                self.execute(session, self.under[session])
            else:
                self.tell(session)
        return self.history

    def begin(self, session: str) -> None:
        self.calls += 1
        history, path, value = self.history, self.chance.choice(self.paths), f"{self.calls}".encode()
        version = self.chance.choice((None, self.versions.get(path, 0), self.versions.get(path, 0)))
        kind = self.chance.choice(("create", "create", "put", "put", "put", "delete", "read", "read", "read", "watch"))
        if kind == "watch":
            if (session, path) not in history._armed:
                self.stores[session].watch(path, lambda told: history.watch_fired(session, told))
                history.armed(session, path)
            kind = "read"
        if kind == "create":
            ephemeral = self.chance.random() < 0.5
            access, op = history.invoke_create(session, path, value, ephemeral=ephemeral), Create(path, value, ephemeral)
            self.under[session] = Under(access, op)
        elif kind == "put":
            self.under[session] = Under(history.invoke_put(session, path, value, version), Put(path, value, version))
        elif kind == "delete":
            self.under[session] = Under(history.invoke_delete(session, path, version), Delete(path, version))
        else:
            self.under[session] = Under(history.invoke_read(session, path), None)

    def execute(self, session: str, under: Under) -> None:
        store, path = self.stores[session], under.access.path
        under.done = True
        if under.op is None:
            under.found = store.read(path)
            self.versions[path] = under.found.version if under.found else 0
            return
        try:
            under.result = store.commit([under.op])[0]
        except Conflict:
            under.conflict = True

    def tell(self, session: str) -> None:
        under = self.under.pop(session)
        if self.chance.random() < 0.05:
            under.access.info()
        elif under.conflict:
            under.access.conflict()
        else:
            under.access.ok(under.result, under.found)
        if self.chance.random() < 0.05:
            self.abandon(session)

    def abandon(self, session: str) -> None:
        """A write goes out, and the client gives it up before it is done; it may be done later."""
        self.calls += 1
        path, value = self.chance.choice(self.paths), f"{self.calls}".encode()
        version = self.versions.get(path, 0)
        access = self.history.invoke_put(session, path, value, version)
        self.abandoned.append((session, Under(access, Put(path, value, version))))

    def expire(self, session: str) -> None:
        store = self.stores.pop(session)
        self.under.pop(session, None)
        end = self.history.invoke_end(session)
        store.expire()
        if self.chance.random() < 0.8:
            end.ok()
        self.join()


def test_the_store_in_memory_passes() -> None:
    kinds: dict[tuple[str, str], int] = {}
    fired = 0
    for seed in range(60):
        history = Interleaver(seed).run(150)
        report = check_registers(history)
        assert report.ok, f"seed {seed}: {report}"
        assert report.notes == {}
        fired += len(history.fired)
        for access in [*history.accesses, *history.endings.values()]:
            kinds[access.kind, access.outcome] = kinds.get((access.kind, access.outcome), 0) + 1
    assert fired > 100
    assert {kind for kind, number in kinds.items() if number > 10} >= {
        (kind, outcome) for kind in ("create", "put", "delete") for outcome in ("ok", "conflict", "unknown")
    } | {("read", "ok"), ("end", "ok"), ("end", "unknown")}


def test_two_thousand_calls_on_one_path_pass() -> None:
    report = check_registers(Interleaver(1, paths=1).run(2_000))
    assert (report.counts, report.notes) == ({}, {}), str(report)


def test_a_changed_answer_of_the_real_store_is_found() -> None:
    found = changed = 0
    for seed in range(40):
        history = Interleaver(seed).run(150)
        puts = [access for access in history.accesses if access.kind == "put" and access.outcome == "ok"]
        reads = [access for access in history.accesses if access.found is not None]
        if not puts or not reads:
            continue
        changed += 2
        put = Interleaver(seed).chance.choice(puts)
        put.result += 1
        found += not check_registers(history).ok
        put.result -= 1
        read = Interleaver(seed).chance.choice(reads)
        assert read.found is not None
        read.found = Versioned(b"never written", read.found.version, read.found.created)
        found += not check_registers(history).ok
    assert found == changed > 40


def test_a_search_that_takes_too_long_is_given_up() -> None:
    history = RegisterHistory()
    created(history)
    for _ in range(12):
        history.invoke_put("s", P, b"b", None).info()
    read(history, "x", 99)
    report = check_registers(history, steps_max=5)
    assert (report.counts, report.notes) == ({}, {"undecided": 1})


def test_what_cannot_be_is_refused() -> None:
    history = RegisterHistory()
    access = history.invoke_read("s", P)
    access.ok()
    with pytest.raises(UsageError, match="has ended before"):
        access.conflict()
    with pytest.raises(UsageError, match="no watch"):
        history.watch_fired("s", P)


def test_a_path_with_children_is_not_judged_by_its_watches() -> None:
    history = watch_too_early()
    history.invoke_create("s", f"{P}/child", b"").ok(2)
    assert check_registers(history).ok
