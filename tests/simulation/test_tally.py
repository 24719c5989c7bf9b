"""The ledger of counts: its lines, what counts of them, and what is wanted."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from replog.ports import LossKind
from replog.testing.simulator import tally
from replog.testing.simulator.__main__ import main
from replog.testing.simulator.kinds import KINDS
from replog.testing.simulator.marks import EXPECTED
from replog.testing.simulator.tally import Batch

pytestmark = pytest.mark.simulation

CODE, OTHER = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


def counts(first: int, count: int, code: str = CODE, simulator: str = "s1", **given: Any) -> Batch:
    return Batch(code, simulator, first, count, events=1_000 * count, faults=30 * count, virtual_ms=60_000 * count, **given)


def test_a_line_is_written_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    assert tally.read(file) == []
    batches = [counts(1, 100, violated={"7": "S1"}, marks={"rare": 2}), counts(101, 50)]
    for one in batches:
        tally.append(file, one)
    tally.append(file, counts(151, 0))
    assert tally.read(file) == batches
    assert file.read_text(encoding="utf-8").count("\n") == 2
    assert tally.next_seed(batches) == 151
    assert tally.next_seed([]) == 1


def test_a_line_that_was_not_written_to_its_end_goes(tmp_path: Path) -> None:
    """At every length: what is whole stays, and the next one is whole too."""
    file = tmp_path / "ledger.jsonl"
    first, second, third = (Batch("code", "sim", seed, count=5, marks={"größer": 1}) for seed in (0, 5, 10))
    tally.append(file, first)
    start = file.stat().st_size
    tally.append(file, second)
    written = file.read_bytes()
    for length in range(start, len(written) + 1):
        file.write_bytes(written[:length])
        expected = [first, second] if length >= len(written) - 1 else [first]
        assert tally.read(file) == expected, length
        tally.append(file, third)
        assert tally.read(file) == [*expected, third], length


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    good = '{"code":"a","simulator":"b","first":1}'
    for bad in ("{", '{"code": "a"}', '{"surprise": 1}', "[]", "7", "[" * 100_000, good.replace("1", '"1"'), good.replace("1", "true")):
        file.write_text(f"{good}\n{bad}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"ledger\.jsonl, line 2"):
            tally.read(file)


@pytest.mark.parametrize(
    "field", ['"count":"5"', '"faults":-1', '"marks":{"a":1.5}', '"violated":{"7":1}', '"violated":[]', '"direction":null']
)
def test_a_value_of_a_wrong_type_is_named(field: str, tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text(f'{{"code":"a","simulator":"b","first":1,{field}}}\n', encoding="utf-8")
    name = "a" if "marks" in field else "7" if '"7"' in field else field.split('"')[1]
    with pytest.raises(ValueError, match=rf"ledger\.jsonl, line 1: {name} is "):
        tally.read(file)


def test_a_file_that_is_no_text_is_no_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_bytes(b"\xff\xfe")
    assert main(["tally", "--ledger", str(file)]) == 2
    assert f"{file} is no ledger" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["tally"], ["tally", "--fold"]])
def test_a_ledger_that_is_not_there_is_not_made(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--ledger", str(tmp_path / "ledger.jsonl")]) == 2
    assert "there is no ledger" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_seed_counts_once_for_one_code_and_simulator() -> None:
    lines = [counts(1, 100), counts(1, 100), counts(51, 100), counts(101, 100)]
    lines += [counts(1, 100, OTHER), counts(1, 100, simulator="s2"), counts(1, 100, direction="power-all")]
    kept = [counts(1, 100), counts(101, 100), counts(1, 100, direction="power-all"), counts(1, 100, simulator="s2"), counts(1, 100, OTHER)]
    assert tally.counted(lines) == kept


def test_what_a_batch_violated_counts_even_if_the_batch_does_not() -> None:
    """The second one ran seeds that the first had not."""
    lines = [counts(1, 100), counts(51, 100, violated={"140": "S1"}), counts(51, 90, violated={"60": "S2"})]
    assert tally.counted(lines) == [counts(1, 100, violated={"140": "S1", "60": "S2"})]
    told = tally.totals(lines, CODE)
    assert {"violated: seed 60: S2", "violated: seed 140: S1"} <= set(told)
    assert any(line.split()[1:3] == ["violations", "2"] for line in told)


def test_lines_about_consecutive_seeds_are_joined(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    first = counts(1, 100, violated={"7": "S1"}, marks={"a": 1, "b": 2})
    other = counts(201, 5, direction="power-all")
    for one in (counts(101, 100, marks={"b": 1}), first, other, counts(307, 5, OTHER), counts(302, 5)):
        tally.append(file, one)
    assert tally.fold(file) == 4
    joined = counts(1, 200, violated={"7": "S1"}, marks={"a": 1, "b": 3})
    assert tally.read(file) == [joined, counts(302, 5), other, counts(307, 5, OTHER)]
    assert [one.name for one in tmp_path.iterdir()] == ["ledger.jsonl"]


def test_only_lines_that_count_are_joined(tmp_path: Path) -> None:
    """Joined to seeds that follow, the second would take these with it."""
    file = tmp_path / "ledger.jsonl"
    for one in (counts(1, 100), counts(51, 50, violated={"60": "S2"}), counts(101, 100), counts(201, 300)):
        tally.append(file, one)
    assert tally.fold(file) == 1
    assert tally.read(file) == [counts(1, 500, violated={"60": "S2"})]


@pytest.mark.parametrize("seed", range(20))
def test_a_fold_changes_no_total(seed: int, tmp_path: Path) -> None:
    file, chance = tmp_path / "ledger.jsonl", random.Random(seed)
    for _ in range(chance.randint(1, 60)):
        first, count = 25 * chance.randint(0, 40), 25 * chance.randint(1, 8)
        violated = {str(chance.randrange(first, first + count)): "S1"} if chance.random() < 0.2 else {}
        series = {"simulator": chance.choice(("s1", "s2")), "direction": chance.choice(("", "long", "power-all"))}
        tally.append(file, counts(first, count, chance.choice((CODE, OTHER)), violated=violated, marks={"a": count}, **series))

    def totals() -> list[list[str]]:
        """But for how many lines are not counted."""
        lines = tally.read(file)
        return [[line for line in tally.totals(lines, code) if "are not counted" not in line] for code in (CODE, OTHER)]

    before = totals()
    remain = tally.fold(file)
    assert totals() == before
    assert tally.counted(tally.read(file)) == tally.read(file)
    assert tally.fold(file) == remain


def test_totals_are_of_the_present_code_and_say_what_belongs_to_which() -> None:
    marks = {"often": 100, "rarely": 99}
    lines = [counts(1, 29_840, cpu_ms=1_000_000, marks=marks), counts(1, 40, direction="power-all"), counts(1, 120, direction="long")]
    lines += [counts(1, 10, OTHER, violated={"3": "S4"}), counts(5, 10, OTHER)]
    told = [" ".join(line.split()) for line in tally.totals(lines, CODE)]
    for line in (
        "R01 schedules 30,000 >= 30,000 reached",
        "R01 faults 900,000 >= 1,000,000 not yet",
        "R01 virtual hours 500 >= 500 reached",
        "R01 violations 0 <= 0 reached",
        "R02 events per CPU second 30,000 >= 30,000 reached",
        "R02 x real time 1,800 >= 100 reached",
        "R15 schedules power-all 40 >= 5,000 not yet",
        "R15 schedules power-some 0 >= 5,000 not yet",
        "R27 hours of long runs 2 >= 1,000 not yet",
        "R09 marks with 100 hits 1 >= 40 not yet",
        f"R09 marks with fewer hits {len(EXPECTED) + 1} <= 0 not yet",
        "100 often",
        "99 rarely rare",
        "0 the ISR grows rare",
        f"{CODE} s1: 30,000 schedules, 900,000 faults, 500.0 virtual hours, 0 violations",
        f"{OTHER} s1: 10 schedules, 300 faults, 0.2 virtual hours, 1 violations (other code)",
        "1 batches are not counted: their seeds were run before with the same code and simulator",
    ):
        assert line in told
    assert "violated: seed 3: S4" not in told
    assert "violated: seed 3: S4" in tally.totals(lines, OTHER)
    assert any(line.split()[1:4] == ["violations", "1", "<="] and line.endswith("not yet") for line in tally.totals(lines, OTHER))


def test_a_wrong_check_that_a_person_has_named_is_told_and_not_counted() -> None:
    lines = [
        counts(1, 100, violated={"7": "L2", "9": "L8"}),
        counts(1, 10, violated={"7": "L2"}, direction="power-all"),
        counts(1, 10, simulator="s2", violated={"7": "L2"}),
        counts(101, 100, simulator="s2", violated={"103": "S1"}),
    ]

    def told(*wrong_checks: tuple[int, str, str, str]) -> list[str]:
        summary = tally.totals(lines, CODE, wrong_checks=wrong_checks)
        return [line for line in summary if "seed " in line or line.startswith("R01  violations")]

    every = ["violated: seed 7: L2", "violated: seed 7 of power-all: L2", "violated: seed 9: L8", "violated: seed 103: S1"]
    wrong = "a wrong check of simulator s1: seed 7: L2"
    assert told()[1:] == every
    assert told()[0].split()[2] == "4"
    assert told((7, "", "L2", "s1"))[1:] == [*every, wrong], "another simulator has found it as well"
    both = told((7, "", "L2", "s1"), (7, "", "L2", "s2"))
    assert both[1:] == [*every[1:], wrong, wrong.replace("s1", "s2")]
    assert both[0].split()[2] == "3"
    for other in ((7, "", "L8", "s1"), (7, "power-some", "L2", "s1"), (8, "", "L2", "s1"), (9, "", "L8", "s2")):
        assert told(other)[1:] == every
    assert "violated: seed 7 of power-all: L2" not in told((7, "power-all", "L2", "s1"))


def test_a_seed_that_violates_two_things_hides_neither(tmp_path: Path) -> None:
    """It does not give the same run twice, and that is worse than either."""
    lines = [counts(1, 100, violated={"7": "L2"}), counts(1, 50, violated={"7": "S3"}), counts(101, 50, violated={"103": "S1"})]
    file = tmp_path / "ledger.jsonl"
    for line in (*lines, lines[1]):
        tally.append(file, line)
    assert tally.fold(file) == 1
    assert tally.read(file)[0].violated == {"7": "L2 and S3", "103": "S1"}
    for batches in (lines, tally.read(file)):
        assert "violated: seed 7: L2 and S3" in tally.totals(batches, CODE, wrong_checks={(7, "", "L2", "s1")})


def test_the_marks_that_are_expected_are_those_of_the_source() -> None:
    """Else one that is never hit would be missed by nobody."""
    folder = Path(tally.__file__).parent
    assert set(marks_of(folder)) == set(EXPECTED)
    assert list(EXPECTED) == sorted(set(EXPECTED))


def marks_of(folder: Path) -> Iterator[str]:
    """Each text that some source in a folder hits as a mark; and what the f-strings can give that have few values."""
    yield from (f"a broker starts with loss {kind}" for kind in get_args(LossKind))
    yield from (f"fault {kind}" for kind in KINDS)
    yield from (f"a reassignment is {what} while faults happen" for what in ("asked for", "cancelled"))
    yield from (f"{verb} is granted while faults happen" for verb in ("create_topic", "add_partitions", "remove_partitions", "alter_topic"))
    for who in ("a preferred leader", "a leader that was named"):
        yield from (f"{who} is not elected", f"{who} is elected while faults happen")
    for file in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "hit":
                yield from (one.value for one in branches(node.args[0]) if isinstance(one, ast.Constant))


def branches(node: ast.expr) -> list[Any]:
    return [*branches(node.body), *branches(node.orelse)] if isinstance(node, ast.IfExp) else [node]


def test_the_tally_is_printed_and_the_ledger_folded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ledger.jsonl"
    for first in (1, 101):
        tally.append(file, counts(first, 100, tally.code_version()))
    assert main(["tally", "--ledger", str(file), "--fold"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == ["1 lines remain", f"protocol code {tally.code_version()}"]
    assert any("schedules" in line and " 200 " in line for line in told)


