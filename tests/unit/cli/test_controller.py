"""`replog controller`: who decides, and what is told while somebody watches."""

from __future__ import annotations

import io
import json

import pytest
from tests.unit.cli.conftest import Run, run_with
from tests.unit.cli.test_health import Nobody, known, view

import replog
from replog.cli import main
from replog.cli.controller import seat_of
from replog.client.results import FeatureLevels
from replog.errors import TimedOut


def test_who_it_is(run: Run, cluster: replog.Cluster) -> None:
    known = cluster.describe_cluster()
    told = run("controller")
    assert (told.status, told.lines) == (0, [f"broker {known.controller_id} is the controller, epoch {known.controller_epoch}"])
    plain = run("controller", "--format", "json").json
    assert (plain["controller"], plain["controller_epoch"]) == (known.controller_id, known.controller_epoch)
    cluster.kill_broker(known.controller_id)
    after = run("controller", "--format", "json").json
    assert after["controller"] not in (None, known.controller_id)
    assert after["controller_epoch"] > known.controller_epoch


@pytest.mark.parametrize(("seen", "who"), [(view(controller=2), 2), (view(controller=-1), None), (view(controller=3, fenced=3), None)])
def test_a_seat_counts_if_who_has_it_serves(seen: object, who: int | None) -> None:
    assert seat_of(seen)["controller"] == who  # type: ignore[arg-type]


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
    assert [line.split("  ")[1] for line in lines] == ["broker 2 is the controller, epoch 1", "nobody answers: nobody there"]
