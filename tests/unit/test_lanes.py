"""`make test` leaves no test out, and a lane appears as soon as it has tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tools import lanes, memory_disk

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_memory_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What real lanes have left in memory is none of these tests'."""
    monkeypatch.setattr(memory_disk, "MEMORY", tmp_path / "memory")


def test_every_test_file_is_in_exactly_one_lane() -> None:
    def runs(lane: Any, file: Path) -> bool:
        left_out = [ROOT / word.removeprefix("--ignore=") for word in lane.commands[-1] if word.startswith("--ignore=")]
        inside = [place for place in (ROOT / test for test in lane.tests) if place == file or place in file.parents]
        return bool(inside) and not any(place in file.parents for place in left_out)

    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        assert len([lane.name for lane in lanes.LANES if runs(lane, file)]) == 1, f"not one lane runs {file}"


def test_a_lane_appears_with_its_first_test(tmp_path: Path) -> None:
    lane = lanes.Lane("scenarios", (("pytest", "-q"),), ("tests/scenarios", "tests/more"))
    assert lanes.commands_of(lane, tmp_path) == []
    (tmp_path / "tests" / "scenarios" / "deep").mkdir(parents=True)
    assert lanes.commands_of(lane, tmp_path) == []
    (tmp_path / "tests" / "scenarios" / "deep" / "test_one.py").touch()
    assert lanes.commands_of(lane, tmp_path) == [[sys.executable, "-m", "pytest", "-q", "tests/scenarios"]]


def test_a_lane_that_must_be_asked_for_runs_only_then(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sound, asked = (lanes.Lane(name, (("timeit", "-n1", "-r1", "0"),), asked=name == "asked") for name in ("sound", "asked"))
    monkeypatch.setattr(lanes, "LANES", (sound, asked))
    for names, ran in (([], {"sound"}), (["asked"], {"asked"}), (["sound", "asked"], {"sound", "asked"})):
        assert lanes.main(names) == 0
        summary = capfd.readouterr().out.partition("\nlane ")[2].splitlines()[1:]
        assert {line.split()[0] for line in summary if line.endswith("passed")} == ran


def test_what_a_lane_needs_begins_with_the_first_lane_and_its_failure_is_that_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made = tmp_path / "made"
    waits = f"import pathlib\nwhile not pathlib.Path({str(made)!r}).exists(): pass"
    first = lanes.Lane("first", (("timeit", "-n1", "-r1", waits),))
    for does, outcome in ((f"open({str(made)!r}, 'w')", "passed"), (f"open({str(made)!r}, 'w'); this", "FAILED")):
        made.unlink(missing_ok=True)
        last = lanes.Lane("last", (("timeit", "-n1", "-r1", "0"),), ahead=("timeit", "-n1", "-r1", does))
        monkeypatch.setattr(lanes, "LANES", (first, last))
        assert lanes.main([]) == (outcome == "FAILED")
        summary = capfd.readouterr().out.partition("\nlane ")[2].splitlines()[1:]
        assert [line.split()[-1] for line in summary[:2]] == ["passed", outcome]


def test_a_failure_is_reported_and_the_other_lanes_still_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = lanes.Lane("broken", (("no_such_module",), ("this",)))
    sound = lanes.Lane("sound", (("timeit", "-n1", "-r1", "0"),))
    monkeypatch.setattr(lanes, "LANES", (broken, sound))
    assert lanes.main([]) == 1
    summary = capfd.readouterr().out.partition("\nlane ")[2].splitlines()[1:]
    assert [line.split()[0] + " " + line.split()[-1] for line in summary[:2]] == ["broken FAILED", "sound passed"]
    assert lanes.main(["sound"]) == 0
    with pytest.raises(SystemExit, match="no lane 'soud'; lanes are: broken, sound"):
        lanes.main(["soud"])


def test_bytecode_is_kept_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that compiles all that it imports takes a second more to start, and tests start hundreds."""
    file = tmp_path / "test_kept.py"
    file.write_text("import sys\n\n\ndef test_kept():\n    assert not sys.dont_write_bytecode\n")
    monkeypatch.setattr(lanes, "LANES", (lanes.Lane("sound", (("pytest", "-q", "-p", "no:cacheprovider", str(file)),)),))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert lanes.main([]) == 0


WRITES_WHERE = """
import os
import tempfile
from pathlib import Path

def test_where(tmp_path):
    assert Path(tempfile.gettempdir()) in tmp_path.parents
    says = Path(os.environ["SAYS_WHERE"])
    seen = says.read_text().splitlines() if says.exists() else []
    says.write_text("\\n".join([*seen, str(tmp_path)]))
    assert len(seen) >= int(os.environ["FAILS"])
"""


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What is taken for the file system in memory; there is room in it."""
    memory_disk.MEMORY.mkdir()
    monkeypatch.setattr(memory_disk, "ROOM_MIN", 0)
    monkeypatch.delenv("TMPDIR", raising=False)
    return tmp_path / "memory"


@pytest.fixture
def run_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, list[Path]]]:
    """Runs a lane whose one test fails so often: (exit status, the folder that each run of the test had)."""
    file, says = tmp_path / "test_where.py", tmp_path / "says"
    file.write_text(WRITES_WHERE)

    def run(fails: int = 0, **fields: Any) -> tuple[int, list[Path]]:
        monkeypatch.setenv("SAYS_WHERE", str(says))
        monkeypatch.setenv("FAILS", str(fails))
        command = ("pytest", "-q", "-p", "cacheprovider", "-c", "/dev/null", f"--rootdir={tmp_path}")
        monkeypatch.setattr(lanes, "LANES", (lanes.Lane("real", (command,), (str(file),), **fields),))
        monkeypatch.setattr(lanes, "ROOT", tmp_path)
        status = lanes.main([])
        return status, [Path(line) for line in says.read_text().splitlines()]

    return run


@pytest.mark.parametrize(("fails", "processes"), [(0, False), (0, True), (1, True)])
def test_temporary_files_lie_in_memory_and_do_not_stay(
    memory: Path, run_where: Callable[..., tuple[int, list[Path]]], fails: int, processes: bool
) -> None:
    status, folders = run_where(fails, processes=processes)
    assert (status, len(folders)) == (0, fails + 1)
    assert all(memory in folder.parents for folder in folders)
    assert list(memory.iterdir()) == []


def test_what_a_lane_that_failed_has_left_is_there_until_lanes_are_run_again(
    memory: Path, run_where: Callable[..., tuple[int, list[Path]]], capfd: pytest.CaptureFixture[str]
) -> None:
    status, (folder,) = run_where(9)
    assert status == 1
    assert folder.is_dir()
    (kept,) = memory.iterdir()
    assert f"is in {kept} until" in capfd.readouterr().out
    assert run_where(on_disk=True)[0] == 0
    assert list(memory.iterdir()) == []


def test_what_is_not_left_by_a_lane_that_is_over_stays(memory: Path, tmp_path: Path) -> None:
    """Of whoever still runs there may be no more than the pytest that has been started."""
    place = memory_disk.place()
    assert place is not None
    pytest_there = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(place.held,))
    os.close(place.held)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    (memory / f"{memory_disk.PREFIX}link").symlink_to(tmp_path / "elsewhere")
    (memory / "of somebody else").mkdir()
    memory_disk.forget_dead()
    names = {"of somebody else", f"{memory_disk.PREFIX}link"}
    assert {one.name for one in memory.iterdir()} == {place.folder.name, *names}
    assert (tmp_path / "elsewhere" / "file").exists()
    pytest_there.communicate()
    memory_disk.forget_dead()
    assert {one.name for one in memory.iterdir()} == names


def test_pytest_has_the_lock_as_well(memory: Path) -> None:
    place = memory_disk.place()
    assert place is not None
    assert lanes.status_of([sys.executable, "-c", f"import os; os.fstat({place.held})"], place) == 0
    os.close(place.held)


def test_an_interrupt_says_what_is_left(
    memory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lanes, "run_in", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lanes.run(lanes.Lane("real", ()))
    (left,) = memory.iterdir()
    assert f"is in {left} until" in capfd.readouterr().out
    memory_disk.forget_dead()
    assert list(memory.iterdir()) == []


@pytest.mark.parametrize("why", ["it keeps the disk", "TMPDIR", "no such file system", "no programs", "no room there", "no memory"])
def test_temporary_files_lie_where_they_always_do(
    memory: Path,
    run_where: Callable[..., tuple[int, list[Path]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    why: str,
) -> None:
    disk = os.statvfs(memory)
    size = disk.f_bavail * disk.f_frsize
    if why == "TMPDIR":
        monkeypatch.setenv("TMPDIR", str(tmp_path))
    elif why == "no such file system":
        memory.rmdir()
    elif why == "no programs":
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=1 << 30, f_frsize=1, f_flag=os.ST_NOEXEC))
    elif why == "no room there":
        monkeypatch.setattr(memory_disk, "free_memory", lambda: size + (1 << 40))
        monkeypatch.setattr(memory_disk, "ROOM_MIN", size + (1 << 39))
    elif why == "no memory":
        monkeypatch.setattr(memory_disk, "free_memory", lambda: 1)
        monkeypatch.setattr(memory_disk, "ROOM_MIN", 2)
    status, (folder,) = run_where(on_disk=why == "it keeps the disk")
    assert status == 0
    assert memory not in folder.parents
    assert not memory.exists() or list(memory.iterdir()) == []


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 5 << 20),
        ({"memory.max": "max", "memory.current": "7", "memory.stat": "inactive_file 2"}, 5 << 20),
        ({"memory.max": "1000", "memory.current": "700", "memory.stat": "anon 1\ninactive_file 20"}, 320),
        ({"memory.limit_in_bytes": "1000", "memory.usage_in_bytes": "900", "memory.stat": "total_inactive_file 30"}, 130),
    ],
    ids=["no group", "no limit", "version 2", "version 1"],
)
def test_a_container_has_the_memory_that_it_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], free: int
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9999 kB\nMemAvailable:    5120 kB\n")
    folder = tmp_path / "memory" if "memory.limit_in_bytes" in files else tmp_path
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")
    for name in ("PROC", "CGROUP"):
        monkeypatch.setattr(memory_disk, name, tmp_path)
    assert memory_disk.free_memory() == free


FAILS_ONCE = """
from pathlib import Path

def test_fails_once():
    seen = Path(__file__).with_suffix(".seen")
    there = seen.exists()
    seen.touch()
    assert there

def test_sound():
    pass
"""


@pytest.fixture
def processes_lane(tmp_path: Path) -> Any:
    """A lane whose tests are the caller's: `write(name, text)` adds a file."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tests").mkdir()
    return lanes.Lane("real", (("pytest", "-q", "-c", str(tmp_path / "pytest.ini")),), (str(tmp_path / "tests"),), True)


@pytest.mark.parametrize(
    ("text", "copies", "expected"),
    [
        (FAILS_ONCE, 1, "real passed at its second run"),
        (FAILS_ONCE, 5, "real FAILED"),  # so many are no standstill
        ("def test_never():\n    assert False\n", 1, "real FAILED"),
        ("import no_such_module\n", 1, "real FAILED"),
    ],
    ids=["once", "many", "always", "no test at all"],
)
def test_real_processes_get_a_second_look(
    processes_lane: Any,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: str,
    copies: int,
    expected: str,
) -> None:
    for number in range(copies):
        (tmp_path / "tests" / f"test_number_{number}.py").write_text(text)
    monkeypatch.setattr(lanes, "LANES", (processes_lane,))
    monkeypatch.setattr(lanes, "ROOT", tmp_path)
    status = lanes.main([])
    summary = capfd.readouterr().out.partition("\nlane ")[2]
    word, *rest = [line.strip() for line in summary.splitlines()[1:-1]]
    told = " ".join([word.split()[0], word.split()[-1], *(line.partition(":")[0] for line in rest)])
    assert (told, status) == (expected, 1 if "FAILED" in expected else 0)
    assert all("test_number_0.py::test_fails_once" in line for line in rest)
