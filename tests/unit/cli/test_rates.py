"""`replog top`: rates of two looks, and what cannot be said."""

from __future__ import annotations

import io
import json

import pytest
from tests.unit.cli.conftest import Run, run_with

import replog
from replog.cli import main
from replog.cli.rates import Look, Seen, rates
from replog.errors import TimedOut

UP = {1: "serving", 2: "serving", 3: "fenced"}


def look(time_s: float, *marks: int | None, leader: int | None = 1, topic: str = "t", topic_id: str = "id") -> Look:
    """One topic on brokers 1 and 2, of which everything but two records is committed."""
    return {
        (topic_id, n): Seen(topic, leader, (1, 2), mark, None if mark is None else mark + 2, time_s) for n, mark in enumerate(marks)
    }


def test_rates_of_topics_and_brokers() -> None:
    found = rates(look(10, 0, 100), look(14, 40, 200), UP)
    assert found["topics"] == [{"topic": "t", "partitions": 2, "records_per_s": 35.0, "uncommitted": 4}]
    assert found["brokers"] == [
        {"broker": 1, "state": "serving", "leads": 2, "replicas": 2, "records_per_s": 35.0, "uncommitted": 4},
        {"broker": 2, "state": "serving", "leads": 0, "replicas": 2, "records_per_s": 0.0, "uncommitted": 0},
        {"broker": 3, "state": "fenced", "leads": 0, "replicas": 0, "records_per_s": 0.0, "uncommitted": 0},
    ]


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
    assert table.lines[1].split() == ["orders", "2", "0.0", "0"]
    assert max(map(len, table.lines)) < 80


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


def test_once_fails_when_nobody_answers() -> None:
    class Nobody:
        def describe_cluster(self, *, timeout_s: float | None) -> object:
            raise TimedOut("nobody there")

    assert run_with(Nobody(), "top", "--once").status == 4  # type: ignore[arg-type]
