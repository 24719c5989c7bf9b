"""`replog top`: rates of two looks, and what cannot be said."""

from __future__ import annotations

import io
import json

import pytest
from tests.unit.cli.conftest import Run, run_with

import replog
from replog.cli import main
from replog.cli.output import Output
from replog.cli.pages import Counted, Counts
from replog.cli.rates import Look, Seen, rates
from replog.errors import TimedOut
from replog.status import source

UP = {1: "serving", 2: "serving", 3: "fenced"}


def look(time_s: float, *marks: int | None, leader: int | None = 1, topic: str = "t", topic_id: str = "id") -> Look:
    """One topic on brokers 1 and 2, of which everything but two records is committed."""
    return {
        (topic_id, n): Seen(topic, leader, (1, 2), (1, 2), mark, None if mark is None else mark + 2, time_s, {2: 5 + n})
        for n, mark in enumerate(marks)
    }


def test_rates_of_topics_and_brokers() -> None:
    found = rates(look(10, 0, 100), look(14, 40, 200), UP)
    assert found["under_replicated"] == []
    same = {"under_replicated": 0, "bytes_per_s": None}
    assert found["topics"] == [{"topic": "t", "partitions": 2, "records_per_s": 35.0, "uncommitted": 4, "lag_records": 6, **same}]
    assert found["brokers"] == [
        {"broker": 1, "state": "serving", "leads": 2, "replicas": 2, "records_per_s": 35.0, "uncommitted": 4, "lag_records": 0, **same},
        {"broker": 2, "state": "serving", "leads": 0, "replicas": 2, "records_per_s": 0.0, "uncommitted": 0, "lag_records": 6, **same},
        {"broker": 3, "state": "fenced", "leads": 0, "replicas": 0, "records_per_s": 0.0, "uncommitted": 0, "lag_records": 0, **same},
    ]


def test_of_whom_nobody_says_how_far_it_is_nothing_is_said() -> None:
    told = {place: seen._replace(lags={}) for place, seen in look(1, 5).items()}
    found = rates({}, told, UP)
    assert found["topics"][0]["lag_records"] is None
    assert {row["broker"]: row["lag_records"] for row in found["brokers"]} == {1: 0, 2: None, 3: 0}
    one, other = look(1, 5, 5)
    half = {**look(1, 5, 5), one: look(1, 5, 5)[one]._replace(lags={})}
    assert rates({}, half, UP)["topics"][0]["lag_records"] is None, "who is away may lack the most"
    assert rates({}, {other: half[other]}, UP)["topics"][0]["lag_records"] == 6
    alone = {place: seen._replace(replicas=(1,), isr=(1,), lags={}) for place, seen in look(1, 5).items()}
    assert rates({}, alone, UP)["topics"][0]["lag_records"] == 0


def test_what_is_under_replicated_comes_first_and_is_named() -> None:
    busy = look(1, 900, topic="a", topic_id="1")
    quiet = {place: seen._replace(isr=(2,)) for place, seen in look(1, 0, 0, topic="z", topic_id="2").items()}
    quiet["2", 0] = quiet["2", 0]._replace(isr=(1, 2))
    found = rates(look(0, 0, topic="a", topic_id="1"), busy | quiet, UP)
    assert [(row["topic"], row["under_replicated"]) for row in found["topics"]] == [("z", 1), ("a", 0)]
    assert found["under_replicated"] == [{"topic": "z", "partition": 1, "missing": [1]}]
    assert {row["broker"]: row["under_replicated"] for row in found["brokers"]} == {1: 1, 2: 0, 3: 0}


def pages(time_s: float, **bytes_in: float) -> dict[int, Counted]:
    """What brokers 1 and 2 have counted; 1 by topic, 2 nothing."""
    return {1: Counted(time_s, bytes_in), 2: Counted(time_s, {})}


def test_bytes_are_those_that_the_pages_have_counted() -> None:
    before, now = look(0, 0) | look(0, 0, topic="u", topic_id="u"), look(1, 0) | look(1, 0, topic="u", topic_id="u")
    found = rates(before, now, UP, (pages(10, t=100), pages(12, t=700, w=50)))
    assert {row["topic"]: row["bytes_per_s"] for row in found["topics"]} == {"t": 300.0, "u": 0.0}
    assert {row["broker"]: row["bytes_per_s"] for row in found["brokers"]} == {1: 325.0, 2: 0.0, 3: None}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({}, pages(12, t=700)),
        (pages(10, t=700), {}),
        (pages(10, t=700), pages(12, t=699)),
        (pages(10, t=700), pages(12)),
        (pages(12, t=100), pages(12, t=700)),
    ],
)
def test_where_nothing_can_be_said_of_bytes(before: Counts, now: Counts) -> None:
    """Not seen before, not seen now, started anew (twice), and no time."""
    found = rates(look(0, 0), look(1, 0), UP, (before, now))
    assert found["topics"][0]["bytes_per_s"] is None
    assert found["brokers"][0]["bytes_per_s"] is None


def test_the_busiest_come_first() -> None:
    before = look(0, 0, topic="a", topic_id="1") | look(0, 0, topic="b", topic_id="2") | look(0, 0, topic="c", topic_id="3")
    now = look(1, 1, topic="a", topic_id="1") | look(1, 9, topic="b", topic_id="2", leader=2) | look(1, 1, topic="c", topic_id="3")
    found = rates(before, now, UP)
    assert [row["topic"] for row in found["topics"]] == ["b", "a", "c"]
    assert [row["broker"] for row in found["brokers"]] == [2, 1, 3]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (look(0, 5, topic_id="other"), look(1, 50)),
        (look(0, None), look(1, 50)),
        (look(0, 5), look(1, None)),
        (look(0, 50), look(1, 5)),
        (look(1, 5), look(1, 50)),
    ],
)
def test_where_nothing_can_be_said(before: Look, now: Look) -> None:
    """Made again, nobody answers, taken back by an unclean election, and no time."""
    assert rates(before, now, UP)["topics"][0]["records_per_s"] is None


def test_what_is_known_counts_beside_what_is_not() -> None:
    assert rates(look(0, 5, None), look(1, 50, 7), UP)["topics"][0]["records_per_s"] == 45.0


def test_once(run: Run, cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("orders", assignment={0: [1, 2], 1: [2, 1]})

    def meanwhile(_self: object, _timeout: float | None = None) -> bool:
        cluster.append("orders", 1, ["a", "b", "c"])
        return False

    with monkeypatch.context() as patched:
        patched.setattr("threading.Event.wait", meanwhile)
        plain = run("top", "--once", "--interval", "0.1", "--format", "json").json
    assert plain["interval_s"] == 0.1
    assert [row["topic"] for row in plain["topics"]] == ["orders"]
    assert plain["topics"][0]["records_per_s"] > 0
    assert {row["broker"]: row["records_per_s"] > 0 for row in plain["brokers"]} == {1: False, 2: True, 3: False}
    table = run("top", "--once", "--interval", "0.1")
    assert table.lines[1].split() == ["orders", "2", "0", "0.0", "0", "0"]
    assert max(map(len, table.lines)) < 80


def test_a_broker_that_is_away_is_seen_first(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("busy", assignment={0: [1, 2]})
    cluster.create_topic("orders", assignment={n: [1, 3] for n in range(7)}, min_isr=1)
    cluster.append("orders", 0, ["before"])
    cluster.kill_broker(3)
    cluster.append("orders", 0, ["after"] * 9)
    plain = run("top", "--once", "--interval", "0.1", "--format", "json").json
    assert [(one["topic"], one["missing"]) for one in plain["under_replicated"]] == [("orders", [3])] * 7
    assert [row["topic"] for row in plain["topics"]] == ["orders", "busy"]
    assert plain["topics"][0]["lag_records"] == 9
    first, _, row = run("top", "--once", "--interval", "0.1").lines[:3]
    assert first == f"7 under-replicated: {', '.join(f'orders-{n} lacks 3' for n in range(5))}, ..."
    assert row.split() == ["orders", "7", "7", "0.0", "0", "9"]


def test_bytes_are_shown_of_pages(run: Run, cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("orders", assignment={0: [1, 2], 1: [2, 1]})

    def meanwhile(_self: Output, _seconds: float) -> None:
        cluster.append("orders", 1, ["x" * 1_000] * 1_000)

    monkeypatch.setattr(source, "FRESH_S", 0.0)
    with cluster.serve_status() as page:
        with monkeypatch.context() as patched:
            patched.setattr(Output, "rest", meanwhile)
            plain = run("top", page.url, "--once", "--interval", "0.1", "--format", "json").json
            busy, numbers = (run("top", page.url, "--once", "--interval", "0.1", *raw).lines[1].split() for raw in ((), ("--raw",)))
        table = run("top", page.url, "--once", "--interval", "0.1")
        monkeypatch.setattr(source, "FRESH_S", 3_600.0)
        stale = run("top", page.url, "--once", "--interval", "0.1", "--format", "json").json
    assert plain["topics"][0]["bytes_per_s"] > 0
    assert {row["broker"]: row["bytes_per_s"] > 0 for row in plain["brokers"]} == {1: False, 2: True, 3: False}
    assert busy[5] in ("KiB", "MiB", "GiB"), "a million bytes in less than a thousand seconds"
    assert float(numbers[4]) > 1024
    assert len(busy) == len(numbers) + 1
    assert table.lines[0].split() == ["topic", "partitions", "under-repl.", "records/s", "bytes/s", "uncommitted", "lag"]
    assert table.lines[1].split() == ["orders", "2", "0", "0.0", "0.0", "0", "0"]
    assert max(map(len, table.lines)) < 80
    assert stale["topics"][0]["bytes_per_s"] is None  # the same numbers twice say nothing


def test_a_page_that_does_not_answer(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("t")
    with cluster.serve_status() as there:
        with cluster.serve_status() as page:
            gone = page.url
        once = run("top", gone, there.url, "--once", "--interval", "0.1")
        told = run("top", gone, there.url, "--once", "--interval", "0.1", "--format", "json")
    assert (once.status, once.lines[1].split()[:2]) == (4, ["t", "1"]), "what is known is shown"
    assert once.stderr.count("does not answer") == 1
    assert f"{gone}metrics?format=json does not answer" in once.stderr
    found, problem = told.json_lines
    assert (told.status, found["topics"][0]["topic"], problem["status"]) == (4, "t", 4)
    assert run("top", "127.0.0.1:8101", "--once").status == 2


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"replog_leaders": 7}', b'{"replog_bytes_in_total": [{"labels": {"broker": "x"}}]}'])
def test_a_page_that_is_none_of_a_broker(run: Run, cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    monkeypatch.setattr("replog.cli.pages.fetched", lambda *_, **__: (body, "7"))
    ran = run("top", "http://127.0.0.1:1", "--once", "--interval", "0.1")
    assert (ran.status, ran.lines[0].split()[:2]) == (4, ["broker", "state"])
    assert "http://127.0.0.1:1 is not the status page of a broker" in ran.stderr
    monkeypatch.setattr("replog.cli.pages.fetched", lambda *_, **__: (b"{}", ""))
    assert run("top", "http://127.0.0.1:1", "--once", "--interval", "0.1").status == 4, "it does not say when that was"


def test_while_it_goes_on_a_page_that_does_not_answer_is_told_of(cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("t")
    with cluster.serve_status() as page:
        url = page.url
    looks = [None, None, KeyboardInterrupt()]
    describe = cluster.describe_cluster

    def scripted(*, timeout_s: float | None) -> object:
        if (now := looks.pop(0)) is not None:
            raise now
        return describe(timeout_s=timeout_s)

    monkeypatch.setattr(cluster, "describe_cluster", scripted)
    stdout, stderr = io.BytesIO(), io.StringIO()
    assert main(["top", url, "--interval", "0.1", "--format", "json"], client=cluster, stdout=stdout, stderr=stderr) == 130
    assert stderr.getvalue().count("does not answer") == 2
    assert json.loads(stdout.getvalue())["topics"][0]["bytes_per_s"] is None


def test_without_topics_the_brokers_are_told(run: Run) -> None:
    assert [line.split()[:2] for line in run("top", "--once", "--interval", "0.1").lines] == [
        ["broker", "state"], ["1", "serving"], ["2", "serving"], ["3", "serving"]
    ]  # fmt: skip


def test_it_goes_on_when_nobody_answers_for_a_while(cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("t")
    looks: list[object] = [None, None, TimedOut("nobody there"), None, None, KeyboardInterrupt()]
    describe = cluster.describe_cluster

    def scripted(*, timeout_s: float | None) -> object:
        now = looks.pop(0)
        if isinstance(now, BaseException):
            raise now
        return describe(timeout_s=timeout_s)

    monkeypatch.setattr(cluster, "describe_cluster", scripted)
    stdout, stderr = io.BytesIO(), io.StringIO()
    assert main(["top", "--interval", "0.1", "--format", "json"], client=cluster, stdout=stdout, stderr=stderr) == 130
    assert stderr.getvalue() == "replog: nobody answers: nobody there\n"
    told = [json.loads(line)["topics"][0]["records_per_s"] for line in stdout.getvalue().splitlines()]
    assert told == [0.0, None, 0.0], "what was not seen in between gives no rate"


class Nobody:
    """A cluster that does not answer, and what it was given to do so; at last somebody has seen enough."""

    def __init__(self) -> None:
        self.given: list[float | None] = []

    def describe_cluster(self, *, timeout_s: float | None) -> object:
        self.given.append(timeout_s)
        if len(self.given) > 1:
            raise KeyboardInterrupt
        raise TimedOut("nobody there")


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ((), 6),  # one that hangs is left after 3 s
        (("--interval", "60"), 60),
        (("--once",), 30),
        (("--once", "--interval", "0.1"), 30),
        (("--once", "--timeout", "0.5"), 0.5),
        (("--interval", "0.1", "--timeout", "0.5"), 0.5),
    ],
)
def test_another_broker_can_be_asked_while_one_hangs(words: tuple[str, ...], seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = Nobody()
    monkeypatch.setattr("threading.Event.wait", lambda *_: False)
    run_with(nobody, "top", *words)  # type: ignore[arg-type]
    assert set(nobody.given) == {seconds}


def test_once_fails_when_nobody_answers() -> None:
    assert run_with(Nobody(), "top", "--once").status == 4  # type: ignore[arg-type]
