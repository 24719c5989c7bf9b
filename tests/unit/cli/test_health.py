"""`replog health`: what counts as healthy, and the exit status that says it."""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from attrs import evolve
from tests.unit.cli.conftest import Run, run_with

import replog
from replog.cli import main
from replog.client.results import FeatureLevels
from replog.client.view import View
from replog.config import TopicConfig
from replog.errors import TimedOut, rejection
from replog.messages import ClusterView, PartitionView, TopicView
from replog.model import BrokerInfo
from replog.status.judging import judge
from replog.testing.eventually import eventually

ALL = (1, 2, 3)


def view(isr: tuple[int, ...] = ALL, *, leader: int | None = 1, there: tuple[int, ...] = ALL, fenced: int = 0, controller: int = 2) -> View:
    """A cluster with one partition of three copies."""
    brokers = [BrokerInfo(n, 10 + n, fenced=n == fenced) for n in there]
    partition = PartitionView(0, 0, leader, 0, isr, (), ALL, 0)
    topic = TopicView("t", b"t" * 16, TopicConfig(min_isr=2), (partition,))
    made = View()
    made.merge(ClusterView(1, 1, -1, controller, brokers, [topic], cluster_id="c"))
    return made


def known(*brokers: int) -> FeatureLevels:
    """What the controller answers that has these registered."""
    return FeatureLevels("c", 1, {broker: (1, 1) for broker in brokers or ALL})


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        (view(), {}),
        (view((1, 3)), {"under_replicated"}),
        (view((1,)), {"under_replicated", "under_min_isr"}),
        (view((), leader=None), {"leaderless", "under_replicated", "under_min_isr"}),
        (view((1, 2), there=(1, 2)), {"missing_brokers", "under_replicated"}),
        (view(fenced=3), {"fenced"}),
        (view(controller=-1), {"controller"}),
        (view(controller=9), {"controller"}),
        (view(there=(*ALL, 4), fenced=4), {"fenced"}),
        (view(there=(*ALL, 4)), {}),
    ],
)
def test_what_is_wrong(seen: View, wrong: set[str]) -> None:
    report = judge(seen)
    assert report["healthy"] == (not wrong)
    said = {kind for kind in ("leaderless", "under_min_isr", "under_replicated", "missing_brokers") if report[kind]}
    said |= {"controller"} if report["controller"] is None else set()
    said |= {"fenced"} if wrong == {"fenced"} and any(b["state"] == "fenced" for b in report["brokers"]) else set()
    assert said == set(wrong)


@pytest.mark.parametrize(("least", "healthy"), [(0, True), (3, True), (4, False)])
def test_too_few_brokers(least: int, healthy: bool) -> None:
    assert judge(view(), least)["healthy"] == healthy


def test_every_reason_is_told() -> None:
    assert judge(view())["reason"] == ""
    ill = judge(view((), leader=None, there=(1, 3), fenced=3, controller=-1), 2)
    assert ill["reason"].split("; ") == [
        "no broker is the controller",
        "1 brokers serve, and 2 should",
        "brokers that hold copies and are not there: 2",
        "brokers that are fenced: 3",
        "1 partitions without a leader: nothing can be read or appended",
        "1 partitions with fewer replicas in sync than min_isr: acks=all is refused",
        "1 partitions with fewer replicas in sync than they should have",
    ]
    assert judge(view(there=(*ALL, 4), fenced=4))["reason"] == "brokers that are fenced: 4"


def test_who_joins_with_a_move_is_not_missed() -> None:
    """KIP-352: a planned move is no incident; who is missing beside it is."""
    moving = view((1, 2))
    moving.topics["t"].partitions[0] = evolve(moving.topics["t"].partitions[0], adding=(3,))
    assert judge(moving)["healthy"]
    moving.topics["t"].partitions[0] = evolve(moving.topics["t"].partitions[0], isr=(1,))
    assert [kind for kind in ("under_min_isr", "under_replicated") if judge(moving)[kind]] == ["under_min_isr", "under_replicated"]


def test_too_few_brokers_are_told(run: Run) -> None:
    asked = run("health", "--brokers", "5")
    assert (asked.status, "3 brokers serve, and 5 should" in asked.lines) == (1, True)
    asked = run("health", "--brokers", "3")
    assert (asked.status, "should" in asked.stdout) == (0, False)


def test_a_killed_broker_is_told(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("t", partitions=2)
    well = run("health")
    assert (well.status, well.lines[0].split(":")[0]) == (0, "healthy")
    cluster.kill_broker(3)
    ill = run("health")
    assert ill.status == 1
    assert ill.lines[0].startswith("NOT healthy: cluster ")
    assert "brokers that hold copies and are not there: 3" in ill.lines
    assert "2 with fewer replicas in sync than they should have: t-0, t-1" in ill.lines
    plain = run("health", "--format", "json")
    assert plain.status == 1
    assert [(p["topic"], p["partition"]) for p in plain.json["under_replicated"]] == [("t", 0), ("t", 1)]
    cluster.start_broker(3)
    cluster.wait_until_in_sync()
    assert run("health").status == 0


def told_by(page: str) -> dict[str, Any]:
    """What /health of a status page says, whichever its status."""
    try:
        with urllib.request.urlopen(f"{page}health", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as ill:
        found = json.load(ill)
    return found


def test_the_status_page_says_the_same_with_fewer_names(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("t", partitions=23, replication_factor=3)
    with cluster.serve_status() as page:
        assert told_by(page.url) == run("health", "--format", "json").json
        cluster.kill_broker(3)
        eventually(lambda: not told_by(page.url)["healthy"] and run("health").status == 1)
        full = run("health", "--format", "json").json
        short = eventually(lambda: None if (told := told_by(page.url))["under_replicated_total"] < 23 else told)
    assert [full[f"{kind}_total"] for kind in ("under_replicated", "under_min_isr", "leaderless")] == [23, 0, 0]
    assert [len(one["under_replicated"]) for one in (full, short)] == [23, 20]
    assert short == full | {"under_replicated": full["under_replicated"][:20]}


class Nobody:
    """A client that reaches no broker, or is refused."""

    def __init__(self, *problems: Exception) -> None:
        self.problems = list(problems)
        self.asked = 0

    def _view(self, _timeout_s: float | None) -> View:
        self.asked += 1
        if self.problems:
            raise self.problems.pop(0)
        return view()

    def describe_features(self, *, timeout_s: float | None = None) -> FeatureLevels:
        """It has a controller."""
        return known()


class Led:
    """A client whose brokers tell of a controller, which gives this answer."""

    def __init__(self, problem: Exception | None) -> None:
        self.problem = problem

    def _view(self, _timeout_s: float | None) -> View:
        return view()

    def describe_features(self, *, timeout_s: float | None = None) -> FeatureLevels:
        assert timeout_s is not None
        assert timeout_s <= 5
        if self.problem is not None:
            raise self.problem
        return known()


@pytest.mark.parametrize(
    ("problem", "is_led"), [(None, True), (rejection(31), True), (TimedOut("nobody there"), False), (rejection(41), False)]
)
def test_a_controller_that_does_not_answer_is_none(problem: Exception | None, is_led: bool) -> None:
    """Brokers tell of the last one that they have heard of, whether or not it lives, and whether or not the store does."""
    ran = run_with(Led(problem), "health", "--format", "json")  # type: ignore[arg-type]
    assert (ran.status, ran.json["healthy"], ran.json["controller"]) == ((0, True, 2) if is_led else (1, False, None))
    assert ran.json["reason"] == ran.json["no_controller"]
    assert ran.json["reason"] == ("" if is_led else f"no controller answers, or the metadata store is away: {problem}")
    lines = run_with(Led(problem), "health").lines  # type: ignore[arg-type]
    assert lines[0] == ("healthy: cluster c" if is_led else "NOT healthy: cluster c")
    assert (lines[1] == ran.json["reason"]) != is_led
    may_hide = problem is not None and is_led
    assert ran.json["may_hide_topics"] == may_hide
    assert any(line.startswith("there may be more") for line in lines) == may_hide
    told = run_with(Led(problem), "controller")  # type: ignore[arg-type]
    assert (told.status, told.lines) == (
        (0, ["broker 2 is the controller, epoch 1", "in office since: unknown", "waiting there: unknown"])
        if is_led
        else (1, [f"{ran.json['reason']}; the last epoch is 1"])
    )
    explained = run_with(Led(problem), "explain")  # type: ignore[arg-type]
    assert (explained.status, explained.lines[0].startswith("all is well")) == ((0, True) if is_led else (1, False))
    plain = run_with(Led(problem), "explain", "--format", "json").json  # type: ignore[arg-type]
    assert plain == {"explained": [], "more": 0, "partitions": 1, "no_controller": ran.json["reason"], "may_hide_topics": may_hide}
    assert any(line.startswith("there may be more") for line in explained.lines) == may_hide
    counted = run_with(Led(problem), "metrics")  # type: ignore[arg-type]
    assert (f'replog_active_controller{{broker="2"}} {int(is_led)}' in counted.lines) is True


@pytest.mark.parametrize("problem", [TimedOut("nobody there"), rejection(104)])
def test_who_cannot_tell_says_so(problem: Exception) -> None:
    ran = run_with(Nobody(problem), "health")  # type: ignore[arg-type]
    assert (ran.status, ran.stdout) == (2, "")
    assert str(problem) in ran.stderr


def test_watching_ends_when_it_is_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.cli.health._EVERY_S", 0)
    nobody = Nobody(TimedOut("nobody there"), TimedOut("nobody there"))
    ran = run_with(nobody, "health", "--watch", "--exit-when-healthy")  # type: ignore[arg-type]
    assert (ran.status, nobody.asked) == (0, 4)
    assert ran.stderr == "replog: nobody answers: nobody there\n", "the same thing is told once"
    assert ran.lines[0] == "healthy: cluster c"


@pytest.mark.parametrize("more", [(), ("--watch", "0.1"), ("--exit-when-healthy",)])
def test_within_a_time_it_is_healthy_or_the_last_look_says_how_it_is(run: Run, cluster: replog.Cluster, more: tuple[str, ...]) -> None:
    cluster.create_topic("t")
    assert run("health", "--within", "60", *more).status == 0
    cluster.kill_broker(3)
    ill = run("health", "--within", "0.3", *more)
    assert (ill.status, ill.stdout.count("NOT healthy"), ill.stderr) == (1, 1, "")


def test_nobody_within_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.cli.health._EVERY_S", 0)

    class Never(Nobody):
        def _view(self, timeout_s: float | None) -> View:
            assert timeout_s is not None
            assert timeout_s <= 1
            raise TimedOut("nobody there")

    ran = run_with(Never(), "health", "--within", "0.1")  # type: ignore[arg-type]
    assert (ran.status, ran.stdout, ran.stderr) == (2, "", "replog: nobody answers: nobody there\n")


def test_an_interrupt_ends_it_with_130() -> None:
    stderr = io.StringIO()
    interrupted = Nobody(KeyboardInterrupt())  # type: ignore[arg-type]
    assert main(["health", "--watch"], client=interrupted, stdout=io.BytesIO(), stderr=stderr) == 130  # type: ignore[arg-type]
    assert stderr.getvalue() == ""


class Seen(Led):
    def __init__(self, seen: View) -> None:
        super().__init__(None)
        self.seen = seen

    def _view(self, _timeout_s: float | None) -> View:
        return self.seen

    def describe_features(self, *, timeout_s: float | None = None) -> FeatureLevels:
        return known(*self.seen.brokers)


def test_of_two_brokers_at_one_endpoint_only_one_is_reached() -> None:
    seen = view(there=(*ALL, 4))
    for n in (2, 4):
        seen.brokers[n] = evolve(seen.brokers[n], endpoints=("tcp://here:1",))
    ran = run_with(Seen(seen), "health", "--format", "json")  # type: ignore[arg-type]
    assert (ran.status, ran.json["reason"]) == (1, "brokers at one endpoint: 2, 4 (tcp://here:1)")
    assert ran.json["shared_endpoints"] == [{"endpoint": "tcp://here:1", "brokers": [2, 4]}]
    assert "brokers at one endpoint: 2, 4 (tcp://here:1)" in run_with(Seen(seen), "health").lines  # type: ignore[arg-type]


def test_a_broker_that_is_fenced_is_named() -> None:
    seen = view(there=(*ALL, 4), fenced=4)
    ran = run_with(Seen(seen), "health")  # type: ignore[arg-type]
    assert ran.status == 1
    assert "brokers that are fenced: 4" in ran.lines
    assert judge(seen)["fenced_brokers"] == [4]
