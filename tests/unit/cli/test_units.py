"""Numbers of bytes and times as people read them, on every command that has any, and how to have plain ones."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Run, log_folder, run_with, stopped_broker

import replog
from replog.cli.grammar import make_parser
from replog.cli.output import Output
from replog.cli.units import Units
from replog.client.reassigning import Reassignment, ReplicaProgress
from replog.metadata.file import FileStore
from replog.ports import Create

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("count", "cell", "words", "raw"),
    [
        (None, None, None, None),
        (0, "0", "0 bytes", "0"),
        (1, "1", "1 byte", "1"),
        (1023, "1023", "1023 bytes", "1023"),
        (1024, "1 KiB", "1 KiB", "1024"),
        (1536, "1.5 KiB", "1.5 KiB", "1536"),
        (2049, "2.0 KiB", "2.0 KiB", "2049"),
        (100 * KIB + 1, "100 KiB", "100 KiB", "102401"),
        (MIB - 1, "1.0 MiB", "1.0 MiB", "1048575"),
        (256 * MIB, "256 MiB", "256 MiB", "268435456"),
        (5 * GIB // 2, "2.5 GiB", "2.5 GiB", "2684354560"),
        (2**63, "8 EiB", "8 EiB", "9223372036854775808"),
        (2**73, "8192 EiB", "8192 EiB", "9444732965739290427392"),
        (12.34, "12.3", "12.3 bytes", "12.3"),
        (1023.7, "1.0 KiB", "1.0 KiB", "1024"),
        (1536.0, "1.5 KiB", "1.5 KiB", "1536"),
    ],
)
def test_bytes(count: float | None, cell: str | None, words: str | None, raw: str | None) -> None:
    assert (Units().size(count), Units(raw=True).size(count)) == (cell, raw)
    assert count is None or Units().sized(count) == words


@pytest.mark.parametrize(
    ("done", "total", "human", "raw"),
    [
        (147, 147, "147 of 147 bytes", "147 of 147 bytes"),
        (512, 1536, "0.5 of 1.5 KiB", "512 of 1536 bytes"),
        (0, 3 * GIB, "0 of 3 GiB", "0 of 3221225472 bytes"),
    ],
)
def test_a_part_of_some_bytes_has_the_unit_of_the_whole(done: int, total: int, human: str, raw: str) -> None:
    assert (Units().part(done, total), Units(raw=True).part(done, total)) == (human, raw)


@pytest.mark.parametrize(
    ("seconds", "human", "raw"),
    [
        (0, "0 s", "0 s"),
        (0.31, "0.3 s", "0.3 s"),
        (1.5, "1.5 s", "1.5 s"),
        (59.4, "59 s", "59 s"),
        (59.6, "1 min", "60 s"),
        (200, "3 min 20 s", "200 s"),
        (3_599.9, "1 h", "3600 s"),
        (7_500, "2 h 5 min", "7500 s"),
        (86_400, "24 h", "86400 s"),
        (172_700, "47 h 58 min", "172700 s"),
        (172_799, "48 h", "172799 s"),
        (172_800, "2 d", "172800 s"),
        (604_800 + 3 * 3_600, "7 d 3 h", "615600 s"),
    ],
)
def test_times(seconds: float, human: str, raw: str) -> None:
    assert (Units().time(seconds), Units(raw=True).time(seconds)) == (human, raw)


@pytest.mark.parametrize(
    ("key", "value", "human"),
    [
        ("retention_ms", 604_800_000, "retention_ms=604800000 (7 d)"),
        ("retention_ms", 999, "retention_ms=999"),
        ("retention_ms", None, "retention_ms=None"),
        ("segment_bytes", 400, "segment_bytes=400"),
        ("segment_bytes", 3 * KIB, "segment_bytes=3072 (3 KiB)"),
        ("stage_bytes_max", GIB, "stage_bytes_max=1073741824 (1 GiB)"),
        ("min_isr", 2_000, "min_isr=2000"),
    ],
)
def test_a_setting_stays_as_it_is_typed(key: str, value: object, human: str) -> None:
    assert (Units().setting(key, value), Units(raw=True).setting(key, value)) == (human, f"{key}={value}")


@pytest.mark.parametrize("words", [["log", "verify", "d"], ["read", "t"], ["store", "get", "/x", "--store", "file://s"]])
def test_raw_may_stand_on_either_side(words: list[str]) -> None:
    asked = [make_parser().parse_args(typed).raw for typed in (["--raw", *words], [*words, "--raw"], words)]
    assert asked == [True, True, False]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("log", "verify"), "numbers of bytes and times as plain numbers"),
        (("read",), "the bytes of values as they are"),
        (("store", "get"), "just the bytes of the value"),
    ],
)
def test_help_says_what_raw_means_there(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(None, *words, "--help").status == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert says in shown
    assert shown.count("[--raw]") == 1, "it means one thing there"


def test_of_files(tmp_path: Path) -> None:
    data = stopped_broker(tmp_path / "data")
    log = log_folder(data)
    size = sum(file.stat().st_size for file in log.glob("*.log"))
    assert size > KIB
    for words, raw, human in (
        (("verify", str(data), "--topic", "orders"), f" {size} ", f" {Units().size(size)} "),
        (("dump", str(data), "--topic", "orders"), f" {size} bytes,", f" {Units().sized(size)},"),
    ):
        shown, plain = run_with(None, "log", *words).stdout, run_with(None, "log", *words, "--raw").stdout
        assert (human in shown, raw in shown) == (True, False)
        assert (human in plain, raw in plain) == (False, True)
    whole = tmp_path / "whole"
    whole.write_bytes(b"".join(file.read_bytes() for file in sorted(log.glob("*.log"))))
    assert f", {size} of {size} bytes, " in run_with(None, "log", "dump", str(whole), "--raw").stdout
    assert f", {Units().part(size, size)}, " in run_with(None, "log", "dump", str(whole)).stdout
    first = sorted(log.glob("*.log"))[0]
    first.write_bytes(b"?" * 2_000)
    cut = [run_with(None, "log", "repair", str(data), *more).stdout for more in ((), ("--raw",))]
    assert ["bytes 0 to 2000 (2.0 KiB)" in one for one in cut] == [True, False]
    assert ["bytes 0 to 2000 (2000 bytes)" in one for one in cut] == [False, True]


def test_of_topics(run: Run, cluster: replog.Cluster) -> None:
    made = run("topic", "create", "t", "-c", "retention_ms=604800000", "-c", "segment_bytes=1048576")
    assert made.lines[0] == "t (1 partition, min_isr=2, retention_ms=604800000 (7 d), segment_bytes=1048576 (1 MiB))"
    plain = run("topic", "describe", "t", "--raw")
    assert plain.lines[0] == "t (1 partition, min_isr=2, retention_ms=604800000, segment_bytes=1048576)"
    assert run("topic", "describe", "t", "--raw", "--format", "json") == run("topic", "describe", "t", "--format", "json")


def test_of_a_node_of_the_store(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("store") / "metadata.db"
    with FileStore(str(path), session_ms=60_000) as store:
        store.commit([Create("/config/x", json.dumps({"version": 1, "x": "x" * 2_025}).encode())])
    shown = run_with(None, "store", "get", "/config/x", "--store", f"file://{path}").lines[0]
    assert shown == "/config/x: version 0, 2 KiB, 0 nodes below"


class Moving:
    """A client of a cluster in which one partition moves."""

    def reassignments(self, timeout_s: float | None) -> list[Reassignment]:
        behind = ReplicaProgress(4, 500, 500, 5_000)
        return [Reassignment("t", 0, "moving", (1, 2, 4), (4,), (1,), (1, 2), (2, 4), (1, 2), 1, 1_000, (behind,))]


def test_of_moves() -> None:
    cells = [run_with(Moving(), "reassign", "status", *more).lines[-1].split()[-3:] for more in ((), ("--raw",))]  # type: ignore[arg-type]
    assert cells == [["500", "4.9", "KiB"], ["%", "500", "5000"]]


def test_a_number_with_its_unit_stays_whole_in_a_drawn_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    stdout = io.BytesIO()
    row = ("a-long-name-of-a-topic-that-is-folded", "1023.9 KiB", "1023.8 KiB", "1023.7 KiB")
    Output(stdout, io.StringIO(), pretty=True).table(("topic", "bytes", "bytes/s", "left"), [row])
    assert [number in stdout.getvalue().decode() for number in row] == [False, True, True, True]
