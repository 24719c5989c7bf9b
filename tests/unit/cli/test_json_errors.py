"""`--format json` gives JSON also where something is refused: one value that says what, as the last one."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import run_with
from tests.unit.cli.test_health import Nobody

import replog
from replog.cli import main
from replog.cli.grammar import wants_json
from replog.errors import TimedOut


@pytest.mark.parametrize(
    ("words", "error", "status", "why"),
    [
        (["topic", "delete", "t"], "UsageError", 2, "topic t would be deleted"),
        (["topic", "remove-partitions", "t", "1"], "UsageError", 2, "would be removed"),
        (["elect", "--all", "--unclean"], "UsageError", 2, "an unclean election may lose records for good"),
        (["topic", "list"], "UsageError", 2, "which cluster?"),
        (["health"], "UsageError", 2, "which cluster?"),
        (["read", "t", "--raw"], "UsageError", 2, "--raw prints bytes as they are"),
        (["store", "get", "/x", "--raw", "--store", "file://s"], "UsageError", 2, "--raw prints bytes as they are"),
        (["log", "verify", "/nowhere"], "UsageError", 2, "/nowhere: there is no such folder"),
        (["log", "dump", "/nowhere"], "UsageError", 2, "/nowhere: there is no such folder"),
        (["reassign", "execute", "/nowhere"], "UsageError", 2, "the plan /nowhere cannot be read"),
        (["metrics", "http://127.0.0.1:1"], "Unavailable", 4, "http://127.0.0.1:1/metrics?format=json does not answer"),
    ],
)
def test_what_is_refused(words: list[str], error: str, status: int, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPLOG_BOOTSTRAP", raising=False)
    ran = run_with(None, *words, "--format", "json")
    assert ran.status == status
    told = ran.json
    assert (told["error"], told["status"]) == (error, status)
    assert why in told["why"]
    assert set(told) == {"error", "why", "next", "status"}
    assert ran.stderr.splitlines()[0] == f"replog: {told['why']}", "people are told the same"
    assert ran.stderr.splitlines()[1:] == ([] if told["next"] is None else [f"next: {told['next']}"])
    assert run_with(None, *words).stdout == "", "only data is on stdout, for people"


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (["--format", "json"], "replog --help"),
        (["topic", "lst", "--format", "json"], "replog topic --help"),
        (["--format=json", "topic", "list", "--no"], "replog topic list --help"),
        (["read", "--format", "json"], "replog read --help"),
        (["read", "t", "--format", "json", "--template", "{x}"], "replog read --help"),
        (["broker", "--format", "json"], "replog broker --help"),
        (["topic", "create", "t", "-c", "a=1", "-c", "a=2", "--format", "json"], "replog topic create --help"),
    ],
)
def test_what_cannot_be_parsed(words: list[str], step: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert (told["error"], told["status"], told["next"]) == ("UsageError", 2, step)
    assert f"error: {told['why']}\nnext: {step}\n" in printed.err


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["--format", "json", "x"], True),
        (["x", "--format=json"], True),
        (["x", "--format", "table"], False),
        (["x", "--", "--format", "json"], False),
        (["x", "--format"], False),
        (["json"], False),
        ([], False),
    ],
)
def test_who_asks_for_json(words: list[str], asked: bool) -> None:
    assert wants_json(words) is asked


def test_a_refusal_of_the_cluster_has_its_name_and_what_to_do(cluster: replog.Cluster) -> None:
    told = run_with(cluster, "topic", "describe", "nope", "--format", "json").json
    assert told == {
        "error": "UnknownTopicOrPartition",
        "why": "unknown topic 'nope'; there are no topics yet",
        "next": "replog topic list names the topics there are",
        "status": 3,
    }
    cluster.create_topic("t", partitions=2)
    stopped = run_with(cluster, "produce", "t", "-k", "=", "--batch", "1", "--format", "json", stdin=b"a=1\nb\n").json
    assert (stopped["error"], stopped["records"], stopped["unknown"]) == ("UsageError", 1, 0), "what was stored before it"
    plan = b'{"partitions": [{"topic": "t", "partition": 0, "replicas": [9]}]}'
    for more in ((), ("--dry-run",)):
        refused = run_with(cluster, "reassign", "execute", "-", *more, "--format", "json", stdin=plan)
        assert refused.status == 3
        assert "error" not in refused.json, "one document says what is refused, and no other one follows"
    assert run_with(cluster, "reassign", "cancel", "--all", "--format", "json").json["cancelled"] == 0
    quiet = run_with(cluster, "reassign", "status", "--watch", "--format", "json")
    assert (quiet.status, quiet.json) == (0, []), "nothing is a value as well"


def test_records_before_an_error_are_lines_of_their_own() -> None:
    class Breaking:
        def read(self, *_: object, **__: object) -> object:
            record = replog.Record("x")
            record.topic, record.timestamp_ms = "t", 0
            yield record
            raise TimedOut("waited 1 s for an answer of broker 2 to a fetch")

    ran = run_with(Breaking(), "read", "t", "--format", "json")  # type: ignore[arg-type]
    record, error = ran.json_lines
    assert (ran.status, record["value"], error["error"], error["status"]) == (4, "x", "TimedOut", 4)


def test_health_that_watches_says_as_well_that_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.cli.health._EVERY_S", 0)
    nobody = Nobody(TimedOut("nobody there"), TimedOut("nobody there"))
    ran = run_with(nobody, "health", "--exit-when-healthy", "--format", "json")  # type: ignore[arg-type]
    first, last = ran.json_lines
    assert first == {"healthy": False, "reason": "nobody answers: nobody there"}
    assert (ran.status, last["healthy"]) == (0, True)


def test_a_file_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> object:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("replog.cli.logs.find", refused)
    ran = run_with(None, "log", "verify", "there", "--format", "json")
    assert (ran.status, ran.json) == (1, {"error": "PermissionError", "why": "there: Permission denied", "next": None, "status": 1})


class Gone(io.BytesIO):
    """Whoever read this has gone."""

    def write(self, _data: object) -> int:
        raise BrokenPipeError


def test_the_status_stands_although_nobody_reads_the_json(tmp_path: Path) -> None:
    words = ["log", "verify", str(tmp_path / "no"), "--format", "json"]
    assert main(words, stdin=io.BytesIO(), stdout=Gone(), stderr=io.StringIO()) == 2
    assert main(["topic", "--format", "json"], stdin=io.BytesIO(), stdout=Gone(), stderr=io.StringIO()) == 2
