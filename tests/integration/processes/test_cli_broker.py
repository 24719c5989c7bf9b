"""`replog broker` as a process: its readiness line, its log lines, its signals and what its exit status says."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.processes.cli import broker_words, command, ready, started

import replog
from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (INFO   |WARNING|ERROR  ) \S.*")


@pytest.fixture
def hangups() -> Iterator[None]:
    """A process that is started hears of them: whoever runs the tests may ignore them, and that is inherited."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_it_in_a_controlled_way(tmp_path: Path, number: signal.Signals) -> None:
    with started(*broker_words(tmp_path), stdin=subprocess.DEVNULL) as broker:
        endpoint, cluster_id = ready(broker)
        with replog.connect(endpoint) as client:
            client.create_topic("t")
            client.append("t", 0, ["x"])
            assert client.describe_cluster().cluster_id == cluster_id
        broker.send_signal(number)
        stdout, stderr = broker.communicate(timeout=60)
    assert (broker.returncode, stdout) == (0, b"")
    lines = stderr.decode().splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert lines[-1].endswith("INFO    broker 1 is stopped")
    assert any(line.endswith(f"broker 1 stops: {number.name}") for line in lines)
    assert (tmp_path / "b1" / "clean").exists(), "its logs are marked: the next start need not look at them"


def test_its_status_page_is_there_from_the_start_to_the_end(tmp_path: Path) -> None:
    with started(*broker_words(tmp_path, 1, "--http", "127.0.0.1:0")) as broker:
        assert broker.stderr is not None
        line = broker.stderr.readline().decode().rstrip()
        assert "INFO    broker 1 has its status page at http://127.0.0.1:" in line
        ready(broker)
        url = line.rpartition(" ")[2]
        found = command("metrics", url)
        assert b'replog_active_controller{broker="1"} 1' in found.stdout, found.stderr
        broker.send_signal(signal.SIGTERM)
        broker.communicate(timeout=60)
        assert broker.returncode == 0
    assert command("metrics", url).returncode != 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--http", "8101"), b"'8101' is not HOST:PORT, such as 127.0.0.1:8101"),
        (("--http", "0.0.0.0:0"), b"'0.0.0.0' can be reached from other machines"),
    ],
)
def test_a_status_page_that_cannot_be_served_starts_nothing(tmp_path: Path, words: tuple[str, ...], text: bytes) -> None:
    done = command(*broker_words(tmp_path, 1, *words))
    assert done.returncode == 2
    assert text in done.stderr
    assert not (tmp_path / "b1").exists()


def test_a_signal_is_heard_whichever_thread_gets_it(tmp_path: Path) -> None:
    """After SIGSTOP the system gives a waiting signal to whatever thread runs first."""
    with started(*broker_words(tmp_path)) as broker:
        ready(broker)
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):
            broker.send_signal(number)
        assert broker.wait(60) == 0


def test_a_second_signal_ends_it_now(tmp_path: Path) -> None:
    with started(*broker_words(tmp_path)) as broker:
        ready(broker)
        broker.send_signal(signal.SIGSTOP)  # so that it finds both when it goes on
        broker.send_signal(signal.SIGINT)
        broker.send_signal(signal.SIGTERM)
        broker.send_signal(signal.SIGCONT)
        assert broker.wait(60) in (128 + signal.SIGINT, 128 + signal.SIGTERM)  # the one that it found second: nobody promises which
    assert not (tmp_path / "b1" / "clean").exists()


def test_it_ends_when_stdin_is_closed(tmp_path: Path) -> None:
    with started(*broker_words(tmp_path, 1, "--until-stdin-closes")) as broker:
        ready(broker)
        assert broker.stdin is not None
        broker.stdin.write(b"whatever is said here means nothing\n")
        broker.stdin.close()
        assert broker.wait(60) == 0
    assert (tmp_path / "b1" / "clean").exists()


def test_without_the_option_stdin_means_nothing(tmp_path: Path) -> None:
    with started(*broker_words(tmp_path), stdin=subprocess.DEVNULL) as broker:
        endpoint, _ = ready(broker)
        with replog.connect(endpoint) as client:
            client.create_topic("t")
            assert client.topics() == ["t"]
        assert broker.poll() is None


def test_it_can_be_stopped_before_it_is_ready(tmp_path: Path) -> None:
    """Its store does not answer: a signal still ends it."""
    words = broker_words(tmp_path)
    words[words.index("--store") + 1] = "zookeeper://127.0.0.1:1/nowhere"
    with started(*words) as broker:
        assert broker.stderr is not None
        while b"Connection refused" not in (line := broker.stderr.readline()):
            assert line, "it has ended"
        broker.send_signal(signal.SIGTERM)
        stdout, _ = broker.communicate(timeout=60)
    assert (broker.returncode, stdout) == (0, b"")


def test_who_is_not_let_in_within_the_time_says_so(tmp_path: Path) -> None:
    words = broker_words(tmp_path, 1, "--timeout", "0.5")
    words[words.index("--store") + 1] = "zookeeper://127.0.0.1:1/nowhere"
    done = command(*words)
    assert (done.returncode, done.stdout) == (4, b"")
    assert b"replog: broker 1 was not let in within 0.5 s" in done.stderr


@pytest.mark.parametrize(
    ("instead", "says"),
    [
        ({"--listen": "tcp://0.0.0.0:0"}, "insecure"),
        ({"--listen": "http://127.0.0.1:0"}, "http://127.0.0.1:0"),
        ({"--data": "{folder}/file"}, "{folder}/file"),
        ({"--data": "{folder}/full"}, "{folder}/full"),
        ({"--session-ms": "1"}, "session_ms"),
        ({"--store": "file://{folder}/not/there/store.db"}, "file://{folder}/not/there/store.db"),
        ({"--store": "{folder}/store.db"}, "is not the URL of a store"),
        ({"--store": "etcd://127.0.0.1"}, "etcd"),
    ],
)
def test_a_wrong_argument_is_status_2(tmp_path: Path, instead: dict[str, str], says: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    words = broker_words(tmp_path)
    for word, value in instead.items():
        words[words.index(word) + 1] = value.format(folder=tmp_path)
    done = command(*words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert says.format(folder=tmp_path) in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_whoever_has_the_id_already_keeps_it(tmp_path: Path) -> None:
    with started(*broker_words(tmp_path)) as broker:
        ready(broker)
        words = broker_words(tmp_path)
        words[words.index("--data") + 1] = tmp_path / "another"
        refused = command(*words)
        assert (refused.returncode, refused.stdout) == (3, b"")
        assert b"replog: " in refused.stderr
        assert broker.poll() is None


def test_a_place_that_is_taken_is_status_2(tmp_path: Path) -> None:
    with started(*broker_words(tmp_path)) as broker:
        endpoint, _ = ready(broker)
        same_folder = command(*broker_words(tmp_path))
        assert same_folder.returncode == 2
        assert b"in use" in same_folder.stderr
        words = broker_words(tmp_path, 2)
        words[words.index("--listen") + 1] = endpoint
        same_port = command(*words)
        assert same_port.returncode == 2
        assert endpoint.encode() in same_port.stderr


def test_logs_can_be_looked_at_while_it_runs(tmp_path: Path) -> None:
    with started(*broker_words(tmp_path)) as broker:
        endpoint, _ = ready(broker)
        assert command("-b", endpoint, "topic", "create", "t").returncode == 0
        assert command("-b", endpoint, "produce", "t", stdin=b"a\nb\n").returncode == 0
        verified = command("log", "verify", tmp_path / "b1")
        assert (verified.returncode, verified.stdout.splitlines()[-1]) == (0, b"1 logs, all intact")
        assert command("-b", endpoint, "produce", "t", stdin=b"c\n").returncode == 0
        broker.kill()
    assert command("log", "verify", tmp_path / "b1").returncode == 0


def test_the_log_level_is_what_was_asked_for(tmp_path: Path) -> None:
    with started(*broker_words(tmp_path, 1, "--log-level", "error")) as broker:
        ready(broker)
        broker.send_signal(signal.SIGTERM)
        _, stderr = broker.communicate(timeout=60)
    assert stderr == b""


def test_whoever_reads_its_readiness_may_go(tmp_path: Path) -> None:
    """A closed stdout or stderr does not end a broker."""
    with started(*broker_words(tmp_path)) as broker:
        endpoint, _ = ready(broker)
        assert broker.stdout is not None
        assert broker.stderr is not None
        broker.stdout.close()
        broker.stderr.close()
        with replog.connect(endpoint) as client:
            client.create_topic("t")
            client.append("t", 0, ["x"])
        assert broker.poll() is None
        os.kill(broker.pid, signal.SIGTERM)
        eventually(lambda: broker.poll() is not None)
        assert broker.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stderr_that_takes_nothing_holds_up_nobody(tmp_path: Path, number: int) -> None:
    """A pipe that is open, full, and not read; or a terminal after Ctrl-S."""
    reader, writer = os.pipe()
    try:
        size = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4_096)
        assert os.write(writer, b"-" * size) == size
        with started(*broker_words(tmp_path), stderr=writer) as broker:
            endpoint, _ = ready(broker)
            with replog.connect(endpoint) as client:
                client.create_topic("t")
                client.append("t", 0, ["x"])
                assert [record.text() for record in client.read("t")] == ["x"]
            broker.send_signal(number)
            assert broker.wait() == 0
        assert os.read(reader, 2 * size) == b"-" * size
    finally:
        os.close(reader)
        os.close(writer)
    assert command("log", "verify", tmp_path / "b1").returncode == 0


def test_a_broker_that_cannot_start_ends_although_stderr_takes_nothing(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    try:
        size = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4_096)
        os.write(writer, b"-" * size)
        (tmp_path / "b1").write_text("a file")
        with started(*broker_words(tmp_path, 1, "--format", "json"), stderr=writer) as broker:
            stdout, _ = broker.communicate()
        assert broker.returncode == 2
        assert "is a file, not a log directory" in json.loads(stdout)["why"]
        assert os.read(reader, 2 * size) == b"-" * size
    finally:
        os.close(reader)
        os.close(writer)


def test_a_readiness_line_without_a_reader_does_not_end_it(tmp_path: Path) -> None:
    with started(*broker_words(tmp_path)) as broker:
        assert broker.stdout is not None
        assert broker.stderr is not None
        broker.stdout.close()
        while b"nobody was told 'ready broker 1" not in (line := broker.stderr.readline()):
            assert line, "it has ended"
        assert broker.poll() is None
        broker.send_signal(signal.SIGTERM)
        _, stderr = broker.communicate(timeout=60)
    assert broker.returncode == 0
    assert stderr.splitlines()[-1].endswith(b"broker 1 is stopped")
