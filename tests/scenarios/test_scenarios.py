"""Every scenario file, replayed: what is seen now is what the file says. `--rewrite` accepts what is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from replog.errors import UsageError
from replog.testing.scenario.disks import FileDisks
from replog.testing.scenario.files import check_file, replay_scenario

HERE = Path(__file__).parent
UNIT = HERE.parent / "unit"
FILES = sorted(HERE.glob("*.txt"))
IN_FILES = (
    1, 2, 3, 4, 6, 8, 10, 11, 12, 15, 16, 20, 21, 22, 23, 24, 25, 27, 28, 29, 31, 32,
    33, 34, 35, 36, 37, 38, 40, 41, 43, 44, 45, 47, 48, 49, 54, 60, 61, 62, 64, 65, 66, 67,
    68, 69, 71, 72, 73, 80, 82, 83, 84, 85, 87, 88, 89, 91, 92, 93, 100, 101, 103, 104, 106, 107, 108, 111,
)
SECOND = ("P-22b", "P-23b", "P-80b")
"""Files of a second scenario under a number."""


IN_TESTS = {14: "log/test_recovery.py", 50: "log/test_directory.py", 51: "log/test_recovery.py", 53: "log/test_recovery.py"}
"""About files alone: tests of the log layer, where they are named by their number."""


def number(path: Path) -> str:
    """P-01-hw-lag-then-election.txt is P-01."""
    return "-".join(path.stem.split("-")[:2])


@pytest.mark.parametrize("path", FILES, ids=[number(path) for path in FILES])
def test_scenario(path: Path, rewrite: bool) -> None:
    difference = check_file(path, rewrite=rewrite)
    assert not difference, f"\n{difference}\n(pytest tests/scenarios --rewrite accepts what is seen now)"


ON_FILES = [path for path in FILES if "\n> disk " not in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", ON_FILES, ids=[number(path) for path in ON_FILES])
def test_scenario_on_files(path: Path) -> None:
    """The same play over log files on a simulated disk: nobody can tell the difference."""
    assert check_file(path, disks=FileDisks) == ""


def test_no_scenario_is_lost() -> None:
    assert {number(path) for path in FILES if path.name.startswith("P-")} == {*(f"P-{n:02}" for n in IN_FILES), *SECOND}


@pytest.mark.parametrize(("scenario", "path"), IN_TESTS.items())
def test_scenarios_about_files_are_told_where_files_are_tested(scenario: int, path: str) -> None:
    assert f"P-{scenario}" in (UNIT / path).read_text(encoding="utf-8")


def test_the_story_comes_first() -> None:
    assert [path.name for path in FILES if not path.read_text(encoding="utf-8").startswith(f"# {number(path).rstrip('b')}")] == []


def test_no_scenario_shows_a_broken_promise_that_its_story_does_not_tell() -> None:
    broken = {number(path) for path in FILES if any(line.startswith("!!") for line in path.read_text(encoding="utf-8").splitlines())}
    assert broken == {"P-02"}  # an unclean election, recorded as such


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("> run\n", "line 1: a scenario begins with one of brokers, cluster"),
        ("# a story\n> brokers A\n> dance\n", "line 3: unknown command 'dance'; known are advance, "),
        ("> brokers A\n> state leader=A isr=A epohc=1\n", "line 2: state does not know epohc=1"),
        ("> brokers A\n> append A\n", "line 2: append: records are missing"),
        ("> brokers A\n> deliver AB\n", "line 2: 'AB' is not a link; write A>B"),
        ("> brokers A\n> advance 3\n", "line 2: '3' is not a time; write 500ms, 31s, 2m, 1h or 1d"),
        ("> brokers A\n> crash B\n", "line 2: B does not run; running are A"),
        ("acknowledged\n", "line 1: 'acknowledged' is neither a comment, nor a command, nor below one"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        replay_scenario(text)
    assert str(caught.value).startswith(why)


def test_rewriting_keeps_the_story_and_replaces_the_transcript(tmp_path: Path) -> None:
    path = tmp_path / "P-00.txt"
    path.write_text("# story\n\n> brokers A\nnonsense\n\n# more\n> state leader=A epoch=1 isr=A\n", encoding="utf-8")
    assert "-nonsense" in check_file(path)
    assert check_file(path, rewrite=True) == ""
    assert path.read_text(encoding="utf-8") == "# story\n\n> brokers A\n\n# more\n> state leader=A epoch=1 isr=A\nA leads epoch 1\n"
    assert check_file(path) == ""
