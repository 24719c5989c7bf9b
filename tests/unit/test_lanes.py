"""`make test` leaves no test out, and a lane appears as soon as it has tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def lanes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lanes", ROOT / "tools" / "lanes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_test_file_is_in_exactly_one_lane(lanes: ModuleType) -> None:
    places = [ROOT / test for lane in lanes.LANES for test in lane.tests]
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        assert [place for place in places if place == file or place in file.parents] != [], f"no lane runs {file}"
    assert len(places) == len(set(places))


def test_a_lane_appears_with_its_first_test(lanes: ModuleType, tmp_path: Path) -> None:
    lane = lanes.Lane("scenarios", (("pytest", "-q"),), ("tests/scenarios", "tests/more"))
    assert lanes.commands_of(lane, tmp_path) == []
    (tmp_path / "tests" / "scenarios" / "deep").mkdir(parents=True)
    assert lanes.commands_of(lane, tmp_path) == []
    (tmp_path / "tests" / "scenarios" / "deep" / "test_one.py").touch()
    assert lanes.commands_of(lane, tmp_path) == [[sys.executable, "-m", "pytest", "-q", "tests/scenarios"]]


def test_a_failure_is_reported_and_the_other_lanes_still_run(
    lanes: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
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
