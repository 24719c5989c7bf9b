"""The commands as processes: pipes, signals, and clusters that do not answer."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes.cli import REPLOG, broker_processes, command, environment, started

import replog

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[replog.BrokerProcess]:
    """One broker for the tests of this file; each uses a topic of its own."""
    with broker_processes(tmp_path_factory.mktemp("brokers"), 1) as (broker,):
        yield broker


def test_the_environment_names_the_cluster(broker: replog.BrokerProcess) -> None:
    made = command("topic", "create", "named", "--format", "json", REPLOG_BOOTSTRAP=broker.endpoint)
    assert (made.returncode, made.stderr) == (0, b"")
    assert json.loads(made.stdout)["topic"] == "named"
    bare = broker.endpoint.removeprefix("tcp://")
    assert b"named" in command("topic", "list", "-b", bare, REPLOG_BOOTSTRAP="tcp://127.0.0.1:1").stdout


def test_from_pipe_to_pipe(broker: replog.BrokerProcess) -> None:
    at = ("-b", broker.endpoint)
    assert command(*at, "topic", "create", "pipes", "-p", "3").returncode == 0
    lines = [f"key-{n % 11}:line {n}" for n in range(30_000)]
    made = command(*at, "produce", "pipes", "-k", ":", "--format", "json", stdin="\n".join(lines).encode())
    assert (made.returncode, made.stderr) == (0, b"")
    assert json.loads(made.stdout)["records"] == 30_000
    read = command(*at, "read", "pipes", "--keys")
    assert read.returncode == 0
    assert sorted(read.stdout.decode().replace("\t", ":").splitlines()) == sorted(lines)


@pytest.mark.parametrize("more", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_a_reader_that_goes_early_is_no_error(broker: replog.BrokerProcess, more: dict[str, str]) -> None:
    at = ("-b", broker.endpoint)
    topic = f"early-{len(more)}"
    assert command(*at, "topic", "create", topic).returncode == 0
    assert command(*at, "produce", topic, stdin=b"x" * 200 + b"\n" + (b"y" * 200 + b"\n") * 5_000).returncode == 0
    with started(*at, "read", topic, env=environment(**more)) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"x" * 200 + b"\n"
        reader.stdout.close()
        assert reader.stderr is not None
        assert reader.stderr.read() == b""
        assert reader.wait(60) == 0


def test_follow_shows_each_record_when_it_comes_and_ends_with_130(broker: replog.BrokerProcess) -> None:
    at = ("-b", broker.endpoint)
    assert command(*at, "topic", "create", "followed").returncode == 0
    with started(*at, "read", "followed", "--follow") as reader, started(*at, "produce", "followed") as producer:
        assert reader.stdout is not None
        assert producer.stdin is not None
        for line in (b"first\n", b"second\n"):
            producer.stdin.write(line)
            producer.stdin.flush()  # and it is not closed: a line does not wait for the next
            assert reader.stdout.readline() == line
        reader.send_signal(signal.SIGINT)
        rest, stderr = reader.communicate(timeout=60)
        assert (reader.returncode, rest, stderr) == (130, b"", b"")
        stdout, _ = producer.communicate(timeout=60)
        assert (producer.returncode, stdout.splitlines()[0]) == (0, b"2 records in followed")


@pytest.mark.parametrize(
    ("words", "status"),
    [(("topic", "list"), 4), (("topic", "create", "t"), 4), (("produce", "t"), 4), (("read", "t"), 4), (("health",), 2)],
)
def test_nobody_there(words: tuple[str, ...], status: int) -> None:
    done = command("-b", "tcp://127.0.0.1:1", "--timeout", "0.5", *words)
    assert (done.returncode, done.stdout) == (status, b"")
    assert b"127.0.0.1:1" in done.stderr
    assert b"Traceback" not in done.stderr


def test_produce_gives_up_in_its_time(tmp_path: Path) -> None:
    """Two in-sync replicas are asked for, and there is one. The default of a client is two minutes, and the test's patience is less."""
    with broker_processes(tmp_path, 2, session_ms=600_000) as brokers:  # or else the dead one may be out of the ISR: then it is refused
        at = ("-b", ",".join(broker.endpoint for broker in brokers))
        assert command(*at, "topic", "create", "t", "-r", "2", "-c", "min_isr=2").returncode == 0
        brokers[1].kill()
        done = command(*at, "--timeout", "4", "produce", "t", stdin=b"a\n" * 5, timeout_s=40)
    assert (done.returncode, done.stdout) == (4, b"")
    assert b"replog: 0 records are stored; of 5 others it is not known\n" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_leader_that_stands_still_is_waited_for_once(tmp_path: Path) -> None:
    """However many topics and partitions it leads: what is known of them is shown, and all of the others. The test's patience is less than
    one wait after the other would take."""
    with broker_processes(tmp_path, 2, session_ms=600_000) as brokers:
        with replog.connect(brokers[0].endpoint) as client:
            there = client.describe_cluster().controller_id
            away = 3 - there
            for n in range(20):
                client.create_topic(f"t{n:02}", assignment={0: [away], 1: [there]})
            client.create_topic("wide", assignment={n: [away] for n in range(40)})
        brokers[away - 1].pause()
        at = ("-b", brokers[there - 1].endpoint, "--timeout", "8", "--format", "json")

        def told(*words: str) -> Any:
            done = command(*at, *words, timeout_s=60)
            assert (done.returncode, done.stderr) == (0, b"")
            return json.loads(done.stdout)

        *both, _ = told("topic", "describe")
        assert [[p["end_offset"] for p in topic["partitions"]] for topic in both] == [[None, 0]] * 20
        seen = told("top", "--once", "--interval", "0.1")
        assert {row["broker"]: (row["leads"], row["records_per_s"]) for row in seen["brokers"]} == {there: (20, 0.0), away: (60, None)}
        silent = f"Broker {away}, the leader, does not say how far its followers are."
        assert [silent in one["sentences"] for one in told("explain", "wide")] == [True] * 40


@pytest.mark.parametrize(
    ("redirect", "status", "stdout"),
    [("<&-", 0, b"0 records in streams\n"), (">&-", 0, b""), ("<&- >&- 2>&-", 0, b""), ("> /dev/full", 1, b"")],
)
def test_streams_that_are_not_there(broker: replog.BrokerProcess, redirect: str, status: int, stdout: bytes) -> None:
    at = ("-b", broker.endpoint)
    assert command(*at, "topic", "create", "streams", "--exist-ok").returncode == 0
    line = f"exec {shlex.join([*REPLOG, *at, 'produce', 'streams'])} {redirect}"
    done = subprocess.run(["sh", "-c", line], input=b"", env=environment(), capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (status, stdout)
    told = done.stderr.decode().splitlines()
    assert told == (["replog: stdout cannot be written: No space left on device"] if status else [])


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("read", "--help")])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_the_parser_says_is_not_lost_in_silence(words: tuple[str, ...], unbuffered: str) -> None:
    line = f"exec {shlex.join([*REPLOG, *words])} > /dev/full"
    given = {**environment(), "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(["sh", "-c", line], env=given, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.decode()) == (1, "replog: stdout cannot be written: No space left on device\n")


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("health --watch 600", b"healthy"),
        ("controller --watch 600", b"2"),
        ("read left --follow", b"one"),
        ("top --interval 600", b""),  # which says nothing before its second look
    ],
)
def test_what_goes_on_ends_when_its_reader_has_gone(broker: replog.BrokerProcess, words: str, first: bytes) -> None:
    """Also in a cluster that does not change, of which it has nothing to say, and long before it looks again."""
    with replog.connect(broker.endpoint) as client:
        client.create_topic("left", exist_ok=True)
        client.append("left", 0, ["one"])
    with started("-b", broker.endpoint, *words.split()) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        if first:
            assert watching.stdout.readline().startswith(first)
        watching.stdout.close()
        assert watching.wait(60) == 0
        assert watching.stderr.read() == b""


def test_health_of_a_cluster_that_loses_a_broker(tmp_path: Path) -> None:
    with broker_processes(tmp_path, 3) as brokers:
        at = ("-b", ",".join(broker.endpoint for broker in brokers))
        assert command(*at, "topic", "create", "t", "-p", "3").returncode == 0
        assert command(*at, "health", "--watch", "--exit-when-healthy").returncode == 0
        brokers[0].kill()
        with started(*at, "health", "--watch", "--format", "json") as watching:
            assert watching.stdout is not None
            while (report := json.loads(watching.stdout.readline()))["healthy"] or report["leaderless"]:
                pass
        assert report["missing_brokers"] == [1]
        assert len(report["under_replicated"]) == 3
        ill = command(*at, "health")
        assert (ill.returncode, ill.stdout.split(b":")[0]) == (1, b"NOT healthy")
        brokers[0].start()
        well = command("-b", brokers[0].endpoint, "health", "--watch", "--exit-when-healthy")
        assert well.returncode == 0
        assert well.stdout.decode().rpartition("healthy: cluster")[2]


def test_tables_on_a_terminal_are_drawn(broker: replog.BrokerProcess) -> None:
    script = ["script", "-qec", " ".join([*REPLOG, "-b", broker.endpoint, "health"]), "/dev/null"]
    done = subprocess.run(script, env=environment(TERM="xterm"), stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "╭" in done.stdout.decode()
