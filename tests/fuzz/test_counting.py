"""What is counted, of which code: a count lasts as long as the code that its target executes."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from struct import Struct
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fuzz import __main__, counting, guided, target
from tests.fuzz.__main__ import rest, rounds
from tests.fuzz.counting import GUIDED, MUTANTS, Count
from tests.fuzz.mutating import Mutator
from tests.fuzz.session import session
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from tests.fuzz.tracing import executed

import replog

MUTANTS_TRACED = {"directory": 60, "repair": 60, "database": 100}
EACH = 1_500
SOURCES = Path(replog.__file__).parent
ARGUMENTS = {
    "client.arguments.parse_acks": "arguments of a programmer",
    "client.arguments.parse_place": "arguments of a programmer",
    "client.arguments.parse_position": "arguments of a programmer",
    "runtime.connected.parse_bootstrap": "arguments of a programmer; each address goes through parse_endpoint",
}
"""What reads no bytes from elsewhere, and why not."""


def traced(name: str) -> frozenset[tuple[str, str]]:
    """What a target executes."""
    return executed(name, MUTANTS_TRACED.get(name, EACH))


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_executes_the_modules_that_it_names(name: str) -> None:
    assert {module for module, _ in traced(name)} == set(TARGETS[name].code)


def readers() -> list[str]:
    """Functions of replog that are named for reading what was written elsewhere."""
    found = []
    for file in SOURCES.rglob("*.py"):
        module = file.relative_to(SOURCES).with_suffix("").as_posix().replace("/", ".")
        if not module.startswith("testing."):
            found += [f"{module}.{name}" for name in re.findall(r"^def ((?:decode|parse)\w*)\(", file.read_text(encoding="utf-8"), re.M)]
    return found


@pytest.mark.parametrize("reader", sorted(readers()))
def test_every_decoder_is_executed_by_a_target(reader: str) -> None:
    module, _, function = reader.rpartition(".")
    reached = any((module, function) in traced(name) for name in TARGETS if module in TARGETS[name].code)
    assert reached != (reader in ARGUMENTS)


def test_what_is_exempt_is_there() -> None:
    assert set(ARGUMENTS) < set(readers())


# ------------------------------------------------------------------------------------------------------- the version of the code


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of two modules, whose versions are those of the copy."""
    for module in ("records", "payload"):
        (tmp_path / f"{module}.py").write_bytes((SOURCES / f"{module}.py").read_bytes())
    monkeypatch.setattr(target, "_ROOT", tmp_path)
    target.version.cache_clear()
    yield tmp_path
    target.version.cache_clear()


def test_the_version_is_of_what_the_modules_do(sources: Path) -> None:
    before, other = target.version(("records",)), target.version(("payload",))
    records = sources / "records.py"
    said = records.read_text()
    records.write_text(said.replace('"""', '"""Another word. ', 1) + "\n# a comment\n")
    target.version.cache_clear()
    assert target.version(("records",)) == before
    records.write_text(said.replace("MAGIC: Final = 0x4C52", "MAGIC: Final = 0x4C53"))
    target.version.cache_clear()
    assert target.version(("records",)) != before
    assert target.version(("payload",)) == other


def test_the_version_is_of_the_limits_that_come_from_elsewhere(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = target.version(("records",))
    monkeypatch.setattr("replog.config.BATCH_RECORDS_MAX", 5)
    target.version.cache_clear()
    assert target.version(("records",)) != before


def test_a_constant_is_spelled_by_its_value() -> None:
    value = (1, frozenset({"b", "a"}), {"k": (None, b"x")}, Struct("<I"))
    assert target.spelled(value) == "(1, {'a', 'b'}, {'k': (None, b'x',)}, '<I',)"
    with pytest.raises(TypeError, match="not spelled"):
        target.spelled(object())


# ---------------------------------------------------------------------------------------------------------------------- the ledger


def a_count(**changed: Any) -> Count:
    """Of the first target, as it is."""
    told = {"code": target.version(TARGETS["frame"].code), "target": "frame", "seed": 1, "executions": 50, "cpu_ms": 5}
    return Count(**{**told, "memory_bytes": 0, "corpus": "c", **changed})


def test_the_same_seed_makes_the_same_mutants() -> None:
    def changed(seed: bytes, chance: Random) -> bytes:
        return seed + bytes((chance.randrange(256),))

    first, again, other = (Mutator([b"seed" * 10, b"x"], seed, structured=changed) for seed in (1, 1, 2))
    mutants = [first.next() for _ in range(100)]
    assert mutants == [again.next() for _ in range(100)]
    assert mutants != [other.next() for _ in range(100)]
    assert len(set(mutants)) > 90


def test_a_count_is_a_line_and_lines_are_summed_by_code_and_engine(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    counting.append(counting.count("frame", 50, seed=counting.next_seed(ledger)), ledger)
    counting.append(counting.count("frame", 70, seed=counting.next_seed(ledger)), ledger)
    counting.append(a_count(code="older", executions=9, cpu_ms=5), ledger)
    counting.append(a_count(engine=GUIDED, executions=1_000, cpu_ms=60_000, wall_ms=90_000, seed=3), ledger)
    counting.append(a_count(engine=GUIDED, executions=500, cpu_ms=30_000, code="older"), ledger)
    counting.append(a_count(target="gone", executions=3), ledger)
    found = counting.tally(ledger)
    assert found["frame"] == counting.Sums(120, found["frame"].cpu_ms, 1_000, 60_000, 509, 30_000)
    assert found["frame"].total == 1_629
    assert found["segment"] == counting.Sums()
    assert found["gone"] == counting.Sums(of_other_code=3)
    assert counting.next_seed(ledger) == 4


def test_lines_of_before_are_of_other_code(tmp_path: Path) -> None:
    """They name a version of all protocol code, and no engine."""
    ledger = tmp_path / "ledger.jsonl"
    plain = {"code": "5142a6901abe", "target": "frame", "seed": 1, "executions": 9, "cpu_ms": 4, "memory_bytes": 0, "corpus": "6ab2"}
    ledger.write_text(json.dumps(plain) + "\n")
    assert counting.tally(ledger)["frame"] == counting.Sums(of_other_code=9)


def test_the_ledger_can_be_read() -> None:
    lines = counting.LEDGER.read_text(encoding="utf-8").splitlines()
    assert sum(one.total for one in counting.tally().values()) == sum(json.loads(line)["executions"] for line in lines) > 0
    assert {Count(**json.loads(line)).engine for line in lines} <= {MUTANTS, GUIDED}


def test_the_rest_is_what_is_wanted_without_what_was_counted(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    wanted = int(TARGETS["frame"].million * 1_000_000)
    assert sum(rest(ledger).values()) >= 100_000_000
    counting.append(a_count(executions=wanted - 7), ledger)
    counting.append(a_count(executions=wanted, code="older"), ledger)
    assert rest(ledger)["frame"] == 7
    counting.append(a_count(executions=7), ledger)
    assert "frame" not in rest(ledger)


def test_lines_of_a_slow_target_have_fewer_mutants(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    assert next(rounds({"frame": 45_000}, ledger)) == ("frame", 5_000), "nothing is known of it"
    counting.append(a_count(executions=90_000, cpu_ms=10_000, code="older"), ledger)
    counting.append(a_count(executions=90_000, cpu_ms=10_000, target="index"), ledger)
    counting.append(a_count(executions=90_000, cpu_ms=10_000, engine=GUIDED), ledger)
    assert next(rounds({"frame": 450_000}, ledger)) == ("frame", 180_000), "other code tells how fast it may be"
    counting.append(a_count(executions=10_000, cpu_ms=10_000), ledger)
    assert list(rounds({"frame": 45_000}, ledger)) == [("frame", 20_000), ("frame", 20_000), ("frame", 5_000)]


# ---------------------------------------------------------------------------------------------------------------- guided runs


class Engine:
    """What atheris has, in small: it gives what it is told to whom it was told."""

    def __init__(self, given: list[bytes]) -> None:
        self.given, self.words, self.watched = given, [""], [""]

    def instrument_imports(self, include: list[str]) -> Engine:
        self.watched = include
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def Setup(self, words: list[str], once: Any) -> None:
        self.words, self._once = words, once

    def Fuzz(self) -> None:
        for one in self.given:
            self._once(one)


def test_a_session_gives_what_the_engine_makes_to_its_target(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    taken: list[bytes] = []
    monkeypatch.setitem(TARGETS, "one", Target(taken.append, lambda: [b"x"], (), seal=lambda data: data.extend(b"!")))
    engine = Engine([b"a", b"0", b""])
    session("one", ["-seed=7"], engine)
    assert guided.read_stats(capsys.readouterr().err).keys() == {"begun_cpu_ms"}
    assert (taken, engine.watched, engine.words[1:]) == ([b"a!", b"0", b""], ["replog"], ["-seed=7"])


def test_a_session_finds_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "HANG_S", 0.0)
    monkeypatch.setitem(TARGETS, "one", Target(lambda data: sum(range(1_000)), lambda: [b"x"], ()))
    with pytest.raises(counting.Finding, match="processor time"):
        session("one", [], Engine([b"a"]))


def test_a_mistake_ends_a_count_and_what_was_under_way_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    said: list[str] = []
    under_way, told = threading.Event(), threading.Event()

    def count(name: str, executions: int, *, seed: int) -> Any:
        if executions == 1:
            assert under_way.wait(10)
            raise ValueError("a mistake of ours")
        under_way.set()
        assert told.wait(10)
        return SimpleNamespace(target=name, executions=executions, per_second=1.0, memory_bytes=0)

    def tell(text: object, *, flush: bool) -> None:
        said.append(str(text))
        told.set()

    monkeypatch.setattr(__main__, "ProcessPoolExecutor", lambda jobs, **_: ThreadPoolExecutor(jobs))
    monkeypatch.setattr(__main__, "rounds", lambda wanted: [("frame", number) for number in range(1, 100)])
    monkeypatch.setattr(__main__, "print", tell, raising=False)
    monkeypatch.setattr(counting, "count", count)
    monkeypatch.setattr(counting, "append", lambda one: kept.append(one.executions))
    with pytest.raises(ValueError, match="of ours"):
        __main__._count({}, 2)
    assert said[0] == "frame: ValueError('a mistake of ours'); this ends with the rounds under way"
    assert 2 in kept
    assert len(kept) < 5  # a worker may have begun another one before that was heard of


STATS = "stat::begun_cpu_ms: 20000\nstat::number_of_executed_units: 1234\nstat::average_exec_per_sec: 600\nstat::peak_rss_mb: 55\n"


@pytest.mark.parametrize(("said", "status", "counted"), [(STATS, 0, True), (STATS, 77, False), ("no engine", 0, False)])
def test_a_guided_run_is_a_line_unless_it_finds_something(
    said: str, status: int, counted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, asked = tmp_path / "ledger.jsonl", []

    def engine(words: list[str]) -> tuple[int, str, int]:
        asked.append(words)
        return status, said, 60_000

    monkeypatch.setattr(guided, "executed", engine)
    assert guided.run(["index", "store"], 2.0, tmp_path / "cache", jobs=2, ledger=ledger) == (0 if counted else 1)
    found = [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []
    assert [(one["target"], one["seed"], one["executions"], one["engine"]) for one in found] == (
        [("index", 1, 1_234, GUIDED), ("store", 2, 1_234, GUIDED)] if counted else []
    )
    assert all(words[:4] == [sys.executable, "-m", "tests.fuzz.session", words[3]] and "-max_total_time=120" in words for words in asked)
    assert all({"-timeout=60", "-report_slow_units=60"} <= {*words} for words in asked), "what waits for a processor is no finding"
    assert ("FOUND" in capsys.readouterr().out) != counted
    assert len(list((tmp_path / "cache" / "store").iterdir())) == len(TARGETS["store"].seeds())
    if counted:
        assert (counting.tally(ledger)["index"].guided, counting.tally(ledger)["index"].guided_ms) == (1_234, 40_000), "without the start"


def test_the_processor_time_of_a_guided_run_is_that_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "import sys, time\nprint(sum(range(100_000)), int(time.process_time() * 1_000), file=sys.stderr)\nsys.exit(3)"
    status, said, cpu_ms = guided.executed([sys.executable, "-c", told])
    assert (status, said.split()[0]) == (3, "4999950000")
    assert cpu_ms >= int(said.split()[1])
    wait4 = os.wait4
    monkeypatch.setattr(os, "wait4", lambda *given: (*wait4(*given)[:2], SimpleNamespace(ru_utime=1.5, ru_stime=0.25)))
    assert guided.executed([sys.executable, "-c", "pass"]) == (0, "", 1_750)


def test_what_the_engine_says_is_read() -> None:
    assert guided.read_stats(STATS) == {"executions": 1_234, "peak_mib": 55, "begun_cpu_ms": 20_000}
    assert guided.read_stats("") == {}
