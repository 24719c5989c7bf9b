"""`replog reassign`: a plan is made, carried out, looked at, and taken back."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Run

import replog
from replog.cli.moving import bar
from replog.testing.eventually import eventually


def plan_of(*partitions: tuple[str, int, list[int]]) -> str:
    return json.dumps({"partitions": [{"topic": t, "partition": n, "replicas": r} for t, n, r in partitions]})


def test_a_plan_is_made_and_carried_out(run: Run, cluster: replog.Cluster, tmp_path: Path) -> None:
    cluster.create_topic("t", assignment={n: [1, 2] for n in range(3)})
    made = run("reassign", "generate", "--brokers", "1", "2", "3")
    assert made.status == 0
    assert "3 partitions change" in made.stderr or "2 of 3 partitions change; 2 replicas would be copied" in made.stderr
    assert all(len(set(one["replicas"])) == 2 for one in made.json["partitions"])
    path = tmp_path / "plan.json"
    path.write_text(made.stdout)
    assert run("reassign", "execute", str(path), "--watch").lines[-1] == "nothing is being reassigned"
    wanted = {one["partition"]: tuple(one["replicas"]) for one in made.json["partitions"]}
    assert {p.partition: p.replicas for p in cluster.describe("t").partitions if p.partition in wanted} == wanted
    again = run("reassign", "generate", "--topic", "t")
    assert again.json["partitions"] == []
    assert again.stderr == "0 of 3 partitions change; 0 replicas would be copied\n"


def test_a_move_is_shown_and_taken_back(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("t", assignment={0: [1, 2]}, min_isr=1)
    cluster.append("t", 0, ["a"] * 10)
    cluster.stop_broker(3)
    assert run("reassign", "status").stdout == "nothing is being reassigned\n"
    plan = plan_of(("t", 0, [2, 3])).encode()
    assert run("reassign", "execute", "-", stdin=plan).stdout == "1 partition accepted; see replog reassign status\n"
    eventually(lambda: "moving" in run("reassign", "status").stdout)
    shown = run("reassign", "status")
    assert shown.lines[0] == "1 moving, 0 queued"
    assert shown.lines[-1].split()[:5] == ["t-0", "moving", "2,3", "3", "1"]
    (listed,) = run("reassign", "status", "--format", "json").json
    assert (listed["adding"], listed["removing"], listed["original"]) == ([3], [1], [1, 2])
    assert run("reassign", "cancel", "--all").stdout == "1 partition cancelled\n"
    eventually(lambda: run("reassign", "status", "--format", "json").json == [])
    assert cluster.describe("t").partitions[0].replicas == (1, 2)
    assert run("reassign", "cancel", "--all", "--format", "json").json == {"cancelled": 0, "returning": 0, "refused": []}


def test_a_cancellation_is_told_although_nobody_can_be_asked_what_becomes_of_it(
    run: Run, cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("t", assignment={0: [1, 2]}, min_isr=1)
    cluster.stop_broker(3)
    plan = plan_of(("t", 0, [2, 3])).encode()
    assert run("reassign", "execute", "-", stdin=plan).status == 0

    def nobody(client: replog.Client, **_: float | None) -> None:
        raise replog.TimedOut("waited")

    monkeypatch.setattr(replog.Client, "reassignments", nobody)
    cancelled = "1 partition cancelled; nobody could be asked whether some of them have to wait\n"
    found = run("reassign", "cancel", "-", stdin=plan)
    assert (found.status, found.stdout) == (0, cancelled)


def test_a_move_that_is_taken_back_and_has_to_wait(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("t", assignment={0: [1, 2]}, min_isr=2)
    cluster.append("t", 0, ["a"] * 10)
    cluster.stop_broker(1)
    assert run("reassign", "execute", "-", stdin=plan_of(("t", 0, [3, 1])).encode()).status == 0
    eventually(lambda: set(cluster.describe("t").partitions[0].isr) == {2, 3})
    cancelled = "1 partition cancelled: 1 goes back when enough of their old replicas are in sync\n"
    assert run("reassign", "cancel", "--all").stdout == cancelled
    assert run("reassign", "cancel", "--all", "--format", "json").json["returning"] == 1, "asked again"
    shown = run("reassign", "status")
    assert shown.lines[0] == "1 moving (1 of them back), 0 queued"
    assert shown.lines[-1].split()[:4] == ["t-0", "moving", "back", "1,2"]
    (listed,) = run("reassign", "status", "--format", "json").json
    assert (listed["returning"], listed["target"]) == (True, [1, 2])
    cluster.create_topic("u", assignment={0: [2, 3]}, min_isr=1)
    other = plan_of(("u", 0, [2, 1])).encode()
    assert run("reassign", "execute", "-", stdin=other).status == 0
    eventually(lambda: cluster.describe("u").partitions[0].adding == (1,))
    assert run("reassign", "cancel", "-", stdin=other).stdout == "1 partition cancelled\n", "that one waits for nobody"
    cluster.start_broker(1)
    eventually(lambda: run("reassign", "status", "--format", "json").json == [])
    assert cluster.describe("t").partitions[0].replicas == (1, 2)


def test_what_moves_counts_where_it_is_going(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("t", assignment={0: [1, 2], 1: [1, 2]}, min_isr=1)
    cluster.stop_broker(3)
    assert run("reassign", "execute", "-", stdin=plan_of(("t", 0, [2, 3])).encode()).status == 0
    eventually(lambda: "moving" in run("reassign", "status").stdout)
    back = run("reassign", "generate", "--brokers", "1", "2").json["partitions"]
    assert [(one["partition"], sorted(one["replicas"])) for one in back] == [(0, [1, 2])], "with as many replicas as it is to have"


@pytest.mark.parametrize(
    ("words", "stdin", "says"),
    [
        (("generate", "--brokers", "7"), b"", "unknown broker 7; known are 1, 2, 3"),
        (("generate", "--topic", "x"), b"", "unknown topic 'x'"),
        (("generate", "--topic", "oders"), b"", "unknown topic 'oders'; known are orders; did you mean 'orders'?"),
        (("execute", "/no/such/plan"), b"", "/no/such/plan cannot be read"),
        (("execute", "-"), b"[", "- is no plan"),
        (("execute", "-"), b"{}", "- is no plan"),
        (("execute", "-"), b"[]", "- is no plan"),
        (("execute", "-"), b'{"partitions": [{"topic": [], "partition": 0, "replicas": [1]}]}', "- is no plan"),
        (("execute", "-"), b"[" * 200_000, "- is no plan: it must be"),
        (("cancel", "-"), b"[" * 200_000, "nested too deeply"),
        (("execute", "-"), b'{"version": 99, "partitions": []}', "- is a plan of version 99; this replog knows version 1"),
        (("cancel", "-"), b'{"version": "1", "partitions": []}', '- is a plan of version "1"; this replog knows version 1'),
        (("execute", "-"), b'{"version": true, "partitions": []}', "- is a plan of version true"),
        (("execute", "-"), plan_of(("orders", 0, [1]), ("x", 0, [1]), ("orders", 0, [2])).encode(), "- names orders-0 twice"),
        (("cancel", "-"), plan_of(("orders", 0, [1]), ("orders", 0, [1])).encode(), "- names orders-0 twice"),
        (("execute", "-"), plan_of(("orders", 0, [1])).replace("[1]", "null").encode(), "null for the replicas of orders-0"),
        (("execute", "-"), plan_of(("a b", 0, [1])).encode(), "- cannot be a plan: topic name 'a b'"),
        (("cancel", "-"), plan_of(("a b", 0, [1])).encode(), "- cannot be a plan: topic name 'a b'"),
        (("execute", "-"), plan_of(("orders", 0, [-4])).encode(), "- cannot be a plan: broker id is -4"),
        (("execute", "-"), plan_of(("orders", 0, [1])).replace("[1]", "7").encode(), "- cannot be a plan: the target of orders-0"),
        (("cancel",), b"", "name a plan, or give --all"),
    ],
)
def test_bad_arguments(run: Run, words: tuple[str, ...], stdin: bytes, says: str, cluster: replog.Cluster) -> None:
    cluster.create_topic("orders")
    found = run("reassign", *words, stdin=stdin)
    assert (found.status, found.stdout) == (2, "")
    assert says in found.stderr


def test_a_plan_in_which_nothing_changes_is_carried_out(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("t", assignment={0: [1, 2]})
    made = run("reassign", "generate", "--brokers", "1", "2")
    assert made.json == {"version": 1, "partitions": []}
    done = run("reassign", "execute", "-", stdin=made.stdout.encode())
    assert (done.status, done.stdout) == (0, "0 partitions accepted\n")
    assert run("reassign", "execute", "-", "--format", "json", stdin=made.stdout.encode()).json["accepted"] == 0
    assert run("reassign", "execute", "-", "--watch", stdin=made.stdout.encode()).stdout == "nothing is being reassigned\n"
    assert run("reassign", "cancel", "-", stdin=made.stdout.encode()).stdout == "0 partitions cancelled\n"


def test_a_wish_that_is_refused(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("t", assignment={0: [1, 2]})
    found = run("reassign", "cancel", "-", stdin=plan_of(("t", 0, [1])).encode())
    assert found.status == 3
    assert "nothing to cancel" in found.stderr


def test_half_a_plan_is_told_apart(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("t", assignment={0: [1, 2], 1: [1, 2]}, min_isr=1)
    cluster.stop_broker(3)
    plan = plan_of(("t", 0, [1, 3]), ("t", 1, [1, 9])).encode()
    found = run("reassign", "execute", "-", "--watch", stdin=plan)
    assert (found.status, found.stdout) == (3, "1 partition accepted; see replog reassign status\n")
    assert "1 of 2 refused: partition 1 is assigned to broker 9; " in found.stderr
    assert "; the other one is accepted\n" in found.stderr
    assert [one.partition for one in cluster.reassignments()] == [0]
    plain = run("reassign", "execute", "-", "--format", "json", stdin=plan)
    assert (plain.status, plain.json["accepted"]) == (3, 1)
    (refused,) = plain.json["refused"]
    assert (refused["topic"], refused["partition"], refused["error"]) == ("t", 1, "InvalidReplicaAssignment")
    assert refused["why"].startswith("partition 1 is assigned to broker 9; registered are ")
    cancelled = run("reassign", "cancel", "-", stdin=plan)
    assert (cancelled.status, cancelled.stdout) == (3, "1 partition cancelled\n")
    assert "1 of 2 refused: t-1 is not being reassigned" in cancelled.stderr
    assert "; the other one is cancelled\n" in cancelled.stderr
    eventually(lambda: cluster.reassignments() == [])
    again = run("reassign", "cancel", "-", "--format", "json", stdin=plan)
    assert (again.status, again.json["cancelled"], len(again.json["refused"])) == (3, 0, 2)
    nothing = run("reassign", "execute", "-", stdin=plan_of(("t", 1, [1, 9])).encode())
    assert (nothing.status, nothing.stdout) == (3, "")
    assert "the other" not in nothing.stderr
    two = run("reassign", "execute", "-", stdin=plan_of(("t", 1, [1, 9]), ("t", 0, [1, 8])).encode())
    assert "2 of 2 refused: t-1: partition 1 is assigned to broker 9; registered are [" in two.stderr
    assert "; t-0: partition 0 is assigned to broker 8; registered are [" in two.stderr
    assert two.stderr.startswith("replog: 2 of 2 refused")


def placed(cluster: replog.Cluster, topic: str) -> list[tuple[int, ...]]:
    return [p.replicas for p in cluster.describe(topic).partitions]


def test_a_finished_move_is_taken_back_by_what_was_written_before_it(run: Run, cluster: replog.Cluster, tmp_path: Path) -> None:
    cluster.create_topic("t", assignment={0: [1, 2], 1: [2, 3]}, min_isr=1)
    undo = tmp_path / "undo.json"
    plan = plan_of(("t", 0, [3, 2]), ("x", 0, [1]), ("t", 1, [3, 1])).encode()
    done = run("reassign", "execute", "-", "--undo", str(undo), "--format", "json", stdin=plan)
    assert (done.status, done.json["accepted"]) == (3, 2)
    back = {"version": 1, "partitions": [{"topic": "t", "partition": n, "replicas": r} for n, r in ((0, [1, 2]), (1, [2, 3]))]}
    assert done.json["before"] == back, "without what there is not"
    assert json.loads(undo.read_text()) == back
    eventually(lambda: placed(cluster, "t") == [(3, 2), (3, 1)])
    late = run("reassign", "cancel", "-", stdin=plan_of(("t", 0, [3, 2])).encode())
    assert late.status == 3
    assert "what is done is taken back by replog reassign execute FILE, with the FILE of --undo\n" in late.stderr
    assert run("reassign", "execute", str(undo), "--watch").status == 0
    eventually(lambda: placed(cluster, "t") == [(1, 2), (2, 3)])


def test_what_leads_back_is_written_before_anything_is_asked_for(
    run: Run, cluster: replog.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("t", assignment={0: [1, 2]}, min_isr=1)
    undo, plan = tmp_path / "undo.json", plan_of(("t", 0, [3, 2])).encode()
    for there, status in ((b"mine", 2), (b"", 2)):
        undo.write_bytes(there)
        refused = run("reassign", "execute", "-", "--undo", str(undo), stdin=plan)
        assert (refused.status, refused.stdout, undo.read_bytes()) == (status, "", there)
        assert "is there already, and holds something else; nothing was asked for" in refused.stderr
    assert "is there already" in run("reassign", "execute", "-", "--undo", str(tmp_path), stdin=plan).stderr
    nowhere = run("reassign", "execute", "-", "--undo", str(tmp_path / "no" / "undo"), stdin=plan)
    assert (nowhere.status, "cannot be written: No such file" in nowhere.stderr) == (2, True)
    undo.unlink()

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("replog.cli.plans.os.fsync", full)
        failed = run("reassign", "execute", "-", "--undo", str(undo), stdin=plan)
    assert (failed.status, undo.exists()) == (2, False)
    assert "cannot be written: No space left on device; nothing was asked for" in failed.stderr
    assert (cluster.reassignments(), placed(cluster, "t")) == ([], [(1, 2)])

    cluster.stop_broker(3)
    undo.write_text(plan_of(("t", 0, [1, 2])).replace("{", '{"version": 1, ', 1) + "\n")
    kept = undo.read_bytes()
    assert run("reassign", "execute", "-", "--undo", str(undo), stdin=plan).status == 0, "it is just that"
    again = run("reassign", "execute", "-", "--undo", str(undo), stdin=plan)
    assert (again.status, undo.read_bytes()) == (2, kept), "the way back of what moves already is another one, and this one stays"


def test_a_dry_run_says_what_would_move_where_and_what_would_be_refused(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("t", assignment={0: [1, 2], 1: [1, 2], 2: [1, 2], 3: [2, 3]}, min_isr=1)
    cluster.stop_broker(3)
    good = [("t", 0, [3, 2]), ("t", 1, [1, 2]), ("t", 2, [2, 1])]
    told = run("reassign", "execute", "-", "--dry-run", stdin=plan_of(*good).encode())
    away = "broker 3 is not there: if it was let in before, what moves there waits until it is started\n"
    assert (told.status, told.stderr) == (0, away)
    assert told.lines[0] == "2 of 3 partitions would change: 1 replica added, 1 removed"
    assert [line.split() for line in told.lines[2:]] == [
        ["t-0", "1,2", "3,2", "3", "1"], ["t-1", "1,2", "1,2", "-", "-", "no", "change"], ["t-2", "1,2", "2,1", "-", "-"],
    ]  # fmt: skip
    bad = [("t", 1, [1, 9]), ("t", 7, [1]), ("t", 2, [2, 2]), ("x", 0, [1])]
    for wrong in bad:
        plan = plan_of(good[0], wrong).encode()
        dry = run("reassign", "execute", "-", "--dry-run", stdin=plan)
        assert cluster.reassignments() == [], "nothing was asked for"
        plain = run("reassign", "execute", "-", "--dry-run", "--format", "json", stdin=plan).json
        real = run("reassign", "execute", "-", stdin=plan)
        assert (dry.status, real.status) == (3, 3)
        assert dry.stderr.replace("would be refused", "refused").replace("is not\n", "is accepted\n") == real.stderr, "in the same words"
        assert (plain["changes"], plain["adding"], plain["removing"], plain["refused"], plain["executed"]) == (1, 1, 1, 1, False)
        (why,) = [one["refused"] for one in plain["partitions"] if one["refused"]]
        assert why in real.stderr
        (moving,) = run("reassign", "execute", "-", "--dry-run", "--format", "json", stdin=plan_of(good[0]).encode()).json["partitions"]
        assert (moving["now"], moving["then"], moving["adding"], moving["removing"]) == ([3, 2, 1], [3, 2], [], [1])
        assert run("reassign", "cancel", "--all").status == 0
        eventually(lambda: cluster.reassignments() == [])
    for words in (("--watch",), ("--undo", "x")):
        assert run("reassign", "execute", "-", "--dry-run", *words, stdin=plan_of(*good).encode()).status == 2
    assert run("reassign", "execute", "-", "--dry-run", stdin=b'{"partitions": []}').lines[0].startswith("0 of 0 partitions would change")
    odd = plan_of(("t", 0, [True])).encode()
    assert run("reassign", "execute", "-", "--dry-run", stdin=odd) == run("reassign", "execute", "-", stdin=odd)


def test_the_bar() -> None:
    assert bar(0) == "[" + "." * 20 + "]   0 %"
    assert bar(0.5) == "[" + "#" * 10 + "." * 10 + "]  50 %"
    assert bar(1) == "[" + "#" * 20 + "] 100 %"
