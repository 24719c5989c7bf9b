"""The page that `make bench` writes: targets, tables, what was not measured, and the lines of its plots."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import run
from benchmarks.measuring import draw, report
from benchmarks.plots import PEER, PLOTS, lines_of, peers_of
from benchmarks.reporting import Figure, Missing, Subject, command, figures_of, missing_of, render, shown
from benchmarks.targets import Target, at_least, at_most

from replog.testing.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]


class Benchmark:
    """What `report` and `draw` need of pytest-benchmark's fixture."""

    def __init__(self) -> None:
        self.extra_info: dict[str, Any] = {}


class Capture:
    """What they need of pytest's."""

    def disabled(self) -> Any:
        from contextlib import nullcontext

        return nullcontext()


@pytest.mark.parametrize(
    ("target", "value", "reached"),
    [
        (at_least("x", 0.7), 0.7, True),
        (at_least("x", 0.7), 0.699, False),
        (at_least("x", 0.7), float("nan"), False),
        (at_most("x", 2), 2.0, True),
        (at_most("x", 2), 2.001, False),
        (at_most("x", 2), float("nan"), False),
    ],
)
def test_a_target_may_just_be_reached(target: Target, value: float, reached: bool) -> None:
    assert target.reached(value) is reached


def test_a_target_says_what_it_wants() -> None:
    assert (str(at_least("x", 0.7)), str(at_most("x", 10_000))) == (">= 0.7", "<= 10000")


def test_what_a_benchmark_reports_comes_back_as_figures(capsys: pytest.CaptureFixture[str]) -> None:
    fixture = Benchmark()
    report(fixture, Capture(), "one", {"ratio": 0.123456, "us": 4.0}, at_least("ratio", 0.1))
    report(fixture, Capture(), "two", {"ratio": 3.0}, at_most("ratio", 2))
    assert figures_of([{"fullname": "a.py::test_b", "extra_info": fixture.extra_info}]) == [
        Figure("a.py::test_b", "one", "ratio", 0.1235, at_least("ratio", 0.1)),
        Figure("a.py::test_b", "one", "us", 4.0),
        Figure("a.py::test_b", "two", "ratio", 3.0, at_most("ratio", 2)),
    ]
    said = capsys.readouterr().out
    assert "ratio >= 0.1 is reached" in said
    assert "ratio <= 2 is MISSED" in said


def test_a_target_needs_its_figure() -> None:
    with pytest.raises(KeyError, match="ratio"):
        report(Benchmark(), Capture(), "one", {"us": 4.0}, at_least("ratio", 0.1))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.123456, "0.123"), (-0.5, "-0.500"), (1.5, "1.50"), (12.34, "12.3"), (123456.0, "123,456"), (float("nan"), "nan")],
)
def test_numbers_have_three_digits_that_count(value: float, text: str) -> None:
    assert shown(value) == text


def test_what_did_not_pass_is_missing_with_its_reason() -> None:
    cases = [
        {"benchmark": "a", "outcome": "passed", "reason": ""},
        {"benchmark": "b", "outcome": "skipped", "reason": "no server\nat all"},
        {"benchmark": "c", "outcome": "failed", "reason": ""},
    ]
    assert missing_of(cases) == [Missing("b", "skipped: no server"), Missing("c", "failed: no reason")]


def test_the_page() -> None:
    figures = [
        Figure("benchmarks/test_a.py::test_a[1 MiB]", "a | b", "ratio", 0.5, at_least("ratio", 0.7)),
        Figure("benchmarks/test_a.py::test_a[1 MiB]", "a | b", "us", 4.0),
        Figure("benchmarks/test_a.py::test_c", "c", "ratio", 0.9, at_least("ratio", 0.7)),
    ]
    subject = Subject("benchmarks/test_a.py", "What a costs.", 1.4, figures, [Missing("test_d", "skipped: no server")])
    assert render({"date": "today"}, [("A plot", "report/a.png")], [subject]) == (ROOT / "tests/unit/benchmark_report.md").read_text()


def test_a_run_without_targets_misses_none() -> None:
    page = render({}, [], [Subject("a.py", "A", 1.0, [Figure("a.py::t", "a", "us", 4.0)])])
    assert "0 of 0 targets are reached." in page
    assert "| missed |" not in page


def test_a_command_survives_the_shell() -> None:
    assert command("a.py::test_b[1 MiB]") == "python -m pytest 'a.py::test_b[1 MiB]' --benchmark-enable -s"


def test_lines_are_sorted_and_limits_come_last() -> None:
    fixture = Benchmark()
    draw(fixture, "latency", "limit: a round trip", [(0.1, 1.0)])
    draw(fixture, "latency", "ours", [(0.9, 3.0), (0.1, 2.0)])
    found = lines_of([{"extra_info": fixture.extra_info}, {"extra_info": {}}])
    assert found == {"latency": [("ours", [(0.1, 2.0), (0.9, 3.0)]), ("limit: a round trip", [(0.1, 1.0)])]}


def one(name: str, *lines: tuple[str, str, list[tuple[float, float]]]) -> dict[str, Any]:
    """What a benchmark has left."""
    fixture = Benchmark()
    for line in lines:
        draw(fixture, *line)
    return {"fullname": name, "extra_info": fixture.extra_info}


def test_peers_come_between_ours_and_limits_each_once() -> None:
    ours, limit = ("throughput", "ours", [(1.0, 2.0)]), ("throughput", "limit: a", [(1.0, 9.0)])
    peer = ("throughput", f"{PEER}b", [(1.0, 3.0)])
    found = lines_of([one("a.py::t", limit, peer, ours), one("b.py::t", peer)])
    assert [name for name, _ in found["throughput"]] == ["ours", f"{PEER}b", "limit: a"]
    assert lines_of([one("b.py::t", peer)]) == {}, "a plot of peers alone says nothing of ours"


def test_of_a_run_of_peers_is_kept_what_was_not_measured_since() -> None:
    peer, ours = ("throughput", f"{PEER}b", [(1.0, 3.0)]), ("throughput", "ours", [(1.0, 2.0)])
    left = [one("a.py::t", peer), one("b.py::t", ours, peer), one("c.py::t", ours)]
    assert peers_of(left, [one("a.py::t", ours)]) == [
        {"fullname": "b.py::t", "extra_info": {"lines": [{"plot": "throughput", "line": f"{PEER}b", "points": [(1.0, 3.0)]}]}}
    ]


def test_a_run_of_peers_is_read_with_its_date(tmp_path: Path) -> None:
    assert run.left_by_peers(tmp_path / "peers.json") == ("", [])
    (tmp_path / "peers.json").write_text('{"datetime": "2026-01-02T03:04:05+00:00", "benchmarks": [{"fullname": "a"}]}')
    assert run.left_by_peers(tmp_path / "peers.json") == ("2026-01-02 03:04", [{"fullname": "a"}])
    (tmp_path / "peers.json").write_text("")
    assert run.left_by_peers(tmp_path / "peers.json") == ("", []), "a run that was interrupted has left nothing"


def test_a_plot_that_there_is_not_is_refused() -> None:
    fixture = Benchmark()
    draw(fixture, "lateness", "ours", [(0.1, 1.0)])
    with pytest.raises(KeyError, match="lateness"):
        lines_of([{"extra_info": fixture.extra_info}])


def test_every_plot_is_drawn_by_a_benchmark() -> None:
    drawn = {
        found[1]
        for path in (ROOT / "benchmarks").glob("test_*.py")
        for found in re.finditer(r'draw\(\s*benchmark, "(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert drawn == set(PLOTS)


def test_the_selection_leaves_out_the_peers_that_need_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    for name in ("test_log.py", "test_etcd.py", "writers.py"):
        (tmp_path / "benchmarks" / name).touch()
    monkeypatch.setattr(run, "ROOT", tmp_path)
    assert [path.name for path in run.files_of([], everything=False)] == ["test_log.py"]
    assert [path.name for path in run.files_of([], everything=True)] == ["test_etcd.py", "test_log.py"]
    assert run.files_of(["benchmarks/test_etcd.py"], everything=False) == [Path("benchmarks/test_etcd.py")]


def test_every_file_of_benchmarks_has_a_title() -> None:
    assert [path.name for path in run.files_of([], everything=True) if run.title_of(path) == path.stem] == []


CASES = """<testsuites><testsuite><testcase classname="benchmarks.test_a" name="test_a[x]"/>
<testcase classname="benchmarks.test_a" name="test_b"><skipped message="no server"/></testcase>
<testcase classname="benchmarks.test_a" name="test_c"><error message="broken"/></testcase></testsuite></testsuites>"""


def test_outcomes_are_read_from_what_pytest_wrote(tmp_path: Path) -> None:
    assert run.cases_of(tmp_path / "none.xml") == []
    (tmp_path / "a.xml").write_text(CASES)
    assert [(case["benchmark"], case["outcome"], case["reason"]) for case in run.cases_of(tmp_path / "a.xml")] == [
        ("benchmarks/test_a.py::test_a[x]", "passed", ""),
        ("benchmarks/test_a.py::test_b", "skipped", "no server"),
        ("benchmarks/test_a.py::test_c", "failed", "broken"),
    ]


def test_the_status_is_that_of_the_process() -> None:
    assert [run.finished([sys.executable, "-c", f"raise SystemExit({status})"], 60) for status in (0, 3)] == [0, 3]


def test_what_hangs_is_ended() -> None:
    assert run.finished([sys.executable, "-c", "import threading; threading.Event().wait()"], 0.1) is None


def test_nothing_that_was_started_is_left(tmp_path: Path) -> None:
    fifo = tmp_path / "open while the child lives"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    child = f"import threading; file = open({str(fifo)!r}, 'wb'); print('open', flush=True); threading.Event().wait()"
    parent = f"import subprocess as s, sys; s.Popen([sys.executable, '-c', {child!r}], stdout=s.PIPE).stdout.readline()"
    try:
        assert run.finished([sys.executable, "-c", parent], 60) == 0

        def is_closed() -> bool:
            try:
                return os.read(reader, 10) == b""
            except BlockingIOError:
                return False

        eventually(is_closed)
    finally:
        os.close(reader)
