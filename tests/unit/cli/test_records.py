"""`replog produce` and `replog read`."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from tests.unit.cli.conftest import Run

import replog
from replog.cli import main
from replog.cli.records import chunks_of_lines, plain_record
from replog.errors import UsageError


@pytest.fixture
def topic(cluster: replog.Cluster) -> str:
    cluster.create_topic("t", partitions=2)
    return "t"


def test_lines_become_records(run: Run, topic: str) -> None:
    made = run("produce", topic, "--partition", "1", stdin=b"one\n\n\xff\x00\r\nlast without a newline")
    assert made.status == 0
    assert made.lines[0] == "4 records in t"
    assert made.lines[2].split() == ["1", "0", "3"]
    read = run("read", topic, "--format", "json").json_lines
    assert [r.get("value", r.get("value_base64")) for r in read] == ["one", "", "/wAN", "last without a newline"]
    assert {r["partition"] for r in read} == {1}


def test_keys_decide_the_partition(run: Run, topic: str, cluster: replog.Cluster) -> None:
    lines = b"".join(b"k%d:v:%d\n" % (n % 5, n) for n in range(50))
    made = run("produce", topic, "-k", ":", "--batch", "7", "--format", "json", stdin=lines)
    assert made.json["records"] == 50
    assert sum(p["last_offset"] - p["first_offset"] + 1 for p in made.json["partitions"]) == 50
    records = list(cluster.read(topic))
    by_key: dict[object, list[object]] = {}
    for record in records:
        by_key.setdefault((record.key, record.partition), []).append(record.value)
    assert len(by_key) == 5, "a key is in one partition"
    for (key, _), values in by_key.items():
        number = int(key[1:])
        assert values == [b"v:%d" % n for n in range(50) if n % 5 == number]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(run: Run, topic: str, cluster: replog.Cluster, acks: str) -> None:
    made = run("produce", topic, "-p", "0", "--acks", acks, "--format", "json", stdin=b"a\nb\n")
    offsets = [None, None] if acks == "0" else [0, 1]
    place = {"partition": 0, "first_offset": offsets[0], "last_offset": offsets[1]}
    assert made.json == {"topic": "t", "records": 2, "partitions": [place]}
    assert [r.text() for r in cluster.read(topic, partitions=[0])] == ["a", "b"]


def test_nothing_to_produce(run: Run, topic: str) -> None:
    assert run("produce", topic).stdout == "0 records in t\n"
    assert run("produce", topic, "--format", "json").json == {"topic": "t", "records": 0, "partitions": []}


@pytest.mark.parametrize("batch", ["1", "2", "3", "1000"])
def test_a_line_without_a_key_ends_it_and_the_lines_before_are_stored(run: Run, topic: str, cluster: replog.Cluster, batch: str) -> None:
    refused = run("produce", topic, "-k", "=", "--batch", batch, "--format", "json", stdin=b"a=1\nb=2\nc=3\nno key\ne=5\n")
    assert refused.status == 2
    assert "line 4 has no key: there is no '=' in it" in refused.stderr
    assert "replog: 3 records are stored\n" in refused.stderr
    assert (refused.json["records"], refused.json["unknown"]) == (3, 0)
    assert sorted((r.key, r.text()) for r in cluster.read(topic)) == [(b"a", "1"), (b"b", "2"), (b"c", "3")]


@pytest.mark.parametrize("batch", ["1", "3", "1000"])
@pytest.mark.parametrize("separator", [b"", b"="], ids=["values", "keys"])
def test_a_line_that_is_too_long_ends_it_and_the_lines_before_are_stored(
    run: Run, topic: str, cluster: replog.Cluster, batch: str, separator: bytes
) -> None:
    limit = replog.ClientConfig().max_record_bytes
    widest = b"k" + separator + b"v" * (limit - 1)
    lines = b"\n".join((b"a=1", b"b=2", widest, widest + b"v", b"e=5"))
    keys = ("-k", separator.decode()) if separator else ()
    refused = run("produce", topic, *keys, "--batch", batch, "--format", "json", stdin=lines)
    assert refused.status == 2
    assert f"line 4 is longer than {len(widest)} bytes, and no record may be" in refused.stderr
    assert (refused.json["records"], refused.json["unknown"]) == (3, 0)
    found = list(cluster.read(topic))
    assert len(found) == 3
    assert max(len(r.key or b"") + len(r.value or b"") for r in found) == limit


def test_the_count_is_told_although_it_is_0(run: Run, topic: str, cluster: replog.Cluster) -> None:
    refused = run("produce", topic, "-k", "=", "--format", "json", stdin=b"no key\na=1\n")
    assert (refused.status, refused.json["records"], refused.json["unknown"]) == (2, 0, 0)
    assert "line 1 has no key" in refused.stderr
    assert "replog: 0 records are stored\n" in refused.stderr
    assert list(cluster.read(topic)) == []


class Unread(io.BytesIO):
    """What is in it is for somebody else."""

    def read1(self, _count: int | None = -1) -> bytes:
        raise AssertionError("stdin was read")


def test_an_unknown_topic_is_refused_before_stdin_is_read(cluster: replog.Cluster) -> None:
    stderr = io.StringIO()
    assert main(["produce", "missing"], client=cluster, stdin=Unread(b"x\n"), stdout=io.BytesIO(), stderr=stderr) == 3
    cause, step = stderr.getvalue().splitlines()
    assert cause == "replog: unknown topic 'missing'; there are no topics yet"
    assert step == "next: replog topic list names the topics there are, replog topic create missing makes this one"


def test_the_nearest_topic_is_named(run: Run, topic: str, cluster: replog.Cluster) -> None:
    cluster.create_topic("orders")
    told = run("read", "oders").stderr.splitlines()[0]
    assert told == "replog: unknown topic 'oders'; known topics are orders, t; did you mean 'orders'?"
    assert "did you mean" not in run("read", "zzz").stderr
    assert "did you mean" not in run("read", "orders", "-p", "7").stderr


class Slow(io.RawIOBase):
    """Gives what each call is to give, as a pipe does."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts

    def read1(self, _count: int) -> bytes:
        return self.parts.pop(0) if self.parts else b""


def test_lines_do_not_wait_for_the_next_ones() -> None:
    stream = Slow([b"a\nb", b"b\n", b"c\nd\ne\nf\n", b"g"])
    chunks = chunks_of_lines(stream, 3, 100)  # type: ignore[arg-type]
    assert next(chunks) == (1, [b"a"])
    assert len(stream.parts) == 3, "nothing was read ahead"
    assert list(chunks) == [(2, [b"bb"]), (3, [b"c", b"d", b"e"]), (6, [b"f"]), (7, [b"g"])]


def test_a_line_without_an_end_is_refused_and_not_kept() -> None:
    stream = Slow([b"a\n", b"x" * 60, b"x" * 60, b"x" * 60])
    with pytest.raises(UsageError, match="line 2 is longer than 100 bytes"):
        list(chunks_of_lines(stream, 3, 100))  # type: ignore[arg-type]
    assert len(stream.parts) == 1


def test_the_lines_before_one_that_is_too_long_come_first() -> None:
    chunks = chunks_of_lines(Slow([b"a\nb\nc\n" + b"x" * 11 + b"\nd\n"]), 2, 10)  # type: ignore[arg-type]
    assert [next(chunks), next(chunks)] == [(1, [b"a", b"b"]), (3, [b"c"])]
    with pytest.raises(UsageError, match="line 4 is longer than 10 bytes"):
        next(chunks)


def test_read_shows_what_is_asked_for(run: Run, topic: str, cluster: replog.Cluster) -> None:
    cluster.append(topic, 0, [replog.Record("one", key="k"), replog.Record(None, key="gone"), "three"])
    cluster.append(topic, 1, ["four"])
    assert run("read", topic).stdout == "one\n\nthree\nfour\n"
    for keys in ("--keys", "-K"):
        assert run("read", topic, keys, "-e").stdout == "k\tone\ngone\t\n\tthree\n\tfour\n"
    assert run("read", topic, "--offsets").lines == ["0\t0\tone", "0\t1\t", "0\t2\tthree", "1\t0\tfour"]
    assert run("read", topic, "--offsets", "--keys", "-p", "1").lines == ["1\t0\t\tfour"]
    assert run("read", topic, "-p", "1", "-p", "0", "-n", "2").stdout == "one\n\n"
    assert run("read", topic, "-n", "0").stdout == ""
    assert run("read", topic, "-c", "1").stdout == "one\n"
    assert run("read", topic, "--start", "latest").stdout == ""
    assert run("read", topic, "-p", "0", "--start", "2").stdout == "three\n"


def read_bytes(cluster: replog.Cluster, *words: str) -> bytes:
    """What `read` writes, which need not be text."""
    stdout, stderr = io.BytesIO(), io.StringIO()
    assert main(["read", *words], client=cluster, stdin=io.BytesIO(), stdout=stdout, stderr=stderr) == 0, stderr.getvalue()
    return stdout.getvalue()


def test_raw_values_are_the_bytes_that_were_written(run: Run, topic: str, cluster: replog.Cluster) -> None:
    every_byte = bytes(range(256))
    cluster.append(topic, 0, [replog.Record(every_byte, key=b"k"), replog.Record(None), b"", b"end\n"])
    assert read_bytes(cluster, topic, "--raw") == every_byte + b"end\n"
    assert read_bytes(cluster, topic, "--raw", "--count", "1") == every_byte
    assert read_bytes(cluster, topic, "--raw", "-K", "--offsets", "--start", "3", "-p", "0") == b"0\t3\t\tend\n"
    assert read_bytes(cluster, topic, "--raw", "-K", "--offsets", "-c", "1") == b"0\t0\tk\t" + every_byte
    assert read_bytes(cluster, topic, "--raw", "--follow", "-c", "4", "-p", "0") == every_byte + b"end\n"


def test_raw_values_are_no_json(run: Run, topic: str) -> None:
    ran = run("read", topic, "--raw", "--format", "json")
    assert (ran.status, ran.json["error"]) == (2, "UsageError")
    assert "--raw prints bytes as they are, and --format json prints none" in ran.stderr


def test_read_from_a_time(run: Run, topic: str, cluster: replog.Cluster) -> None:
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    times = [int(at.timestamp() * 1_000) + n for n in (-1, 0, 1)]
    cluster.append(topic, 0, [replog.Record("before", timestamp_ms=times[0])])
    cluster.append(topic, 0, [replog.Record("then", timestamp_ms=times[1])])
    cluster.append(topic, 0, [replog.Record("after", timestamp_ms=times[2])])
    assert run("read", topic, "-p", "0", "--start", "2026-01-31T12:00:00Z").stdout == "then\nafter\n"


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("missing",), 3, "unknown topic 'missing'"),
        (("t", "-p", "7"), 3, "7"),
        (("t", "--start", "9"), 3, "offset 9"),
        (("t", "-p", "7", "--follow"), 3, "7"),
        (("missing", "--follow"), 3, "missing"),
    ],
)
def test_read_refused(run: Run, topic: str, words: tuple[str, ...], status: int, says: str) -> None:
    refused = run("read", *words)
    assert (refused.status, refused.stdout) == (status, "")
    assert says in refused.stderr


def test_follow_ends_after_the_count(run: Run, topic: str, cluster: replog.Cluster) -> None:
    cluster.append(topic, 0, ["a", "b", "c"])
    assert run("read", topic, "--follow", "-p", "0", "-n", "2").stdout == "a\nb\n"


def test_a_record_as_json() -> None:
    plain = plain_record(
        replog.Record(b"\xff", key="ä", headers=[("h", b"1"), ("b", b"\xfe")], timestamp_ms=5)
    )
    assert (plain["value_base64"], plain["key"], plain["timestamp_ms"]) == ("/w==", "ä", 5)
    assert plain["headers"] == [{"name": "h", "value": "1"}, {"name": "b", "value_base64": "/g=="}]
    assert "value" not in plain
