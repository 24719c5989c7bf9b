"""What may be typed, what it means, and that everything else is refused before anything happens."""

from __future__ import annotations

import argparse
import io
from datetime import UTC, datetime
from typing import Any

import pytest

from replog.cli import arguments as parse
from replog.cli import main
from replog.cli.context import Context
from replog.cli.exits import exit_of
from replog.cli.grammar import make_parser
from replog.cli.output import Output
from replog.errors import LogCorrupt, ReplogError, TimedOut, Unavailable, UsageError, rejection


@pytest.mark.parametrize(
    ("function", "text", "value"),
    [
        (parse.filled, " ", " "),
        (parse.number, "0", 0),
        (parse.count, "7", 7),
        (parse.seconds, "0.5", 0.5),
        (parse.seconds, "inf", 1e9),
        (parse.seconds, "1e300", 1e9),
        (parse.demo_records, "1000000", 1_000_000),
        (parse.interval, "0.1", 0.1),
        (parse.interval, "86400", 86_400.0),
        (parse.acks, "all", "all"),
        (parse.acks, "-1", "all"),
        (parse.acks, "0", 0),
        (parse.broker_id, "2147483647", 2**31 - 1),
        (parse.store, "file://memory://", "file://memory://"),
        (parse.position, "earliest", "earliest"),
        (parse.position, "latest", "latest"),
        (parse.position, "42", 42),
        (parse.position, "2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (parse.position, "2026-01-31", datetime(2026, 1, 31)),  # local time is what is meant
        (parse.setting, "min_isr=2", ("min_isr", 2)),
        (parse.setting, "min-isr=2", ("min_isr", 2)),
        (parse.setting, "self_checks=true", ("self_checks", True)),
        (parse.setting, "retention_ms=none", ("retention_ms", None)),
        (parse.setting, "flush=ack", ("flush", "ack")),
        (parse.setting, "x=-1", ("x", -1)),
        (parse.setting, "leader_imbalance_max=0.25", ("leader_imbalance_max", 0.25)),
        (parse.setting, "x=-1.0", ("x", -1.0)),
        (parse.setting, "x=1.2.3", ("x", "1.2.3")),
        (parse.setting, "x=.5", ("x", ".5")),
        (parse.setting, "x=", ("x", "")),
    ],
)
def test_taken(function: Any, text: str, value: object) -> None:
    taken = function(text)
    assert (type(taken), taken) == (type(value), value)


@pytest.mark.parametrize(
    ("function", "text", "names"),
    [
        (parse.number, "-1", "-1"),
        (parse.number, "٣", "٣"),  # a digit, and not one of ours
        (parse.number, "9" * 20, "999"),
        (parse.count, "0", "at least 1"),
        (parse.seconds, "nan", "nan"),
        (parse.interval, "-1", "-1"),
        (parse.interval, "inf", "0.1 to 86400"),
        (parse.seconds, "soon", "soon"),
        (parse.acks, "2", "0, 1, all"),
        (parse.position, "yesterday", "earliest, latest, an offset, or a time"),
        (parse.position, "-3", "-3"),
        (parse.setting, "min_isr", "KEY=VALUE"),
        (parse.setting, "=2", "KEY=VALUE"),
    ],
)
def test_refused(function: Any, text: str, names: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        function(text)
    assert names in str(refused.value)


@pytest.mark.parametrize(
    "words",
    [
        ["--bootstrap", "a:1", "--format", "json", "--timeout", "3", "topic", "list"],
        ["topic", "list", "--bootstrap", "a:1", "--format", "json", "--timeout", "3"],
        ["-b", "a:1", "topic", "list", "--format", "json", "--timeout", "3"],
    ],
)
def test_what_every_command_takes_may_stand_on_either_side(words: list[str]) -> None:
    asked = make_parser().parse_args(words)
    assert (asked.bootstrap, asked.format, asked.timeout) == ("a:1", "json", 3.0)


@pytest.mark.parametrize(("text", "acks"), [("0", 0), ("1", 1), ("all", "all"), ("-1", "all")])
def test_acks(text: str, acks: object) -> None:
    assert make_parser().parse_args(["produce", "t", "--acks", text]).acks == acks


def test_defaults() -> None:
    asked = make_parser().parse_args(["topic", "list"])
    assert (asked.bootstrap, asked.format, asked.timeout) == (None, "table", None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--format", "table"], "COMMAND"),
        (["frobnicate"], "frobnicate"),
        (["tpoic", "list"], "'tpoic' is not one of demo, broker, "),
        (["tpoic", "list"], "; did you mean 'topic'?"),
        (["topic", "descibe", "t"], "; did you mean 'describe'?"),
        (["topic", "list", "--fromat", "json"], "unrecognized arguments: --fromat json; did you mean '--format'?"),
        (["topic", "list", "--fromat=json"], "did you mean '--format'?"),
        (["topic", "list", "x"], "replog topic list: error: unrecognized arguments: x\n"),
        (["topic", "list", "--format", "jsn"], "'jsn' is not one of table, json; did you mean 'json'?"),
        (["produce", "t", "--acks", "al"], "--acks: 'al'; allowed are 0, 1, all"),
        (["topic", "lst"], "next: replog topic --help\n"),
        (["health", "--watch", "0"], "--watch: 0 s; allowed are 0.1 to 86400"),
        (["health", "--within", "0"], "--within: 0 s; allowed are 0.1 to 86400"),
        (["controller", "--watch", "0.09"], "--watch: 0.09 s; allowed are 0.1 to 86400"),
        (["reassign", "status", "--watch", "86401"], "--watch: 86401 s; allowed are 0.1 to 86400"),
        (["read", "t", "-e", "-f"], "-f/--follow: not allowed with argument -e/--exit"),
        (["topic"], "VERB"),
        (["read"], "topic"),
        (["produce", "t", "-k", ""], "-k/-K/--key-separator: '' is empty"),
        (["topic", "list", "-b", ""], "-b/--bootstrap: '' is empty"),
        (["read", "t", "--start", "soon"], "soon"),
        (["topic", "create", "t", "-c", "a=1", "-c", "a=2"], "a is given twice"),
        (["broker", "--id", "1"], "--listen"),
        (["broker"], "next: replog broker --help"),
        (["topic", "create", "t", "-c", "a=1", "-c", "a=2"], "next: replog topic create --help"),
        (["demo", "--records", "9" * 19], f"--records: {'9' * 19} is too many: at most 1000000"),
        (["demo", "--records", "1000001"], "1000001 is too many"),
        (["broker", "--id", "x", "--listen", "tcp://127.0.0.1:0", "--data", "d", "--store", "memory://"], "'x'"),
        (["--form", "json", "topic", "list"], "--form"),
        (["broker", "--id", "2147483648"], "--id: 2147483648 is too large: at most 2147483647"),
        (["broker", "--id", "1", "--store", "memory://"], "--store: 'memory://' is seen by this process alone"),
        (["broker", "--id", "1", "--store", "MEMORY://x"], "--store: 'MEMORY://x' is seen by this process alone"),
        (["broker", "--id", "1", "--store", ""], "--store: '' is empty"),
        (["broker", "--id", "1", "--data", ""], "--data: '' is empty"),
        (["broker", "--id", "1", "--listen", ""], "--listen: '' is empty"),
        (["broker", "--id", "1", "--rack", ""], "--rack: '' is empty"),
        (["broker", "--id", "1", "--rack", "r\udcff"], "--rack: rack 'r\\udcff' cannot be written in UTF-8"),
        (["broker", "--id", "1", "--rack", "r\x1b[2J"], "rack 'r\\x1b[2J' holds '\\x1b'; allowed are characters that can be printed"),
        (["broker", "--id", "1", "--rack", "r\nb"], "holds '\\n'"),
        (["broker", "--id", "1", "--rack", "r\u202eb"], "holds '\\u202e'"),
        (["topic", "create", ""], "topic: '' is empty"),
        (["topic", "describe", ""], "topic: '' is empty"),
        (["topic", "delete", ""], "topic: '' is empty"),
        (["read", ""], "topic: '' is empty"),
        (["produce", ""], "topic: '' is empty"),
        (["log", "verify", ""], "DIR: '' is empty"),
        (["log", "dump", "d", "--topic", ""], "--topic: '' is empty"),
    ],
)
def test_a_wrong_command_is_told_and_is_status_2(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert printed.out == ""


@pytest.mark.parametrize("words", [["--help"], ["read", "--help"], ["broker", "--help"], ["log", "verify", "--help"]])
def test_help_says_what_the_exit_status_means(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "exit status:" in printed
    assert "130  interrupted" in printed
    assert "stdout cannot be written (broker: it could not go on)" in printed


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("replog 0.")


def test_without_a_cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("REPLOG_BOOTSTRAP", raising=False)
    assert main(["topic", "list"]) == 2
    assert "--bootstrap" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("timeout", "delivery_ms", "request_ms"),
    [("4", 4_000, 4_000), (None, 30_000, 30_000), ("90", 90_000, 30_000), ("0", 1, 1), ("inf", 10**12, 30_000)],
)
def test_a_client_gives_up_when_the_command_does(timeout: str | None, delivery_ms: int, request_ms: int) -> None:
    words = ["-b", "127.0.0.1:1", "topic", "list", *(() if timeout is None else ("--timeout", timeout))]
    output = Output(io.BytesIO(), io.StringIO())
    with Context(make_parser().parse_args(words), output, io.BytesIO()).client() as client:
        config = client._core.config
    assert (config.delivery_timeout_ms, config.max_block_ms, config.request_timeout_ms) == (delivery_ms, delivery_ms, request_ms)


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (UsageError("x"), 2),
        (rejection(19), 3),
        (Unavailable("x"), 4),
        (TimedOut("x"), 4),
        (LogCorrupt("x"), 1),
        (ReplogError("x"), 1),
    ],
)
def test_each_kind_of_error_has_its_status(problem: ReplogError, status: int) -> None:
    assert exit_of(problem) == status
