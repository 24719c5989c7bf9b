"""The command line of the simulator, the soak that counts runs in the ledger, and the comparison of double runs."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import pytest

from replog.testing.eventually import eventually
from replog.testing.simulator import soak as soaking
from replog.testing.simulator import tally, versions
from replog.testing.simulator.__main__ import main
from replog.testing.simulator.corpus import Failure, load, replay_command, to_json
from replog.testing.simulator.directions import draw_directed
from replog.testing.simulator.double import compare, describe, double
from replog.testing.simulator.fingerprint import state_hash
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.liveness import boot
from replog.testing.simulator.plan import Fault, Plan, Shape, draw
from replog.testing.simulator.running import Outcome
from replog.testing.simulator.soak import Result, batch, explain, soak
from replog.testing.simulator.tally import Batch
from replog.testing.simulator.world import World

pytestmark = pytest.mark.simulation

SHORT = Plan(5, Shape(), (Fault(300, "kill", "leader", 400),), 1_000)
"""A run that takes no time."""


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run with two faults or more violates S0."""

    def boot(world: Any) -> None:
        world.note("a line")
        if len(world.plan.faults) >= 2:
            raise Violation("S0", "on purpose")

    monkeypatch.setattr(import_module("replog.testing.simulator.running"), "boot", boot)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every seed is a short run."""

    def plan_of(seed: int, direction: str = "") -> Plan:
        return attrs.evolve(SHORT, seed=seed)

    monkeypatch.setattr(soaking, "draw_directed", plan_of)
    monkeypatch.setattr(import_module("replog.testing.simulator.__main__"), "draw", plan_of)


# ------------------------------------------------------------------------------------------------------------- one run


def test_a_violation_is_explained_and_its_command_works(fails: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = draw(4)
    assert main(["4", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().out.splitlines()
    file = tmp_path / "failure-4.json"
    assert len(load(file).plan.faults) == 2
    assert load(file).invariant == "S0"
    assert "violated S0: on purpose" in told
    assert any(line.endswith(" a line") for line in told)
    assert f"protocol code {tally.code_version()}, simulator {tally.simulator_version()}" in told
    assert any(line.startswith(f"minimised from {len(whole.faults)} to 2 faults in ") for line in told)
    assert set(str(load(file).plan).splitlines()) <= set(told)
    assert told[-1].endswith("violated S0")
    (replay,) = [line.removeprefix("replay: ") for line in told if line.startswith("replay: ")]
    assert replay == f"python -m replog.testing.simulator --plan {file}"
    assert main(replay.split()[3:]) == 1
    again = capsys.readouterr().out.splitlines()
    assert "violated S0: on purpose" in again
    assert replay == again[-2].removeprefix("replay: ")


def test_a_violation_can_be_left_as_it_is(fails: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["4", "--no-minimise", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert str(draw(4)) in told
    assert "replay: python -m replog.testing.simulator 4\n" in told
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_ends_early_says_how_to_end_it_there(fails: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["4", "--events", "900"]) == 1
    assert "replay: python -m replog.testing.simulator 4 --events 900\n" in capsys.readouterr().out


def test_an_exception_that_escapes_is_explained(
    short: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def boot(world: Any) -> None:
        raise KeyError("no such")

    monkeypatch.setattr(import_module("replog.testing.simulator.running"), "boot", boot)
    assert main(["4", "--out", str(tmp_path)]) == 1
    assert "violated raised-KeyError: 'no such'" in capsys.readouterr().out
    assert load(tmp_path / "failure-4.json").invariant == "raised-KeyError"


def test_runs_are_summed_up(short: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["7", "--runs", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["seed 7", "seed 8"]
    assert lines[2:] == ["2 runs, 0 violated an invariant"]


def test_verbose_prints_plan_and_trace(short: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["7", "-v"]) == 0
    told = capsys.readouterr().out
    assert str(attrs.evolve(SHORT, seed=7)) in told
    assert told.count("\n") > 200


def test_a_plan_comes_from_a_file_or_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(to_json(Failure(SHORT)), encoding="utf-8")
    assert main(["--plan", str(file)]) == 0
    summary = capsys.readouterr().out
    assert summary.startswith("seed 5: ")
    monkeypatch.setattr(sys, "stdin", io.StringIO(to_json(Failure(SHORT))))
    assert main(["--plan", "-"]) == 0
    assert capsys.readouterr().out == summary


def test_a_plan_is_kept_with_its_story(fails: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, corpus = tmp_path / "plan.json", tmp_path / "corpus"
    corpus.mkdir()
    bare = attrs.evolve(SHORT, faults=SHORT.faults * 2)
    file.write_text(json.dumps(json.loads(to_json(Failure(bare)))["plan"]), encoding="utf-8")
    assert main(["--plan", str(file), "--keep", "What was wrong.", "--corpus", str(corpus)]) == 0
    assert capsys.readouterr().out == f"kept: {corpus / 'S0-5.json'}\n"
    assert load(corpus / "S0-5.json") == Failure(bare, "S0", "What was wrong.")


def test_what_cannot_be_done_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plan", str(tmp_path / "absent.json")]) == 2
    assert "absent.json" in capsys.readouterr().err
    (tmp_path / "bad.json").write_text("{}", encoding="utf-8")
    assert main(["--plan", str(tmp_path / "bad.json")]) == 2
    assert capsys.readouterr().err == f"{tmp_path / 'bad.json'}: the failure lacks the field 'plan'\n"
    (tmp_path / "bad.json").write_text("[" * 100_000, encoding="utf-8")
    assert main(["--plan", str(tmp_path / "bad.json")]) == 2
    assert capsys.readouterr().err == f"{tmp_path / 'bad.json'}: values are nested too deeply\n"
    for words in ([], ["1", "--plan", "x"], ["1", "--keep", "x"]):
        with pytest.raises(SystemExit):
            main(words)


@pytest.mark.parametrize(
    "words",
    [
        ["1", "--runs", "0"],
        ["1", "--events", "-1"],
        ["double", "0"],
        ["soak", "--minutes", "-1"],
        ["soak", "--minutes", "nan"],
        ["soak", "--minutes", "1", "--jobs", "0"],
    ],
)
def test_a_number_that_means_nothing_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(words)
    assert refused.value.code == 2
    assert "invalid" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["soak", "--minutes", "0"], ["double", "3"]])
def test_a_seed_below_0_is_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No ledger can hold it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests" / "simulation").mkdir(parents=True)  # where the ledger is, if nobody says otherwise
    assert main([*words, "--from", "-5"]) == 2
    assert capsys.readouterr().err == "the first seed is -5, and must be 0 or more\n"
    assert not [one for one in tmp_path.rglob("*") if one.is_file()]


@pytest.mark.parametrize("minimise", [[], ["--no-minimise"]])
def test_an_exception_is_told_with_the_place_where_it_was_raised(
    minimise: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def oops(world: Any) -> None:
        raise KeyError("on purpose")

    monkeypatch.setattr(import_module("replog.testing.simulator.running"), "boot", oops)
    assert main(["5", "--out", str(tmp_path), *minimise]) == 1
    told = capsys.readouterr().out
    assert f'{__file__}", line ' in told
    assert "in oops" in told
    assert "KeyError: 'on purpose'" in told


def test_a_path_with_a_space_is_quoted(tmp_path: Path) -> None:
    file = tmp_path / "a b" / "failure-5.json"
    assert replay_command(file).endswith(f"--plan '{file}'")


# -------------------------------------------------------------------------------------------------------- the versions


def test_a_version_changes_with_the_meaning_alone() -> None:
    text = '"""About."""\n\n\ndef f(a: int) -> int:\n    """What."""\n    return a + 1  # why\n\n\nX = ""\n"""Of X."""\n'

    def version(source: str) -> str:
        return tally.version_of([("a.py", source)])

    described = text.replace("What", "That").replace("Of X", "X").replace("About", "On")
    for same in ("# a comment\n" + text, described, text.replace("a + 1", "(a +\n        1)")):
        assert version(same) == version(text)
    for old, new in (("1", "2"), ("f(a", "g(a"), ('X = ""', 'X = "y"'), ("+", "-"), ("X =", "f(0)\nX =")):
        assert version(text.replace(old, new)) != version(text)
    assert tally.version_of([("b.py", text)]) != version(text)
    assert version("x = None") != version("x = 0") != version("x = False")


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [('"kill"', '"kil"', "no fault of kind 'kil'; is 'kill' meant"), ('"append"', '"apend"', "no workload 'apend'; is 'append' meant")],
)
def test_a_plan_with_a_misspelt_word_is_no_violation(
    before: str, after: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(to_json(Failure(SHORT)).replace(before, after))
    assert main(["--plan", str(file)]) == 2
    told = capsys.readouterr()
    assert says in told.err
    assert told.out == ""


def test_the_protocol_code_is_what_a_run_imports() -> None:
    """In a process of its own that has run something over files, over memory, and with the codec."""
    script = (
        "import sys; from replog.testing.simulator.running import run; from replog.testing.simulator.plan import draw;"
        "[run(1, plan=draw(1, files=files, codec=True, self_checks=True, min_isr=2), events_max=300) for files in (False, True)];"
        "print(*sorted(name for name in sys.modules if name.startswith('replog.') and not (name + '.').startswith('replog.testing.')))"
    )
    told = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    assert tuple(told.stdout.split()) == versions.protocol_modules()


def test_the_versions_are_of_the_sources_that_decide() -> None:
    modules = set(versions.protocol_modules())
    decide = {"errors", "codec", "broker.broker", "partition.isr", "log.segment", "log.memory", "client.core", "metadata.memory"}
    decide |= {"client.client", "client.producer", "client.consumer", "client.delivery", "client.columns", "client.partitioner"}
    assert {f"replog.{name}" for name in decide} <= modules
    spare = {"metadata.file", "metadata.lease", "transport.memory", "runtime.embedded"}
    assert not {f"replog.{name}" for name in spare} & modules
    taken = {"/".join(file.parts[-3:]) for file in versions.simulator_files()}
    assert {"testing/simulator/plan.py", "testing/disk/faults.py", "replog/testing/clock.py"} <= taken
    assert "testing/simulator/soak.py" not in taken
    assert tally.code_version() != tally.simulator_version()


# ------------------------------------------------------------------------------------------------------------ the soak


def test_a_batch_counts_its_runs(short: None, tmp_path: Path) -> None:
    result = batch(3, 4, tmp_path)
    outcomes = [soaking.violation_of(attrs.evolve(SHORT, seed=seed)) for seed in range(3, 7)]
    runs = [one for one in outcomes if isinstance(one, Outcome)]
    assert len(runs) == 4
    found = result.batch
    assert (found.code, found.simulator, found.first, found.count) == (tally.code_version(), tally.simulator_version(), 3, 4)
    assert found.events == sum(one.events for one in runs)
    assert found.virtual_ms == sum(one.time_ms for one in runs)
    assert found.faults == sum(sum(one.befallen.values()) for one in runs) > 0
    assert sum(found.marks.values()) == sum(sum(one.marks.values()) for one in runs)
    assert found.cpu_ms > 0
    assert (found.violated, result.report) == ({}, ())


def test_a_batch_of_a_series_says_so(tmp_path: Path) -> None:
    found = batch(4, 1, tmp_path, direction="power-all").batch
    assert (found.direction, found.count, found.violated) == ("power-all", 1, {})
    assert found.events == getattr(soaking.violation_of(draw_directed(4, "power-all")), "events", None)


def test_a_batch_stops_between_two_runs(short: None, tmp_path: Path) -> None:
    stops = iter([False, False, True])
    assert batch(3, 4, tmp_path, lambda: next(stops)).batch.count == 2


def test_a_batch_ends_at_its_first_violation(fails: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def plan_of(seed: int, direction: str) -> Plan:
        return attrs.evolve(SHORT, seed=seed, faults=SHORT.faults * (3 if seed == 5 else 1))

    monkeypatch.setattr(soaking, "draw_directed", plan_of)
    monkeypatch.setattr(import_module("replog.testing.simulator.running"), "recover_in_turns", lambda world: None)
    monkeypatch.setattr(import_module("replog.testing.simulator.running"), "finish", lambda world: None)
    result = batch(3, 100, tmp_path)
    assert (result.batch.count, result.batch.violated) == (3, {"5": "S0"})
    assert result.report[0] == "seed 5 violated S0: on purpose"
    assert result.report[-1] == f"replay: python -m replog.testing.simulator --plan {tmp_path / 'failure-5.json'}"


def test_a_plan_is_kept_before_it_is_made_small(tmp_path: Path) -> None:
    def interrupted(plan: Plan) -> Violation | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explain(SHORT, Violation("S1", "why"), tmp_path, fails=interrupted)
    assert load(tmp_path / "failure-5.json") == Failure(SHORT, "S1")


def test_what_does_not_fail_again_is_said(tmp_path: Path) -> None:
    told = explain(SHORT, Violation("S1", "why"), tmp_path, fails=lambda plan: None)
    assert "it did not fail a second time: the run does not depend on its seed alone" in told
    assert load(tmp_path / "failure-5.json").plan == SHORT


def test_what_other_workloads_found_has_no_command(tmp_path: Path) -> None:
    """It would run those that the plan names."""
    told = explain(SHORT, Violation("S1", "why"), tmp_path, fails=lambda plan: Violation("S1", "why"), runs_max=3)
    assert told[-1] == f"kept: {tmp_path / 'failure-5.json'}"
    assert not [line for line in told if "replay" in line]


class Pool:
    """Does each task at once, when it is asked for; a person interrupts while the fourth is handed to one of `all_pools`."""

    def __init__(self, all_pools: list[Pool], **given: Any) -> None:
        self.asked = 0
        self.all_pools = all_pools
        given["initializer"](*given["initargs"])

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def submit(self, call: Callable[..., Result], *args: Any) -> Any:
        self.asked += 1
        if sum(one.asked for one in self.all_pools) == 4:
            raise KeyboardInterrupt
        done: Any = import_module("concurrent.futures").Future()
        done.set_result(call(*args))
        return done


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> list[Pool]:
    """A soak runs in this process, and no worker changes how it runs."""
    made: list[Pool] = []

    def make(*args: Any, **given: Any) -> Pool:
        made.append(Pool(made, **given))
        return made[-1]

    monkeypatch.setattr(soaking, "ProcessPoolExecutor", make)
    monkeypatch.setattr(soaking, "_begin", lambda stop: setattr(soaking, "_stop", stop))
    monkeypatch.setattr(soaking, "_stop", None)
    return made


def test_an_interrupt_leaves_the_ledger_whole(short: None, pool: list[Pool], tmp_path: Path) -> None:
    ledger, said = tmp_path / "ledger.jsonl", []
    tally.append(ledger, Batch("c", "s", 1, 40))
    assert soak(60, jobs=2, ledger=ledger, out=tmp_path, size=2, say=said.append) == 0
    lines = tally.read(ledger)
    assert [(one.first, one.count) for one in lines] == [(1, 40), (41, 2), (43, 2), (45, 2)]
    assert "interrupted: waiting for the runs under way" in said
    assert said[-1].startswith("6 seeds, 6 faults, ")


def test_a_worker_that_found_something_does_no_more(monkeypatch: pytest.MonkeyPatch, pool: list[Pool], tmp_path: Path) -> None:
    def found(first: int, count: int, out: Path, stopped: Callable[[], bool], *, direction: str) -> Result:
        return Result(Batch("c", "s", first, 1, violated={str(first): "S1"}), ("what", "replay: it"))

    monkeypatch.setattr(soaking, "batch", found)
    said: list[str] = []
    assert soak(60, jobs=2, first=9, ledger=tmp_path / "ledger.jsonl", out=tmp_path, size=3, say=said.append) == 2
    assert [one.asked for one in pool] == [1, 1]
    assert [one.first for one in tally.read(tmp_path / "ledger.jsonl")] == [9, 12]
    assert said.count("replay: it") == 2


def test_a_soak_needs_a_place_for_its_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", "--minutes", "1", "--ledger", str(tmp_path / "absent" / "ledger.jsonl")]) == 2
    assert "absent" in capsys.readouterr().err


@pytest.mark.processes
def test_a_soak_in_processes_counts_whole_batches(tmp_path: Path) -> None:
    """No time at all: each worker is told to stop at once, and what it has run is written down."""
    ledger = tmp_path / "ledger.jsonl"
    command = [sys.executable, "-m", "replog.testing.simulator", "soak", "--minutes", "0", "--ledger", str(ledger), "--out", str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.stderr == ""
    lines = tally.read(ledger)
    assert told.stdout.splitlines()[-1].startswith(f"{sum(one.count for one in lines)} seeds, ")


def children(pid: int) -> set[int]:
    """Processes that a process has started and that are there yet."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            _, _, fields = file.read_text().rpartition(")")
            if fields.split()[0] != "Z" and fields.split()[1] == str(pid):
                found.add(int(file.parent.name))
    return found


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.processes
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_soak_that_is_ended_leaves_no_process_behind(sent: signal.Signals, tmp_path: Path) -> None:
    """Nobody would write down what they run. All of its group get the signal, as from a terminal; it itself twice, as from `timeout`."""
    ledger = tmp_path / "ledger.jsonl"
    options = ["--minutes", "60", "--jobs", "1", "--from", "1", "--ledger", str(ledger), "--out", str(tmp_path)]
    command = [sys.executable, "-m", "replog.testing.simulator", "soak", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as soaking_one:
        eventually(lambda: any(os.getpgid(child) == child for child in children(soaking_one.pid)), 60)
        started = children(soaking_one.pid)
        if sent == signal.SIGTERM:
            soaking_one.send_signal(sent)
        os.killpg(soaking_one.pid, sent)
        eventually(lambda: not any(map(is_there, started)), 120)
        said, _ = soaking_one.communicate(timeout=60)
    if sent != signal.SIGKILL:
        counted = sum(one.count for one in tally.read(ledger))
        assert said.splitlines()[-1].startswith(f"{counted} seeds, ")
        assert soaking_one.returncode == 0
    else:
        assert not ledger.exists()


# ----------------------------------------------------------------------------------------------------------- two runs


@pytest.mark.processes
def test_double_runs_agree() -> None:
    assert double(1, 2) == []


def test_double_runs_that_differ_are_told() -> None:
    outcomes = [soaking.violation_of(attrs.evolve(SHORT, seed=seed)) for seed in (5, 6)]
    runs = [describe(one) for one in outcomes if isinstance(one, Outcome)]
    assert compare(runs, [dict(run) for run in runs], 5, 2) == []
    other = [dict(run) for run in runs]
    other[1]["trace"] = "0"
    assert compare(runs, other, 5, 2) == [f"seed 6: trace {runs[1]['trace']} and 0"]
    assert compare(runs, runs[:1], 5, 2) == ["a process told of 1 of 2 runs"]
    assert compare([], [], 5, 2) == ["a process told of 0 of 2 runs"] * 2


def test_the_double_command_sums_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[tuple[int, int]] = []

    def one(first: int, count: int) -> list[str]:
        asked.append((first, count))
        return ["seed 3: trace"] if first == 3 else []

    monkeypatch.setattr(import_module("replog.testing.simulator.__main__"), "double", one)
    assert main(["double", "70", "--from", "3"]) == 1
    assert asked == [(3, 50), (53, 20)]
    assert capsys.readouterr().out == "seed 3: trace\n70 seeds run twice, 1 differences\n"


def test_what_a_run_leaves_is_one_hash() -> None:
    worlds = [World(SHORT), World(SHORT)]
    empty = state_hash(worlds[0])
    for world in worlds:
        boot(world)
    first, second = (state_hash(world) for world in worlds)
    assert first == second != empty
    worlds[0].nodes[2].kill()
    assert state_hash(worlds[0]) != second
    for world in worlds:
        world.close()
