"""A fixed set of seeds must pass, every seed that once failed must pass, and a seed is the same run everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import attrs
import pytest

from replog.testing.simulator import run as running
from replog.testing.simulator.__main__ import main
from replog.testing.simulator.plan import KINDS, Fault, draw
from replog.testing.simulator.run import Outcome, run

pytestmark = pytest.mark.simulation

SEEDS = range(1, 91)
FEW = range(1, 21)


def corpus() -> list[int]:
    """Seeds that once violated something; the rest of each line says what."""
    lines = (Path(__file__).parent / "corpus.txt").read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


@cache
def outcome(seed: int) -> Outcome:
    """One run of a seed: several tests look at it."""
    return run(seed)


@pytest.mark.parametrize("seed", sorted({*SEEDS, *corpus()}))
def test_seed_violates_nothing(seed: int) -> None:
    found = outcome(seed)
    assert found.violation is None, "\n".join([str(found.violation), str(found.plan), *found.tail])
    assert found.acknowledged > 0


def test_every_kind_of_fault_happens_and_clients_get_on() -> None:
    outcomes = [outcome(seed) for seed in FEW]
    happened = {kind: sum(one.befallen.get(kind, 0) for one in outcomes) for kind in KINDS}
    assert all(happened.values()), happened
    assert sum(one.acknowledged for one in outcomes) > 2_000


def test_the_same_seed_is_the_same_run_in_every_process() -> None:
    told = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "replog.testing.simulator", "7", "--runs", "3"]
        told.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert told[0] == told[1]
    assert told[0].count("trace") == 3


def test_another_seed_is_another_run() -> None:
    assert len({outcome(seed).trace_hash for seed in FEW}) == len(FEW)


def test_a_plan_can_be_run_without_some_of_its_faults() -> None:
    plan = attrs.evolve(draw(3), faults=(Fault(1_000, "kill", "leader", 500),))
    found = run(3, plan=plan)
    assert found.violation is None
    assert found.befallen == {"kill": 1}


def test_no_faults_leave_no_trace_in_the_store() -> None:
    """Nothing but the first state of each partition: what happens to an ISR has a cause in the plan."""
    shape = attrs.evolve(draw(1).shape, drop=0.0, slow=0.0, repeat=0.0, delay_ms=3, unsure=0.0, lag_ms=2_000, partitions=2)
    found = run(1, plan=attrs.evolve(draw(1), shape=shape, faults=()), tail=1_000_000)
    assert found.violation is None
    assert sum(" state " in line for line in found.tail) == shape.partitions


def test_the_time_of_faults_can_be_cut_short() -> None:
    whole, short = outcome(5), run(5, events_max=outcome(5).events // 2)
    assert short.violation is None
    assert short.events < whole.events


def test_command_line_explains_a_violation(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(running, "boot", lambda world: world.note("a line") or it_fails())
    assert main(["4"]) == 1
    told = capsys.readouterr().out
    assert str(draw(4)) in told
    assert "a line" in told
    assert "violated S0: on purpose" in told
    assert "replay: python -m replog.testing.simulator 4" in told
    assert told.splitlines()[-1].endswith("violated S0")


def it_fails() -> None:
    """What the patched boot does."""
    raise running.Violation("S0", "on purpose")


def test_command_line_sums_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["7", "--runs", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["seed 7", "seed 8"]
    assert lines[-1] == "2 runs, 0 violated an invariant"
