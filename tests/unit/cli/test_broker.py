"""What `replog broker` does with a broker that cannot go on, and with a stdout that nobody reads."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from replog.cli import main
from replog.cli.broker import Ending, _standing, _stop
from replog.errors import LogDamaged, TimedOut, UsageError
from replog.security.audit import audit

WORDS = ("broker", "--id", "1", "--listen", "tcp://127.0.0.1:0", "--data", "memory://", "--store", "file://unused")


class Played:
    """A broker that becomes ready, or does not, and then hopeless."""

    reason: ClassVar[Exception | None] = None
    refused: ClassVar[str] = ""
    ready: ClassVar[bool] = True
    stopping: ClassVar[Callable[[], None]] = staticmethod(lambda: None)
    looks: ClassVar[int] = 0
    stops: ClassVar[list[bool]] = []

    broker_id = 1
    endpoint = "tcp://127.0.0.1:7101"
    cluster_id = "c"
    trouble = ""

    is_ready = True

    def __init__(self, *_: Any, **__: Any) -> None:
        routing = SimpleNamespace(controller_epoch=1, version=1)
        self._life = SimpleNamespace(membership=SimpleNamespace(refused=self.refused), broker=SimpleNamespace(routing=routing))

    def start(self) -> None:
        if isinstance(self.reason, UsageError) and "insecure" in str(self.reason):
            raise self.reason

    def wait_until_ready(self, *, timeout_s: float) -> None:
        if not self.ready:
            assert self.reason is not None
            raise self.reason

    @property
    def hopeless(self) -> Exception | None:
        Played.looks += 1
        return self.reason if self.looks > 1 or not self.ready else None

    @contextlib.contextmanager
    def serve_status(self, _port: int, *, host: str, insecure: bool) -> Iterator[object]:
        yield SimpleNamespace(url="http://page")

    def stop(self, *, controlled: bool) -> None:
        self._life = None  # type: ignore[assignment]
        self.stops.append(controlled)
        self.stopping()


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Played]]:
    for name, value in (("looks", 0), ("stops", []), ("reason", None), ("refused", ""), ("ready", True)):
        monkeypatch.setattr(Played, name, value)
    monkeypatch.setattr("replog.runtime.node.Broker", Played)
    logger, audit = logging.getLogger("replog"), logging.getLogger("replog.audit")
    before = list(logger.handlers), logger.level, audit.level
    yield Played
    logger.handlers[:], level, audit_level = before
    logger.setLevel(level)
    audit.setLevel(audit_level)


def ran(stdout: io.BytesIO | None = None, *words: str) -> tuple[int, str, list[str]]:
    out, err = stdout or io.BytesIO(), io.StringIO()
    status = main([*WORDS, *words], stdin=io.BytesIO(), stdout=out, stderr=err)
    return status, out.getvalue().decode(), err.getvalue().splitlines()


@pytest.mark.parametrize(
    ("reason", "refused", "status"),
    [
        (UsageError("another has the id"), "another has the id", 3),
        (UsageError("no such store"), "", 1),
        (LogDamaged("the folder is gone"), "", 1),
        (MemoryError("much"), "", 1),
    ],
)
def test_a_broker_that_cannot_go_on_is_stopped_and_says_why(
    monkeypatch: pytest.MonkeyPatch, reason: Exception, refused: str, status: int
) -> None:
    monkeypatch.setattr(Played, "reason", reason)
    monkeypatch.setattr(Played, "refused", refused)
    done, out, err = ran()
    assert (done, out) == (status, "ready broker 1 at tcp://127.0.0.1:7101 cluster c\n")
    assert err[-1] == f"replog: broker 1 cannot go on: {reason}"
    assert Played.stops == [True]
    done, out, err = ran(None, "--format", "json")
    told = {"error": type(reason).__name__, "why": f"broker 1 cannot go on: {reason}", "next": None, "status": status}
    assert (done, json.loads(out.splitlines()[-1])) == (status, told)


def test_collections_pass_over_a_broker_that_is_ready_and_over_nobody_before_or_after(
    nothing_frozen: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[int] = []
    monkeypatch.setattr("replog.cli.sparing._CALM_S", 0.0)
    monkeypatch.setattr(Played, "reason", MemoryError("much"))
    monkeypatch.setattr(Played, "start", lambda self: frozen.append(gc.get_freeze_count()))
    monkeypatch.setattr(Played, "stopping", staticmethod(lambda: frozen.append(gc.get_freeze_count())))
    ran()
    assert frozen[0] == gc.get_freeze_count() == 0
    assert frozen[1] > 1_000


def test_what_is_frozen_is_of_one_life_and_of_what_that_has_heard() -> None:
    one = Played()
    life = one._life
    assert _standing(one) == (id(life), (1, 1))
    life.broker.routing.version = 2
    assert _standing(one) == (id(life), (1, 2))
    life.broker.routing.controller_epoch = 3
    assert _standing(one) == (id(life), (3, 2))
    one.is_ready = False
    assert _standing(one) == (id(life), None)
    one._life = None  # type: ignore[assignment]
    assert _standing(one) == (0, None)


def test_a_stop_that_fails_does_not_hide_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise TimedOut("the flush")

    monkeypatch.setattr(Played, "reason", LogDamaged("the folder is gone"))
    monkeypatch.setattr(Played, "stopping", staticmethod(fail))
    done, _, err = ran()
    assert done == 1
    assert [line.partition("broker 1 ")[2] for line in err[-2:]] == [
        "could not be stopped in a controlled way: the flush",
        "cannot go on: the folder is gone",
    ]


@pytest.mark.parametrize(
    ("reason", "refused", "status"),
    [
        (UsageError("another has the id"), "another has the id", 3),
        (UsageError("no such store"), "", 2),
        (MemoryError("much"), "", 1),
    ],
)
def test_one_that_will_never_be_ready(monkeypatch: pytest.MonkeyPatch, reason: Exception, refused: str, status: int) -> None:
    for name, value in (("reason", reason), ("refused", refused), ("ready", False)):
        monkeypatch.setattr(Played, name, value)
    done, out, err = ran()
    assert (done, out) == (status, "")
    assert f"replog: {reason}" in err
    assert Played.stops == [True]


def test_a_refusal_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Played, "reason", UsageError("listen on 127.0.0.1, or say insecure=True"))
    assert ran() == (2, "", ["replog: listen on 127.0.0.1, or give --insecure"])


@pytest.mark.parametrize(("level", "told"), [("info", 3), ("warning", 2), ("error", 1)])
def test_the_audit_log_is_written_at_every_level(monkeypatch: pytest.MonkeyPatch, level: str, told: int) -> None:
    def stop() -> None:
        audit("admin/anna", "127.0.0.1:5", "delete_topic", "orders", {}, 0)
        for number in (logging.INFO, logging.WARNING):
            logging.getLogger("replog.other").log(number, "other")

    monkeypatch.setattr(Played, "reason", LogDamaged("so that it ends"))
    monkeypatch.setattr(Played, "stopping", staticmethod(stop))
    _, _, err = ran(None, "--log-level", level)
    written = "INFO    principal=admin/anna address=127.0.0.1:5 action=delete_topic topic=orders outcome=ok"
    assert [line.partition(" ")[2].partition(" ")[2] for line in err if "principal" in line] == [written]
    assert len([line for line in err if "principal" in line or line.endswith(" other")]) == told


@pytest.mark.parametrize("problem", [BrokenPipeError(), OSError(28, "No space left on device")])
def test_a_readiness_line_that_nobody_gets_does_not_end_it(monkeypatch: pytest.MonkeyPatch, problem: OSError) -> None:
    class Lost(io.BytesIO):
        def write(self, _data: object) -> int:
            raise problem

    monkeypatch.setattr(Played, "reason", LogDamaged("so that it ends"))
    done, _, err = ran(Lost())
    assert (done, Played.stops) == (1, [True])
    assert err[-1].endswith("cannot go on: so that it ends")


@pytest.mark.parametrize("http", [(), ("--http", "127.0.0.1:0")])
def test_programs_get_one_object_once_it_is_ready(monkeypatch: pytest.MonkeyPatch, http: tuple[str, ...]) -> None:
    monkeypatch.setattr(Played, "reason", LogDamaged("so that it ends"))
    _, out, _ = ran(None, "--format", "json", *http)
    line, _why = out.splitlines()
    where, page = "tcp://127.0.0.1:7101", "http://page" if http else None
    assert json.loads(line) == {"broker": 1, "state": "ready", "endpoint": where, "cluster_id": "c", "page": page}
    _, out, _ = ran(None, *http)
    assert out.splitlines() == [f"ready broker 1 at {where} cluster c", *(["page http://page"] if http else [])]


def test_what_it_said_is_written_before_a_stop_that_takes_too_long_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    def leave(status: int) -> None:
        happened.append(f"left with {status}")
        raise SystemExit

    ending = SimpleNamespace(why="", orphaned=True, set=lambda _: None, wait=lambda *_: False, last_word=lambda: happened.append("written"))
    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(SystemExit):
        _stop(Played(), ending)  # type: ignore[arg-type]
    assert happened == ["written", "left with 1"]


@pytest.fixture
def ending() -> Iterator[Callable[[], Ending]]:
    """Makes one; in the end SIGHUP means again what it meant before."""
    before, made = signal.getsignal(signal.SIGHUP), contextlib.ExitStack()

    def make() -> Ending:
        one = Ending(lambda: None)
        made.callback(one.close)
        return one

    yield make
    made.close()
    signal.signal(signal.SIGHUP, before)


def test_a_hangup_asks_for_the_end_however_often_it_comes(ending: Callable[[], Ending], monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it
    one = ending()
    for _ in range(3):
        signal.raise_signal(signal.SIGHUP)
    assert (one.asked.is_set(), one.why, left) == (True, "SIGHUP", [])
    signal.raise_signal(signal.SIGTERM)
    assert left == [128 + signal.SIGTERM]


def test_a_hangup_that_is_ignored_stays_so(ending: Callable[[], Ending]) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    one = ending()
    signal.raise_signal(signal.SIGHUP)
    assert (one.asked.is_set(), signal.getsignal(signal.SIGHUP)) == (False, signal.SIG_IGN)
