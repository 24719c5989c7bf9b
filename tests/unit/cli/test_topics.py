"""`replog topic`: both formats, and what is refused."""

from __future__ import annotations

import io

import pytest
from tests.unit.cli.conftest import Run

import replog
from replog.cli import main


def test_create_describe_list_delete(run: Run) -> None:
    made = run("topic", "create", "orders", "-p", "2", "-r", "3", "-c", "min_isr=2", "-c", "retention_ms=60000")
    assert made.status == 0
    assert made.lines[0] == "orders (2 partitions, min_isr=2, retention_ms=60000 (1 min))"
    assert made.lines[1].split() == ["partition", "leader", "epoch", "replicas", "ISR", "ELR", "start", "HW", "LEO"]
    assert made.lines[2].split() == ["0", "1", "0", "1,2,3", "1,2,3", "-", "0", "0", "0"]
    assert run("topic", "describe", "orders").stdout == made.stdout

    listed = run("topic", "list")
    assert [line.split() for line in listed.lines][1:] == [["orders", "2", "3", "0", "0"]]

    gone = run("topic", "delete", "orders", "--yes")
    assert (gone.status, gone.stdout) == (0, "deleted topic orders\n")
    none = run("topic", "list")
    assert (none.status, none.stdout, none.stderr) == (0, "", "there are no topics\n")


def test_json(run: Run, cluster: replog.Cluster) -> None:
    made = run("topic", "create", "orders", "--format", "json")
    assert made.json == cluster.describe("orders").to_dict()
    assert run("topic", "describe", "orders", "--format", "json").json == made.json
    row = {"topic": "orders", "partitions": 1, "replicas": 3, "under_replicated": 0, "leaderless": 0}
    assert run("topic", "list", "--format", "json").json == [row]
    cluster.kill_broker(3)
    assert run("topic", "list", "--format", "json").json == [{**row, "under_replicated": 1}]
    assert run("topic", "delete", "orders", "--yes", "--format", "json").json == {"topic": "orders", "deleted": True}
    assert run("topic", "list", "--format", "json").json == []


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("create", "there"), 3, "exists"),
        (("create", "a b"), 2, "' '"),
        (("create", "t", "-r", "4"), 3, "4"),
        (("create", "t", "-c", "retention=1"), 2, "retention"),
        (("create", "t", "-c", "min_isr=many"), 2, "many"),
        (("describe", "missing"), 3, "unknown topic 'missing'; known topics are there"),
        (("delete", "missing", "--yes"), 3, "missing"),
        (("delete", "missing", "--dry-run"), 3, "missing"),
    ],
)
def test_refused(run: Run, words: tuple[str, ...], status: int, says: str) -> None:
    run("topic", "create", "there")
    refused = run("topic", *words)
    assert refused.status == status
    assert refused.stdout == ""
    assert refused.stderr.startswith("replog: ")
    assert says in refused.stderr


def test_exist_ok_leaves_a_topic_as_it_is(run: Run) -> None:
    made = run("topic", "create", "there", "-p", "2")
    again = run("topic", "create", "there", "-p", "5", "--exist-ok")
    assert (again.status, again.stdout) == (0, made.stdout)


def test_a_dry_run_deletes_nothing(run: Run, cluster: replog.Cluster) -> None:
    run("topic", "create", "orders", "-p", "2")
    cluster.append("orders", 1, ["x", "y"])
    assert run("topic", "delete", "orders", "--dry-run").stdout == "would delete topic orders: 2 partitions, 2 records\n"
    plain = {"topic": "orders", "partitions": 2, "records": 2, "records_at_least": 2, "unknown": [], "deleted": False}
    assert run("topic", "delete", "orders", "--dry-run", "--format", "json").json == plain
    assert cluster.topics() == ["orders"]


@pytest.mark.parametrize("more", [(), ("--format", "json")])
def test_where_no_terminal_can_be_asked_nothing_is_deleted_without_yes(run: Run, cluster: replog.Cluster, more: tuple[str, ...]) -> None:
    cluster.create_topic("orders")
    refused = run("topic", "delete", "orders", *more, stdin=b"orders\n")
    assert refused.status == 2
    assert refused.stderr == (
        "replog: topic orders would be deleted with all its records, for good: where no terminal can be asked it takes --yes; "
        "--dry-run says how many\n"
    )
    assert cluster.topics() == ["orders"]
    assert run("topic", "delete", "orders", "--yes", "--dry-run").status == 0
    assert cluster.topics() == ["orders"], "a dry run is one, whatever else is said"


class Terminal(io.BytesIO):
    """A person."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("words", "typed", "status"), [((), b"orders\n", 0), ((), b"yes\n", 2), ((), b"", 2), (("--yes",), b"", 0)])
def test_a_person_is_asked(cluster: replog.Cluster, words: tuple[str, ...], typed: bytes, status: int) -> None:
    cluster.create_topic("orders")
    stderr = io.StringIO()
    ended = main(["topic", "delete", "orders", *words], client=cluster, stdin=Terminal(typed), stdout=io.BytesIO(), stderr=stderr)
    assert ended == status
    assert cluster.topics() == ([] if status == 0 else ["orders"])
    assert ("0 records? Type the name" in stderr.getvalue()) == (not words)


def test_all_topics_are_described_where_none_is_named(run: Run) -> None:
    none = run("topic", "describe")
    assert (none.status, none.stdout, none.stderr) == (0, "", "there are no topics\n")
    one, two = (run("topic", "create", name, "-p", count).stdout for name, count in (("a", "1"), ("b", "2")))
    assert run("topic", "describe").stdout == f"{one}\n{two}"
    assert [topic["topic"] for topic in run("topic", "describe", "--format", "json").json] == ["a", "b"]


@pytest.mark.parametrize(
    ("option", "down", "listed"),
    [
        ("--under-replicated", (3,), ["three-0", "three-1"]),
        ("--under-replicated", (), []),
        ("--at-min-isr", (3,), ["one-0", "three-0", "three-1"]),
        ("--at-min-isr", (), ["one-0"]),
        ("--at-min-isr", (2, 3), ["one-0"]),
        ("--under-min-isr", (3,), []),
        ("--under-min-isr", (2, 3), ["three-0", "three-1"]),
        ("--unavailable", (1,), ["one-0"]),
        ("--leaderless", (1,), ["one-0"]),
        ("--unavailable", (3,), []),
    ],
)
def test_partitions_in_trouble(run: Run, cluster: replog.Cluster, option: str, down: tuple[int, ...], listed: list[str]) -> None:
    cluster.create_topic("one", assignment={0: [1]})
    cluster.create_topic("three", partitions=2, min_isr=2)
    for broker in down:
        cluster.kill_broker(broker)
    asked = run("topic", "describe", option, "--format", "json")
    assert asked.status == 0
    assert [f"{topic['topic']}-{p['partition']}" for topic in asked.json for p in topic["partitions"]] == listed
    within = [name for name in listed if name.startswith("three")]
    plain = run("topic", "describe", "three", option, "--format", "json").json
    assert [f"three-{p['partition']}" for p in plain["partitions"]] == within, "one topic is one object, whatever is left of it"
    table = run("topic", "describe", option)
    assert (table.stdout == "", table.stderr.startswith("no partition with")) == (not listed, not listed)


def test_some_partitions_say_of_how_many(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("t", assignment={0: [1, 2], 1: [2, 3], 2: [1, 3]}, min_isr=1)
    cluster.kill_broker(3)
    lacking = run("topic", "describe", "t", "--under-replicated")
    assert (lacking.lines[0], [line.split()[0] for line in lacking.lines[2:]]) == ("t (2 of 3 partitions, min_isr=1)", ["1", "2"])
    both = run("topic", "describe", "t", "--under-replicated", "--unavailable")
    assert both.lines == lacking.lines, "any of them"


def test_what_is_well_again_when_it_is_described_is_not_shown(run: Run, cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("t")
    monkeypatch.setattr("replog.cli.topics._with_some", lambda context, client, kinds: ["t", "deleted"])
    assert run("topic", "describe", "--under-replicated", "--format", "json").json == []
    assert [topic["topic"] for topic in run("topic", "describe", "--format", "json").json] == ["t"]
