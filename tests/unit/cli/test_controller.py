"""`replog controller`: who decides, and what is told while somebody watches."""

from __future__ import annotations

import io
import json
import re
import time

import attrs
import pytest
from tests.unit.cli.conftest import Run, run_with
from tests.unit.cli.test_health import Nobody, known, view

import replog
from replog.cli import main
from replog.cli.controller import seat_of
from replog.client.results import ControllerDescription, FeatureLevels
from replog.errors import TimedOut


def test_who_it_is(run: Run, cluster: replog.Cluster) -> None:
    begun_ms = (time.time() - 600) * 1_000  # this cluster was made less than ten minutes ago
    known = cluster.describe_cluster()
    told = run("controller")
    assert (told.status, told.lines[0]) == (0, f"broker {known.controller_id} is the controller, epoch {known.controller_epoch}")
    assert re.fullmatch(r"in office since: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, for [0-9.]+ (s|min( \d+ s)?)", told.lines[1])
    assert re.fullmatch(r"waiting there: \d+ events?, \d+ partitions?", told.lines[2])
    assert len(told.lines) == 3
    plain = run("controller", "--format", "json").json
    assert (plain["controller"], plain["controller_epoch"]) == (known.controller_id, known.controller_epoch)
    cluster.kill_broker(known.controller_id)
    after = run("controller", "--format", "json").json
    assert after["controller"] not in (None, known.controller_id)
    assert after["controller_epoch"] > known.controller_epoch
    assert begun_ms <= plain["since_ms"] <= after["since_ms"] <= time.time() * 1_000
    assert (type(plain["queued_events"]), type(plain["due_partitions"])) == (int, int)


@pytest.mark.parametrize(("seen", "who"), [(view(controller=2), 2), (view(controller=-1), None), (view(controller=3, fenced=3), None)])
def test_a_seat_counts_if_who_has_it_serves(seen: object, who: int | None) -> None:
    assert seat_of(seen)["controller"] == who  # type: ignore[arg-type]


SAID = ControllerDescription(2, 1, 1_700_000_000_000, 3, 1)


@pytest.mark.parametrize(
    ("said", "raw", "lines"),
    [
        (SAID, False, ["in office since: 2023-11-14 22:13:20 UTC, for 3 min 20 s", "waiting there: 3 events, 1 partition"]),
        (SAID, True, ["in office since: 2023-11-14 22:13:20 UTC, for 200 s", "waiting there: 3 events, 1 partition"]),
        (
            attrs.evolve(SAID, since_ms=1_700_000_300_000, queued_events=0),
            False,
            ["in office since: 2023-11-14 22:18:20 UTC", "waiting there: 0 events, 1 partition"],
        ),
        (
            attrs.evolve(SAID, since_ms=None, due_partitions=None),
            False,
            ["in office since: unknown", "waiting there: 3 events, ? partitions"],
        ),
        (None, False, ["in office since: unknown", "waiting there: unknown"]),
    ],
    ids=["units", "raw", "its clock is ahead", "says less", "older"],
)
def test_since_when_and_what_waits(
    said: ControllerDescription | None, raw: bool, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replog.cli.controller.time.time", lambda: 1_700_000_200.0)
    told = run_with(Says(said), "controller", *["--raw"] * raw)  # type: ignore[arg-type]
    assert (told.status, told.lines[1:]) == (0, lines)
    plain = run_with(Says(said), "controller", "--format", "json").json  # type: ignore[arg-type]
    named = ("since_ms", "queued_events", "due_partitions")
    assert [plain[name] for name in named] == [None if said is None else getattr(said, name) for name in named]


def test_of_a_controller_that_does_not_serve_nothing_is_said() -> None:
    assert seat_of(view(controller=3, fenced=3), "", SAID)["since_ms"] is None
    assert seat_of(view(), "nobody answers", SAID)["queued_events"] is None


class Says:
    """A client whose controller says this of itself, one after the other; the last one for ever."""

    def __init__(self, *said: ControllerDescription | None) -> None:
        self.said = list(said)

    def _view(self, _timeout_s: float | None) -> object:
        return view()

    def describe_features(self, *, timeout_s: float | None) -> FeatureLevels:
        """Of these brokers."""
        return attrs.evolve(known(), controller=self.said.pop(0) if len(self.said) > 1 else self.said[0])


def test_watching_does_not_tell_again_that_another_number_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([False, False])
    monkeypatch.setattr("threading.Event.wait", lambda self, timeout=None: next(waits))
    stdout = io.BytesIO()
    client = Says(SAID, attrs.evolve(SAID, queued_events=9, due_partitions=0), attrs.evolve(SAID, since_ms=SAID.since_ms + 1))  # type: ignore[operator]
    with pytest.raises(StopIteration):
        main(["controller", "--watch", "--format", "json"], client=client, stdout=stdout, stderr=io.StringIO())  # type: ignore[arg-type]
    told = [json.loads(line) for line in stdout.getvalue().splitlines()]
    assert [(one["since_ms"], one["queued_events"]) for one in told] == [(SAID.since_ms, 3), (SAID.since_ms + 1, 3)]  # type: ignore[operator]


def test_no_controller_is_a_bad_answer() -> None:
    class Empty:
        def _view(self, _timeout_s: float | None) -> object:
            return view(controller=-1)

        def describe_features(self, *, timeout_s: float | None) -> FeatureLevels:
            """Somebody has just been elected: the next look will see it."""
            return known()

    told = run_with(Empty(), "controller")  # type: ignore[arg-type]
    assert (told.status, told.lines) == (1, ["no broker is the controller; the last epoch is 1"])


def test_nobody_answers() -> None:
    told = run_with(Nobody(TimedOut("waited 5 s for an answer of any broker to a question")), "controller")  # type: ignore[arg-type]
    assert (told.status, told.stdout) == (4, "")
    assert told.stderr.splitlines()[0] == "replog: waited 5 s for an answer of any broker to a question"
    assert told.stderr.splitlines()[1].startswith("next: see whether a broker runs there; ")


class Scripted:
    """A client that sees these one after the other; then somebody interrupts."""

    def __init__(self, *seen: object) -> None:
        self.seen = [one for each in seen for one in ([each] if isinstance(each, Exception) else [each, each])]
        """Each look takes one view before the controller is asked, and one after that."""

    def _view(self, _timeout_s: float | None) -> object:
        if not self.seen:
            raise KeyboardInterrupt
        one = self.seen.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    def describe_features(self, *, timeout_s: float | None) -> FeatureLevels:
        """Whoever it is answers."""
        return known()


def test_watching_tells_each_change_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.Event.wait", lambda self, timeout=None: False)
    same, away = view(controller=2), TimedOut("nobody there")
    stdout = io.BytesIO()
    client = Scripted(same, same, away, away, view(controller=3))
    assert main(["controller", "--watch", "--format", "json"], client=client, stdout=stdout, stderr=io.StringIO()) == 130  # type: ignore[arg-type]
    told = [json.loads(line) for line in stdout.getvalue().splitlines()]
    assert [one.get("controller", one.get("unreachable")) for one in told] == [2, "nobody there", 3]
    assert sorted(told, key=lambda one: str(one["seen"])) == told
    lines = run_with(Scripted(same, away), "controller", "--watch", "5").lines  # type: ignore[arg-type]
    seen = [line.split("  ")[1] for line in lines if "  " in line]
    assert seen == ["broker 2 is the controller, epoch 1", "nobody answers: nobody there"]
