"""The line `next:` behind an error: what it names can be typed, and would help."""

from __future__ import annotations

import contextlib
import io
import shlex

import pytest
from tests.unit.cli.conftest import Run, run_with

import replog
from replog.cli import main, steps
from replog.cli.grammar import check_broker, make_parser
from replog.cli.overview import verbs_of
from replog.cli.steps import next_step
from replog.errors import (
    BrokerIdNotRegistered,
    LeaderNotAvailable,
    NoReassignmentInProgress,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    OffsetOutOfRange,
    ReassignmentInProgress,
    ReplogError,
    TimedOut,
    TopicAlreadyExists,
    Unavailable,
    UnknownTopicOrPartition,
    UsageError,
)

DELETE = ("topic", "delete", "t", "--yes")
NOBODY = "see whether a broker runs there; --bootstrap names others, --timeout waits for longer"
LOOK = "replog explain t says who is missing, and why"
UNREACHED = TimedOut("waited 30 s for an answer of any broker to a question; not reached: tcp://h:1 (Connection refused)")
HUNG_UP = TimedOut("waited 3 s for an answer of any broker to a question; not reached: tcp://h:1 (closed by the peer)")
CLOSED = (
    "something listens there and hangs up; its log says why; for a broker with TLS, --security FILE, or REPLOG_SECURITY, has the settings"
)
WAITED = "waited 3 s for an answer of any broker to a question; not reached: "
CERTIFIED = (
    'docs/security.md, "When somebody is not let in", says what each reason means; '
    "--security FILE, or REPLOG_SECURITY, names the files of this side"
)
HUNG = TimedOut("waited 30 s for an answer of broker 2 to a question")
REPEATED = Unavailable("a change: TopicAlreadyExists was the answer to a repetition (...); whether it was carried out before is unknown")
NO_LEADER = "waited 3 s for t-0.x-12 to have a leader, to answer an offset; not reached: tcp://h:1 (Connection refused)"
UNLED = "waited 3 s for t-0.x-12 to have a leader; not reached: tcp://h:1 (Connection refused)"
UNPROVEN = TimedOut("waited 5 s; not reached: tcp://h:1 (refused with error 31: you have not proven who you are)")

CASES: list[tuple[tuple[str, ...], ReplogError, str]] = [
    (("read", "t"), LeaderNotAvailable(topic="t", partition=0), "replog explain t says why"),
    (("produce", "t"), NotEnoughReplicas(topic="t", partition=0), LOOK),
    (("produce", "t"), NotEnoughReplicasAfterAppend(topic="t"), LOOK),
    (("produce", "t"), NotEnoughReplicas(), LOOK),
    (
        ("read", "t"),
        OffsetOutOfRange(topic="t", partition=0),
        "replog topic describe t says which offsets there are; --start earliest takes the first",
    ),
    (
        ("reassign", "execute", "plan"),
        ReassignmentInProgress(topic="t"),
        "replog reassign status shows it; replog reassign cancel PLAN takes back what a plan names, --all everything",
    ),
    (
        ("reassign", "cancel", "plan"),
        NoReassignmentInProgress(topic="t"),
        "replog reassign status shows what is under way; "
        "what is done is taken back by replog reassign execute FILE, with the FILE of --undo",
    ),
    (("broker", "drain", "9"), BrokerIdNotRegistered(), "replog health says which brokers there are"),
    (
        ("produce", "t"),
        UnknownTopicOrPartition("unknown topic 't'", topic="t"),
        "replog topic list names the topics there are, replog topic create t makes this one",
    ),
    (("read", "t"), UnknownTopicOrPartition("unknown topic 't'", topic="t"), "replog topic list names the topics there are"),
    (DELETE, UnknownTopicOrPartition("unknown topic 't'", topic="t"), "replog topic list names the topics there are"),
    (
        ("reassign", "execute", "p"),
        UnknownTopicOrPartition("1 of 1 refused: unknown topic 't'", topic="t", partition=0),
        "replog topic list names the topics there are",
    ),
    (
        ("read", "t", "-p", "7"),
        UnknownTopicOrPartition("topic 't' has no partition 7", topic="t", partition=7),
        "",
    ),
    (("topic", "create", "t"), TopicAlreadyExists(), ""),
    (("topic", "create", "t"), UsageError("wrong"), ""),
    (("topic", "list"), UNREACHED, NOBODY),
    (DELETE, UNREACHED, NOBODY),
    (("topic", "list"), HUNG_UP, CLOSED),
    (("topic", "list"), TimedOut(f"{WAITED}tcp://h:1 (closed by the peer), tcp://h:2 (closed by the peer)"), CLOSED),
    (("topic", "list"), TimedOut(f"{WAITED}tcp://h:1 (Connection refused), tcp://h:2 (closed by the peer)"), CLOSED),
    (("topic", "list"), TimedOut(f"{WAITED}tcp://h:1 (its certificate is not accepted: certificate has expired)"), CERTIFIED),
    (("topic", "list"), TimedOut(f"{WAITED}tcp://h:1 (Connection refused), tcp://h:2 (it does not speak TLS)"), CERTIFIED),
    (("topic", "list"), TimedOut(f"{WAITED}tcp://h:1 (it has ended the connection (does it speak TLS?))"), CERTIFIED),
    (("topic", "list"), TimedOut(f"{WAITED}tcp://h:1 (Connection refused), tcp://h:2 (Connection refused)"), NOBODY),
    (("topic", "list"), HUNG, "replog health says what is wrong with the cluster; --timeout waits for longer"),
    (("read", "t"), HUNG, "replog health says what is wrong with the cluster; --timeout waits for longer"),
    (DELETE, HUNG, "replog topic list says whether it is still there"),
    (("topic", "create", "t"), REPEATED, "replog topic describe t says whether it was made"),
    (("topic", "alter", "t", "min_isr=1"), HUNG, "replog topic describe t says how it is now"),
    (("topic", "add-partitions", "t", "3"), HUNG, "replog topic describe t says how many it has now"),
    (("topic", "remove-partitions", "t", "1", "--yes"), HUNG, "replog topic describe t says how many it has now"),
    (("reassign", "execute", "plan"), HUNG, "replog reassign status says what is queued and under way now"),
    (("reassign", "cancel", "--all"), HUNG, "replog reassign status says what is queued and under way now"),
    (("elect", "--all"), HUNG, "replog topic describe says who leads now"),
    (("broker", "drain", "1"), HUNG, "replog health says what the cluster is like now"),
    (("cluster", "raise", "2"), HUNG, "replog cluster show says which level it has now"),
    (("produce", "t"), HUNG, f"{LOOK}; replog read t shows what was stored"),
    (("read", "t-0.x"), TimedOut(NO_LEADER), "replog explain t-0.x 12 says why"),
    (("topic", "list"), TimedOut(NO_LEADER), "replog explain t-0.x 12 says why"),
    (("produce", "t-0.x"), TimedOut(f"{UNLED}; it was never sent"), "replog explain t-0.x 12 says why"),
    (
        ("produce", "t-0.x"),
        TimedOut(f"{UNLED}; whether it was stored is unknown"),
        "replog explain t-0.x 12 says why; replog read t-0.x shows what was stored",
    ),
    (("demo",), UNREACHED, ""),
    (("broker", "--id", "1", "--listen", "l", "--data", "d", "--store", "file://s"), UNREACHED, ""),
    (("store", "list", "--store", "file://s"), TimedOut("x"), "see whether the store is up; --timeout waits for longer"),
    (
        ("metrics", "http://h:1"),
        Unavailable("http://h:1/metrics does not answer"),
        "see whether the broker runs, and was started with --http and this address",
    ),
    (
        ("top", "http://h:1/", "--once"),
        Unavailable("http://h:1/metrics does not answer"),
        "see whether the broker runs, and was started with --http and this address",
    ),
    (("top", "http://h:1", "--once"), UNREACHED, NOBODY),
    (
        ("topic", "list"),
        UNPROVEN,
        "--security FILE, or REPLOG_SECURITY, names the settings with the secret or the certificate that this cluster knows",
    ),
]


@pytest.mark.parametrize(("words", "problem", "told"), CASES)
def test_what_is_told(words: tuple[str, ...], problem: ReplogError, told: str) -> None:
    assert next_step(problem, make_parser().parse_args(words)) == told


def parses(words: list[str]) -> None:
    """As `main` has it, without running anything. Raises SystemExit for what is no command."""
    with contextlib.redirect_stderr(io.StringIO()):
        check_broker(make_parser().parse_args(words))


TEXTS = {*steps._STEPS.values(), *steps._LOOKS.values(), steps._UNLED.replace("{partition}", "0"), steps._TOPICS, steps._MAKES}


@pytest.mark.parametrize("text", sorted(TEXTS))
@pytest.mark.parametrize("topic", ["t", "-t", None])
def test_each_command_that_is_named_can_be_typed(text: str, topic: str | None) -> None:
    named = steps._COMMAND.findall(text)
    assert named
    for command in named:
        if topic is None and command.startswith(("topic create", "read", "explain {topic} 0")):
            continue  # these are told to `produce` alone, or of a partition: there is always a topic
        words = [word for one in command.split() for word in ([one] if one != "{topic}" else [] if topic is None else ["--", topic])]
        parses(words)


def test_every_command_that_changes_something_says_where_to_look() -> None:
    parser = make_parser()
    known = {one.get_default("run") for verb in verbs_of(parser).values() for one in (verb, *verbs_of(verb).values())}
    assert set(steps._LOOKS) <= known, "no name is a command's of the past"


def test_the_same_cluster_is_asked() -> None:
    asked = make_parser().parse_args(["read", "t", "--bootstrap", "tcp://a:1,b:2", "--security", "my file"])
    told = next_step(LeaderNotAvailable(topic="t"), asked)
    assert told == "replog --bootstrap tcp://a:1,b:2 --security 'my file' explain t says why"
    parses(shlex.split(told.removesuffix(" says why"))[1:])


def test_a_topic_that_looks_like_an_option() -> None:
    told = next_step(LeaderNotAvailable(topic="-t"), make_parser().parse_args(["read", "--", "-t"]))
    assert told == "replog explain -- -t says why"
    asked = make_parser().parse_args(shlex.split(told.removesuffix(" says why"))[1:])
    assert asked.topic == "-t"


def test_a_name_that_was_misspelt_is_not_made(run: Run, cluster: replog.Cluster) -> None:
    cluster.create_topic("orders")
    near = run("produce", "oders").stderr.splitlines()
    assert near[0].endswith("did you mean 'orders'?")
    assert near[1] == "next: replog topic list names the topics there are"
    assert run("produce", "zzz").stderr.splitlines()[1].endswith("replog topic create zzz makes this one")


def test_what_is_printed_about_a_wrong_command_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    def all_of(words: tuple[str, ...]) -> list[tuple[str, ...]]:
        one = make_parser()
        for word in words:
            one = verbs_of(one)[word]
        return [words, *(found for name in verbs_of(one) for found in all_of((*words, name)))]

    for words in all_of(()):
        assert main([*words, "--no-such-option"]) == 2
        step = capsys.readouterr().err.splitlines()[-1]
        assert step.startswith("next: replog")
        assert main(shlex.split(step.removeprefix("next: replog"))) == 0
        assert capsys.readouterr().out.startswith(f"usage: {step.removeprefix('next: ').removesuffix(' --help')}")


def test_nobody_leads() -> None:
    with replog.Cluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=2, assignment={0: [2], 1: [1]})
        cluster.kill_broker(2)
        while cluster.describe("t").partitions[0].leader is not None:
            pass
        told = run_with(cluster, "--timeout", "1", "read", "t")
    assert (told.status, told.stderr.splitlines()[-1]) == (4, "next: replog explain t 0 says why")


def test_nobody_answers_a_change() -> None:
    class Hung:
        def delete_topic(self, _topic: str, *, timeout_s: float | None) -> None:
            raise HUNG

    told = run_with(Hung(), *DELETE)  # type: ignore[arg-type]
    assert (told.status, told.stderr.splitlines()[-1]) == (4, "next: replog topic list says whether it is still there")
