"""`replog topic alter|add-partitions|remove-partitions`: both formats, and what is refused."""

from __future__ import annotations

import io

import pytest
from tests.unit.cli.conftest import Run

import replog
from replog.cli import main


def test_a_topic_is_altered_and_shown(run: Run) -> None:
    run("topic", "create", "orders", "-c", "min_isr=2", "-c", "retention_ms=60000")
    altered = run("topic", "alter", "orders", "min-isr=1", "retention_ms=none", "flush=ack")
    assert (altered.status, altered.lines[0]) == (0, "orders (1 partition, flush=ack, min_isr=1)")
    assert run("topic", "alter", "orders", "min_isr=2", "--format", "json").json["config"] == {"flush": "ack", "min_isr": 2}


def test_partitions_come_and_go(run: Run, cluster: replog.Cluster) -> None:
    run("topic", "create", "orders")
    more = run("topic", "add-partitions", "orders", "3")
    assert (more.status, more.lines[0].split(",")[0]) == (0, "orders (3 partitions")
    assert [line.split()[0] for line in more.lines[2:]] == ["0", "1", "2"]
    assert len(run("topic", "add-partitions", "orders", "4", "--format", "json").json["partitions"]) == 4
    cluster.append("orders", 3, ["x", "y"])
    assert run("topic", "remove-partitions", "orders", "3", "2", "--dry-run").stdout == (
        "would remove 2 of 4 partitions of topic orders, 2 records\n"
    )
    plain = {"topic": "orders", "partitions": [3], "records": 2, "records_at_least": 2, "unknown": [], "removed": False}
    assert run("topic", "remove-partitions", "orders", "3", "--dry-run", "--format", "json").json == plain
    assert cluster.partitions_for("orders") == [0, 1, 2, 3]
    gone = run("topic", "remove-partitions", "orders", "3", "2", "--yes")
    assert (gone.status, gone.stdout) == (0, "removed orders-2, orders-3\n")
    done = {"topic": "orders", "partitions": [1], "removed": True}
    assert run("topic", "remove-partitions", "orders", "1", "--yes", "--format", "json").json == done
    assert cluster.partitions_for("orders") == [0]


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("alter", "there", "retention=1"), 2, "retention"),
        (("alter", "there", "min_isr=9"), 3, "min_isr is 9; allowed are 1 to 3"),
        (("alter", "missing", "min_isr=1"), 3, "missing"),
        (("add-partitions", "there", "1"), 3, "total is 1; topic 'there' has 2"),
        (("add-partitions", "missing", "1"), 3, "missing"),
        (("remove-partitions", "there", "0", "1", "--yes"), 3, "the last one goes only with its topic"),
        (("remove-partitions", "there", "0", "--yes"), 3, "that is 1 here, not 0"),
        (("remove-partitions", "there", "7", "--yes"), 3, "no partition 7; it has 2"),
        (("remove-partitions", "missing", "0", "--yes"), 3, "missing"),
    ],
)
def test_refused(run: Run, words: tuple[str, ...], status: int, says: str) -> None:
    run("topic", "create", "there", "-p", "2")
    refused = run("topic", *words)
    assert (refused.status, refused.stdout) == (status, "")
    assert refused.stderr.startswith("replog: ")
    assert says in refused.stderr


@pytest.mark.parametrize("numbers", [("0", "1", "2"), ("0",), ("0", "2"), ("7",), ("2", "7")])
def test_a_dry_run_refuses_what_would_be_refused(run: Run, cluster: replog.Cluster, numbers: tuple[str, ...]) -> None:
    run("topic", "create", "orders", "-p", "3")
    dry = run("topic", "remove-partitions", "orders", *numbers, "--dry-run")
    assert (dry.status, dry.stdout) == (3, "")
    assert dry == run("topic", "remove-partitions", "orders", *numbers, "--yes"), "in the same words"
    words = ("topic", "remove-partitions", "missing", "0")
    assert run(*words, "--dry-run") == run(*words, "--yes")
    stderr = io.StringIO()
    asked = ["topic", "remove-partitions", "orders", *numbers]
    assert main(asked, client=cluster, stdin=Terminal(b"orders\n"), stdout=io.BytesIO(), stderr=stderr) == 3
    assert stderr.getvalue() == dry.stderr, "nobody is asked about it"


def test_what_is_not_known_of_what_goes_is_said(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("orders", assignment={0: [1], 1: [1], 2: [2]})
    cluster.append("orders", 1, ["x", "y"])
    cluster.append("orders", 2, ["z"])
    cluster.kill_broker(2)
    dry = run("topic", "remove-partitions", "orders", "2", "1", "--dry-run")
    assert dry.stdout == "would remove 2 of 3 partitions of topic orders, at least 2 records; nothing is known of 1 partition\n"
    plain = run("topic", "remove-partitions", "orders", "2", "1", "--dry-run", "--format", "json").json
    assert (plain["records"], plain["records_at_least"], plain["unknown"]) == (None, 2, [2])
    whole = run("topic", "delete", "orders", "--dry-run")
    assert whole.stdout == "would delete topic orders: 3 partitions, at least 2 records; nothing is known of 1 partition\n"
    plain = run("topic", "delete", "orders", "--dry-run", "--format", "json").json
    assert (plain["records"], plain["records_at_least"], plain["unknown"]) == (None, 2, [2])
    stderr = io.StringIO()
    assert main(["topic", "delete", "orders"], client=cluster, stdin=Terminal(b"\n"), stdout=io.BytesIO(), stderr=stderr) == 2
    assert "3 partitions, at least 2 records; nothing is known of 1 partition? Type the name" in stderr.getvalue()


@pytest.mark.parametrize("words", [("alter", "t"), ("alter", "t", "x"), ("alter", "t", "a=1", "a=2"), ("add-partitions", "t", "0")])
def test_what_cannot_be_typed(run: Run, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("topic", *words).status == 2


def test_where_no_terminal_can_be_asked_nothing_is_removed_without_yes(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("orders", partitions=2)
    refused = run("topic", "remove-partitions", "orders", "1", stdin=b"orders\n")
    assert (refused.status, refused.stdout) == (2, "")
    assert "where no terminal can be asked it takes --yes; --dry-run says how many\n" in refused.stderr
    assert cluster.partitions_for("orders") == [0, 1]


class Terminal(io.BytesIO):
    """A person."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("words", "typed", "status"), [((), b"orders\n", 0), ((), b"yes\n", 2), ((), b"", 2), (("--yes",), b"", 0)])
def test_a_person_is_asked(cluster: replog.Cluster, words: tuple[str, ...], typed: bytes, status: int) -> None:
    cluster.create_topic("orders", partitions=2)
    stderr = io.StringIO()
    asked = ["topic", "remove-partitions", "orders", "1", *words]
    assert main(asked, client=cluster, stdin=Terminal(typed), stdout=io.BytesIO(), stderr=stderr) == status
    assert cluster.partitions_for("orders") == ([0] if status == 0 else [0, 1])
    assert ("0 records? Type the name" in stderr.getvalue()) == (not words)
