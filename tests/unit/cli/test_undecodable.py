"""An intact batch that nobody can decode: `read` ends there with a sentence, and `log verify` and `log dump` name it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Ran, run_with

import replog
from replog.config import RECORD_HEADERS_MAX
from replog.records import BODY_HEADER, sealed

CUT_OFF = b"\x92\xc4\x01a\xc4\x02b"
BODY = sealed([BODY_HEADER.pack(0, 0, 0, 2, 5, 5, -1, -1, -1)[4:], len(CUT_OFF).to_bytes(4, "little") + bytes(12), CUT_OFF])


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Ran]:
    """The directory of a broker that was stopped, with such a batch between two others; and what `read` said before."""
    with replog.Cluster(tmp_path / "data", brokers=1) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, ["before"])
        with monkeypatch.context() as patch:
            patch.setattr("replog.client.batches.encode_values", lambda *_, **__: BODY)
            cluster.append("t", 0, ["x", "y"])
        cluster.append("t", 0, ["after"])
        ran = run_with(cluster, "read", "t")
        assert run_with(cluster, "read", "t", "--start", "3").stdout == "after\n"
    return tmp_path / "data" / "broker-1", ran


def look(verb: str, path: object, *words: str) -> Ran:
    return run_with(None, "log", verb, str(path), *words)


def segment(data: Path) -> Path:
    (file,) = data.glob("logs/*/*.log")
    return file


def test_read_prints_what_is_in_front_and_says_where_to_go_on(data: tuple[Path, Ran]) -> None:
    _, ran = data
    assert (ran.status, ran.stdout) == (3, "before\n")
    assert "t-0: the batch of offsets 1 to 2 is stored as it was sent, and cannot be decoded (" in ran.stderr
    assert "go on at offset 3 to leave it out" in ran.stderr


def test_verify_names_it_and_calls_nothing_damaged(data: tuple[Path, Ran]) -> None:
    folder, _ = data
    ran = look("verify", folder)
    assert ran.status == 1
    assert ran.lines[1].split()[-1] == "intact"
    position = segment(folder).stat().st_size // 3
    (line,) = [line for line in ran.lines if line.startswith("UNDECODABLE: ")]
    assert line.startswith(f"UNDECODABLE: {segment(folder)} at position ")
    assert ": the batch of offsets 1 to 2: values: " in line
    assert ran.lines[-1] == "1 logs, batches that cannot be decoded: 1"
    said: Any = look("verify", folder, "--format", "json").json
    assert (said["intact"], said["damages"], said["unreadable"], said["logs"][0]["state"]) == (True, [], [], "intact")
    (one,) = said["undecodable"]
    assert (one["file"], one["base_offset"], one["last_offset"]) == (str(segment(folder)), 1, 2)
    assert 0 < one["position"] < 2 * position
    assert look("repair", folder).status == 0, "there is nothing to cut"


@pytest.mark.parametrize("words", [(), ("--records",)])
def test_dump_names_it_in_its_place(data: tuple[Path, Ran], words: tuple[str, ...]) -> None:
    folder, _ = data
    for path in (folder, segment(folder)):
        ran = look("dump", path, *words)
        assert ran.status == 1
        (at,) = [n for n, line in enumerate(ran.lines) if line.startswith("UNDECODABLE: ")]
        assert " 1-2 " in ran.lines[at - 1]
        assert " 3-3 " in ran.lines[at + 1]
        assert "DAMAGED" not in ran.stdout
        assert ("'after'" in ran.stdout) == bool(words)
        told = look("dump", path, "--format", "json", *words).json_lines
        assert [(one["undecodable"]["base_offset"], one["undecodable"]["last_offset"]) for one in told if "undecodable" in one] == [(1, 2)]
        assert [one["segment"]["intact"] for one in told if "segment" in one] == ([] if path == folder else [True])


def test_what_is_more_than_a_reader_takes_is_shown_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with replog.Cluster(tmp_path / "data", brokers=1) as cluster:
        cluster.create_topic("t")
        with monkeypatch.context() as patch:
            patch.setattr("replog.payload.RECORD_HEADERS_MAX", 2 * RECORD_HEADERS_MAX)
            cluster.append("t", 0, [replog.Record("many", headers=[("", "")] * (RECORD_HEADERS_MAX + 1))])
        assert run_with(cluster, "read", "t").status == 3
    ran = look("dump", tmp_path / "data" / "broker-1", "--records")
    assert ran.status == 1
    assert "'many'" in ran.stdout
    assert "UNDECODABLE: " in ran.stdout
    assert "headers: more than 10000 in one record" in ran.stdout
