"""`replog elect`, `topic explain`, `broker drain`: both formats, and what is refused."""

from __future__ import annotations

import io

import pytest
from attrs import evolve
from tests.unit.cli.conftest import Run, run_with

import replog
from replog.cli import main
from replog.testing.eventually import eventually


@pytest.fixture
def topic(cluster: replog.Cluster) -> None:
    cluster.create_topic("t", assignment={0: [2, 1, 3], 1: [1, 2, 3]}, min_isr=2)


def away_and_back(cluster: replog.Cluster) -> None:
    cluster.stop_broker(2)
    cluster.start_broker(2)
    cluster.wait_until_in_sync()


@pytest.mark.usefixtures("topic")
def test_elect(run: Run, cluster: replog.Cluster) -> None:
    away_and_back(cluster)
    elected = run("elect", "t:0", "--preferred")
    assert (elected.status, elected.lines[1].split()) == (0, ["t", "0", "elected"])
    assert cluster.leader("t", 0) == 2
    assert run("elect", "t", "--format", "json").json[1]["result"] == "not needed"
    assert run("elect", "t").stdout == run("elect", "t", "--preferred").stdout, "that is what it does anyway"
    nothing = run("elect", "--all")
    assert (nothing.status, nothing.stdout, nothing.stderr) == (0, "", "every partition is led by its preferred leader\n")
    cluster.kill_broker(2)
    refused = run("elect", "--all")
    assert refused.status == 3
    assert "not elected" in refused.stdout
    assert "it is not registered" in refused.stdout
    led = run("elect", "t:0", "--unclean", "--yes", "--format", "json")
    assert [row["result"] for row in led.json] == ["not needed"]
    assert "only for partitions without a leader" in led.json[0]["why"]


@pytest.mark.usefixtures("topic")
def test_elect_by_name(run: Run, cluster: replog.Cluster) -> None:
    elected = run("elect", "t", "--to", "3")
    assert (elected.status, [line.split() for line in elected.lines[1:]]) == (0, [["t", str(n), "elected"] for n in (0, 1)])
    assert [cluster.leader("t", n) for n in (0, 1)] == [3, 3]
    cluster.add_broker()
    nowhere = run("elect", "t:0", "--to", "4")
    assert nowhere.status == 3
    assert "broker 4 has no copy; those of 2, 1, 3 may be elected" in nowhere.stdout


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(("words", "status", "says"), [
    (("elect",), 2, "name the partitions"),
    (("elect", "t", "--all"), 2, "name the partitions"),
    (("elect", "--all", "--to", "1"), 2, "neither --all nor --unclean"),
    (("elect", "t", "--to", "1", "--unclean"), 2, "neither --all nor --unclean"),
    (("elect", "t", "--preferred", "--to", "1"), 2, "neither --to nor --unclean goes with it"),
    (("elect", "t", "--preferred", "--unclean", "--yes"), 2, "neither --to nor --unclean goes with it"),
    (("elect", "--preferred"), 2, "name the partitions"),
    (("elect", "t", "--to", "x"), 2, "not a whole number"),
    (("elect", "t:x"), 2, "'x' is not the number"),
    (("elect", "t", "--dry-run"), 2, "it goes with --unclean"),
    (("elect", "t:0", "--unclean"), 2, "where no terminal can be asked it takes --yes"),
    (("elect", "t:7", "--unclean", "--dry-run"), 3, "has no partition 7"),
    (("elect", "none"), 3, "unknown topic"),
    (("topic", "explain", "none"), 3, "unknown topic"),
    (("explain", "none"), 3, "unknown topic"),
    (("topic", "explain", "t", "7"), 3, "has no partition 7; it has 2"),
    (("broker", "drain", "9"), 3, "registered are 1, 2, 3"),
    (("broker", "drain", "x"), 2, "not a whole number"),
    (("broker", "drain"), 2, "ID"),
    (("broker", "--id", "1", "--data", "d"), 2, "required: --listen, --store"),
])  # fmt: skip
def test_refused(run: Run, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], status: int, says: str) -> None:
    refused = run(*words)
    assert refused.status == status
    assert says in refused.stderr + capsys.readouterr().err


@pytest.mark.parametrize("words", [
    ("explain", "none"), ("explain", "none", "0"), ("elect", "none"), ("elect", "none:0"),
    ("elect", "none", "--unclean", "--dry-run"), ("topic", "describe", "none"),
])  # fmt: skip
def test_a_topic_that_somebody_asks_about_is_not_made(words: tuple[str, ...]) -> None:
    """`auto_create_topics` is for who writes and who reads; a name that is misspelt here names no topic."""
    with replog.Cluster(brokers=1, config={"auto_create_topics": True}) as cluster:
        cluster.create_topic("t")
        refused = run_with(cluster, *words)
        assert refused.status == 3
        assert "unknown topic 'none'" in refused.stdout + refused.stderr
        assert cluster.topics() == ["t"]


class Terminal(io.BytesIO):
    """A person."""

    def isatty(self) -> bool:
        return True


def test_who_could_lead_is_shown_before_records_may_be_lost(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("t", assignment={0: [1, 2, 3]}, min_isr=1)
    cluster.create_topic("u", assignment={0: [3]})
    cluster.append("t", 0, ["a", "b"])
    cluster.stop_broker(2)
    cluster.append("t", 0, ["c"])
    cluster.stop_broker(3)
    cluster.append("t", 0, ["d"] * 7)
    cluster.kill_broker(1)
    for broker in (2, 3):
        cluster.start_broker(broker)
    eventually(lambda: cluster.describe("u").partitions[0].leader == 3)
    told = "t-0 could be led by broker 2, which ends at offset 2; or by broker 3, which ends at offset 3; away, and may hold more: broker 1"
    eventually(lambda: run("elect", "t", "u", "--unclean", "--dry-run").stdout == f"{told}\n")
    plain = run("elect", "--all", "--unclean", "--dry-run", "--format", "json").json
    candidates = [{"broker": 2, "end_offset": 2}, {"broker": 3, "end_offset": 3}]
    assert plain == [{"topic": "t", "partition": 0, "candidates": candidates, "away": [1]}]
    assert run("elect", "u:0", "--unclean", "--dry-run") == (0, "", "every partition has a leader\n")
    stderr = io.StringIO()
    assert main(["elect", "t:0", "--unclean"], client=cluster, stdin=Terminal(b"no\n"), stdout=io.BytesIO(), stderr=stderr) == 2
    assert stderr.getvalue().startswith(f"{told}\nan unclean election may lose records for good.")
    assert run("elect", "t:0", "--unclean").status == 2, "nobody can be asked"
    assert cluster.describe("t").partitions[0].leader is None, "nothing was done"
    cluster.kill_broker(3)
    eventually(lambda: "or by" not in run("elect", "t:0", "--unclean", "--dry-run").stdout)
    assert run("elect", "t:0", "--unclean", "--dry-run").stdout.endswith("away, and may hold more: brokers 1, 3\n")
    assert run("elect", "t:0", "--unclean", "--yes").lines[1].split() == ["t", "0", "elected"]


@pytest.mark.usefixtures("topic")
def test_a_person_is_asked_before_records_may_be_lost(cluster: replog.Cluster) -> None:
    stderr = io.StringIO()
    words = ["elect", "--all", "--unclean"]
    assert main(words, client=cluster, stdin=Terminal(b"yes\n"), stdout=io.BytesIO(), stderr=stderr) == 2
    assert "may lose records" in stderr.getvalue()
    assert main(words, client=cluster, stdin=Terminal(b"lose records\n"), stdout=io.BytesIO(), stderr=io.StringIO()) == 0


@pytest.mark.usefixtures("topic")
def test_explain(run: Run, cluster: replog.Cluster) -> None:
    cluster.append("t", 0, ["x"])
    told = run("topic", "explain", "t", "0")
    assert told.status == 0
    assert told.lines[0] == "Broker 2 leads t-0, in epoch 0."
    assert told.lines[2:] == ["In sync are brokers 2, 1, 3: 3 of 3 replicas; min_isr is 2.", "The leader has 1 record."]
    assert run("explain", "t", "0") == told
    cluster.kill_broker(2)
    both = run("explain", "t")
    assert both.stdout.count("Broker 2 is not in sync: it is not registered") == 2
    assert "\n\nBroker 1 leads t-1" in both.stdout
    (plain,) = run("topic", "explain", "t", "1", "--format", "json").json
    assert plain["missing"] == {"2": "it is not registered: its process has ended, or its store session has"}


@pytest.mark.usefixtures("topic")
def test_what_is_not_well_is_explained_the_worst_first(run: Run, cluster: replog.Cluster) -> None:
    well = run("explain")
    assert (well.status, len(well.lines)) == (0, 1)
    assert well.stdout == "all is well: each of 2 partitions has a leader and all its replicas in sync, and none is moved\n"
    nothing = {"explained": [], "more": 0, "partitions": 2, "no_controller": "", "may_hide_topics": False}
    assert run("topic", "explain", "--format", "json").json == nothing
    cluster.create_topic("a", assignment={0: [1], 1: [3]}, min_isr=1)
    cluster.create_topic("z", assignment={0: [3]}, min_isr=1)
    cluster.alter_topic("t", min_isr=3)
    cluster.kill_broker(3)
    found = run("explain", "--format", "json")
    assert (found.status, found.json["more"], found.json["partitions"]) == (1, 0, 5)
    offline, short = ["leaderless", "under_min_isr", "under_replicated"], ["under_min_isr", "under_replicated"]
    wrong = [(one["topic"], one["partition"], one["wrong"]) for one in found.json["explained"]]
    assert wrong == [("a", 1, offline), ("z", 0, offline), ("t", 0, short), ("t", 1, short)]
    assert found.json["explained"][2]["missing"].keys() == {"3"}
    few = run("explain", "--limit", "3")
    assert (few.status, few.lines[0]) == (1, "Nobody leads a-1, in epoch 1: nothing can be appended or read.")
    assert "\n\nNobody leads z-0" in few.stdout
    assert few.lines[-2:] == ["", "and 1 more that are not well: --limit 4 explains them all, replog health names them"]
    assert run("explain", "--limit", "3", "--format", "json").json["more"] == 1


@pytest.mark.usefixtures("topic")
def test_what_is_moved_is_explained_and_not_bad(run: Run, cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    view = cluster._view(30)
    moved = evolve(view.topics["t"].partitions[1], adding=(3,))
    monkeypatch.setitem(view.topics["t"].partitions, 1, moved)
    monkeypatch.setattr(cluster, "_view", lambda _timeout_s: view)
    found = run("explain", "--format", "json")
    assert (found.status, [(one["partition"], one["wrong"]) for one in found.json["explained"]]) == (0, [(1, ["moving"])])


@pytest.mark.usefixtures("topic")
def test_what_was_deleted_meanwhile_is_not_explained(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [(0, "gone", 0, ["leaderless"]), (1, "t", 1, ["under_replicated"])]
    monkeypatch.setattr("replog.cli.leaders._not_well", lambda _view: iter(wrong))
    found = run("explain", "--format", "json")
    assert [(one["topic"], one["partition"], one["wrong"]) for one in found.json["explained"]] == [("t", 1, ["under_replicated"])]


@pytest.mark.usefixtures("topic")
def test_a_partition_that_is_not_there_is_no_topic_to_make(run: Run) -> None:
    refused = run("explain", "t", "7")
    assert (refused.status, refused.stderr) == (3, "replog: topic 't' has no partition 7; it has 2\n")
    assert "next: replog topic list" in run("explain", "nope", "7").stderr
    assert run("explain", "t", "--limit", "1").status == 2


@pytest.mark.usefixtures("topic")
def test_drain(run: Run, cluster: replog.Cluster) -> None:
    drained = run("broker", "drain", "2")
    assert (drained.status, drained.lines) == (0, ["broker 2 is drained: it may be stopped; it serves again after a restart"])
    assert cluster.leader("t", 0) == 1
    cluster.create_topic("alone", assignment={0: [3]})
    assert run("broker", "drain", "3").lines == [
        "with fewer replicas in sync than min_isr now, so that acks=all is refused: t-0, t-1",
        "restart broker 3, or bring back who else is away: replog explain names them",
        "broker 3 has given away what others can lead; it serves again after a restart",
        "nobody else can lead now: alone-0",
        "stopping it takes this partition offline; replog explain says who is missing",
    ]
    plain = run("broker", "drain", "3", "--format", "json").json
    short = [{"topic": "t", "partition": number} for number in (0, 1)]
    assert plain == {"broker": 3, "remaining": [{"topic": "alone", "partition": 0}], "under_min_isr": short}
