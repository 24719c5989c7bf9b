"""`BrokerProcess`: a broker in a child process, killed, paused, forgotten and forked away from."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from tests.integration.processes.cli import broker_processes, environment

import replog
from replog.errors import TimedOut, Unavailable, UsageError
from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes


def is_alive(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_life(tmp_path: Path) -> None:
    with replog.BrokerProcess(1, data=tmp_path / "b1", store=f"file://{tmp_path}/store.db") as broker:
        assert is_alive(broker.pid)
        with replog.connect(broker.endpoint) as client:
            client.create_topic("t")
            client.append("t", 0, ["x"])
            assert client.describe_cluster().cluster_id == broker.cluster_id
        with pytest.raises(UsageError, match="runs already"):
            broker.start()
        first = broker.pid
    assert not broker.is_running
    assert not is_alive(first)
    assert broker.wait() == 0
    assert broker.last_lines[-1].endswith("broker 1 is stopped")
    assert broker.stop() == 0

    with broker, replog.connect(broker.endpoint) as client:
        assert broker.pid != first
        assert [record.text() for record in client.read("t")] == ["x"]
        broker.kill()
        assert broker.wait() == -signal.SIGKILL
        broker.kill()
    with broker, replog.connect(broker.endpoint) as client:
        assert [record.text() for record in client.read("t")] == ["x"]


def test_its_status_page(tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store.db"
    with replog.BrokerProcess(1, data=None, store=store, http="127.0.0.1:0") as broker, replog.connect(broker.endpoint) as client:
        assert client.describe_cluster().cluster_id == broker.cluster_id
        assert broker.status_url.startswith("http://127.0.0.1:")
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{broker.status_url}metrics?format=json", timeout=60) as answer:
            (leads,) = json.load(answer)["replog_active_controller"]
        assert leads == {"labels": {"broker": "1"}, "value": 1}
    broker = replog.BrokerProcess(1, data=None, store=store, http="192.0.2.1:0")
    with pytest.raises(Unavailable, match=r"ended with status 2 before it was ready; it said:\n.*can be reached from other machines"):
        broker.start()
    assert broker.status_url == ""


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "b1").mkdir()
    (tmp_path / "b1" / "thesis.txt").write_text("x")
    broker = replog.BrokerProcess(1, data=tmp_path / "b1", store=f"file://{tmp_path}/store.db")
    with pytest.raises(Unavailable, match=r"ended with status 2 before it was ready; it said:\n.*thesis.txt"):
        broker.start()
    assert not broker.is_running

    broker = replog.BrokerProcess(1, data=tmp_path / "b2", store="zookeeper://127.0.0.1:1/nowhere")
    with pytest.raises(TimedOut, match=r"waited 3 s for broker 1 to be ready"):
        broker.start(timeout_s=3)
    assert not broker.is_running
    assert not is_alive(broker.pid)


def test_without_a_thread_for_its_lines_there_is_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would read its stderr: it would stand still when the pipe is full."""
    broker = replog.BrokerProcess(1, data=None, store=f"file://{tmp_path}/store.db")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            broker.start()
    try:
        assert not is_alive(broker.pid)
        assert broker.wait() == -signal.SIGKILL
    finally:
        if is_alive(broker.pid):
            os.kill(broker.pid, signal.SIGKILL)
    with broker:
        assert broker.is_running


def connect(brokers: list[replog.BrokerProcess]) -> replog.Client:
    """A client that does not wait for long for a broker that stands still."""
    return replog.connect([broker.endpoint for broker in brokers], config={"request_timeout_ms": 1_000})


def test_a_paused_leader_loses_its_place_and_comes_back(tmp_path: Path) -> None:
    with broker_processes(tmp_path, 3) as brokers, connect(brokers) as client:
        client.create_topic("t", partitions=1, replication_factor=3, min_isr=2)
        client.append("t", 0, ["before"])
        leader = client.leader("t", 0)
        brokers[leader - 1].pause()
        assert brokers[leader - 1].is_running
        client.append("t", 0, ["meanwhile"], timeout_s=60)
        eventually(lambda: client.leader("t", 0) not in (leader, None))
        brokers[leader - 1].resume()
        eventually(lambda: len(client.describe("t").partitions[0].isr) == 3, 60)
        client.append("t", 0, ["after"])
        assert [record.text() for record in client.read("t")] == ["before", "meanwhile", "after"]
        brokers[leader - 1].pause()
        assert brokers[leader - 1].stop() == 0, "one that stands still is stopped as well"


PARENT = """
import os, sys
import replog
broker = replog.BrokerProcess(1, data=sys.argv[1] + "/b1", store=f"file://{sys.argv[1]}/store.db").start()
print(broker.pid, flush=True)
sys.stdin.read()
"""


def test_the_child_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
        parent.wait()
        eventually(lambda: not is_alive(child))
    assert (tmp_path / "b1" / "clean").exists(), "it has ended in a controlled way"


FORKING = """
import os, sys, time
import replog
from replog.testing.eventually import eventually
broker = replog.BrokerProcess(1, data=sys.argv[1] + "/b1", store=f"file://{sys.argv[1]}/store.db").start()
told, tell = os.pipe()
keep, release = os.pipe()
child = os.fork()
if child == 0:
    os.close(told), os.close(release)
    try:
        broker.kill()
        answer = b"killed"
    except replog.UsageError:
        answer = b"refused" if not broker.is_running else b"running"
    os.write(tell, answer)
    os.read(keep, 1)  # stays while its parent closes the broker's stdin
    os._exit(0)
print(os.read(told, 100).decode(), broker.is_running, flush=True)
with replog.connect(broker.endpoint) as client:
    client.create_topic("t")
broker._process.stdin.close()
print(broker.wait(60), flush=True)
os.close(release)
os.close(keep)
print(os.waitpid(child, 0)[1], flush=True)
"""


def test_a_fork_neither_harms_nor_keeps_it(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", FORKING, str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("refused True\n0\n0\n", "")


def test_ctrl_c_on_the_terminal_is_for_the_parent(tmp_path: Path) -> None:
    with broker_processes(tmp_path, 1) as (broker,):
        assert os.getpgid(broker.pid) != os.getpgid(0)
