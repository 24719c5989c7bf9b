"""How a soak ends before its time: what its processes have run is written down, and what is not is named."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from replog.testing.simulator import soak as soaking
from replog.testing.simulator import tally
from replog.testing.simulator.__main__ import main
from replog.testing.simulator.soak import Result, soak
from replog.testing.simulator.tally import Batch

pytestmark = [pytest.mark.simulation, pytest.mark.processes]


def until_stopped(first: int, count: int, out: Path, direction: str) -> Result:
    """Of each batch one seed was run when the worker is told to stop."""
    assert soaking._stop is not None
    soaking._stop.wait()
    return Result(Batch("c", "s", first, 1))


def without_end(first: int, count: int, out: Path, direction: str) -> Result:
    Event().wait()
    raise AssertionError


def the_first_dies(first: int, count: int, out: Path, direction: str) -> Result:
    if first == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return until_stopped(first, count, out, direction)


def the_first_raises(first: int, count: int, out: Path, direction: str) -> Result:
    if first == 7:
        raise OSError("no room")
    return until_stopped(first, count, out, direction)


def interrupt(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """A person interrupts the soak so many times, each time while it waits for its workers."""
    left, wait = iter(range(times)), soaking.wait

    def interrupted(*args: Any, **given: Any) -> Any:
        if next(left, None) is not None:
            raise KeyboardInterrupt
        return wait(*args, **given)

    monkeypatch.setattr(soaking, "wait", interrupted)


@pytest.mark.parametrize("minutes", [0, 60])
def test_an_interrupt_at_any_time_costs_nothing(minutes: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before the minutes are over, and after, while the last runs are waited for."""
    monkeypatch.setattr(soaking, "_work", until_stopped)
    interrupt(monkeypatch, 1)
    said: list[str] = []
    assert soak(minutes, jobs=2, first=7, ledger=tmp_path / "ledger.jsonl", out=tmp_path, size=2, say=said.append) == 0
    assert sorted((one.first, one.count) for one in tally.read(tmp_path / "ledger.jsonl")) == [(7, 1), (9, 1)]
    assert said[0] == "interrupted: waiting for the runs under way"


def test_a_second_interrupt_ends_it_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(soaking, "_work", without_end)
    interrupt(monkeypatch, 2)
    ledger = tmp_path / "ledger.jsonl"
    assert main(["soak", "--minutes", "60", "--from", "7", "--jobs", "2", "--ledger", str(ledger)]) == 2
    lost = [f"seeds {first} to {first + 99} are not written down: interrupted a second time" for first in (7, 107)]
    assert capsys.readouterr().err.splitlines() == lost
    assert not ledger.exists()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(("work", "why"), [(the_first_dies, "their process died"), (the_first_raises, "OSError('no room')")])
def test_a_worker_that_is_lost_ends_it_and_costs_its_own_seeds_alone(
    work: Callable[..., Result], why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soaking, "_work", work)
    ledger = tmp_path / "ledger.jsonl"
    assert main(["soak", "--minutes", "60", "--from", "7", "--jobs", "2", "--ledger", str(ledger)]) == 2
    told = capsys.readouterr()
    assert told.err == f"seeds 7 to 106 are not written down: {why}\n"
    assert told.out.splitlines()[-1].startswith("1 seeds, ")
    assert [(one.first, one.count) for one in tally.read(ledger)] == [(107, 1)]
