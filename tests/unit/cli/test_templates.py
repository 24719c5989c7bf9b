"""`replog read --template`: what is printed of a record, and which templates there are not."""

from __future__ import annotations

import argparse
import io

import pytest
from tests.unit.cli.conftest import run_with

import replog
from replog.cli import main
from replog.cli.templates import FIELDS, template


def record(**changes: object) -> replog.Record:
    made = replog.Record(b"v\xff", key="k", headers=[("a", "1"), ("b", b"\xfe")], timestamp_ms=1_769_860_800_042)
    made.topic, made.partition, made.offset, made.leader_epoch = "orders", 2, 17, 5
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"{partition} {offset} {key} {value}\n", b"2 17 k v\xff\n"),
        ("{topic}-{partition}@{offset}", b"orders-2@17"),
        ("{timestamp_ms} {time} {leader_epoch}", b"1769860800042 2026-01-31T12:00:00.042Z 5"),
        ("{key_bytes} {value_bytes}", b"1 2"),
        ("{headers}", b"a=1,b=\xfe"),
        ("{key:hex} {value:base64} {headers:hex}", b"6b dv8= a=31,b=fe"),
        (r"\t\r\0\\\x41\xff", b"\t\r\0\\A\xff"),
        ('{{"offset": {offset}}}', b'{"offset": 17}'),
        ("{{{{offset}}}}", b"{{offset}}"),
        ("{{{offset}}}", b"{17}"),
        ("é\udcff", b"\xc3\xa9\xff"),
        (r"\x414", b"A4"),
    ],
)
def test_what_is_printed(text: str, printed: bytes) -> None:
    assert template(text)(record()) == printed


def test_what_is_not_there_is_empty_and_its_length_says_so() -> None:
    empty = template("[{key}][{value:hex}] {key_bytes} {value_bytes}")
    assert empty(record(key=None, value=None)) == b"[][] -1 -1"
    assert empty(record(key=b"", value=b"")) == b"[][] 0 0"
    assert template("[{headers}]")(replog.Record("x")) == b"[]"


@pytest.mark.parametrize(("ms", "printed"), [(0, b"1970-01-01T00:00:00.000Z"), (2**62, str(2**62).encode())])
def test_times_that_no_calendar_has_stay_numbers(ms: int, printed: bytes) -> None:
    assert template("{time}")(record(timestamp_ms=ms)) == printed


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is empty: at least one character"),
        ("{ofset}", f"unknown field 'ofset'; known are {', '.join(FIELDS)}; did you mean 'offset'?"),
        ("{}", "unknown field ''; known are topic, "),
        ("{offset }", "unknown field 'offset '; known are topic, "),
        ("{value:b64}", "unknown form 'b64'; known are base64, hex; did you mean 'base64'?"),
        ("{value:}", "unknown form ''; known are base64, hex"),
        ("{offset:hex}", "'offset:hex': only key, value, headers have a form, and offset has none"),
        ("a{", "a single '{' at position 1: fields are {NAME}, and a brace is typed twice"),
        ("{offset}}", "a single '}' at position 8"),
        ("{a{b}", "a single '{' at position 0"),
        (r"\q", r"'\\q' is no escape; known are \n, \r, \t, \0, \\ and \xHH"),
        ("\\", r"'\\' is no escape"),
        (r"\x4", r"'\\x' is no escape"),
    ],
)
def test_what_is_no_template_is_refused_before_anything_is_read(text: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        template(text)
    assert says in str(refused.value)
    assert main(["read", "t", "--template", text]) == 2, "no cluster was named, and none is looked for"
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("other", [("--format", "json"), ("--raw",), ("--keys",), ("--offsets",)])
def test_what_goes_with_no_template(other: tuple[str, ...]) -> None:
    refused = run_with(None, "read", "t", "--template", "{value}", *other)
    assert refused.status == 2
    assert f"--template says all of how a record is printed: leave out {' '.join(other)}, or the template\n" in refused.stderr


def test_records_are_printed_like_this_with_nothing_between_them(cluster: replog.Cluster) -> None:
    cluster.create_topic("t")
    cluster.append("t", 0, [replog.Record("one", key="k"), replog.Record(b"\xff\n"), replog.Record(None)])
    for more in ((), ("--follow", "--count", "3")):
        stdout = io.BytesIO()
        words = ["read", "t", "--template", r"{offset}:{key}={value_bytes}:{value};", *more]
        assert main(words, client=cluster, stdin=io.BytesIO(), stdout=stdout, stderr=io.StringIO()) == 0
        assert stdout.getvalue() == b"0:k=3:one;1:=2:\xff\n;2:=-1:;"
