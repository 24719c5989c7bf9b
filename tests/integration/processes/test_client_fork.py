"""A client in a forked child is another client: own connections, own producer ids, nothing of the parent's under way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

# The parent has brokers, connections, a batch that lingers, one with a callback and threads. It forks a child that forks two
# children before it has done anything itself, as Spark's daemon does.
PROGRAM = """
import json, os, sys, threading
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from tests.integration.processes.served import Served
from replog.testing.eventually import eventually

called = []

def send(client, producer, name):
    for n in range(3):
        client.append("t", 0, [f"{name} appends {n}"])
        producer.send("t", f"{name} sends {n}").result(timeout_s=30)
    records = [r.text() for r in client.read("t")]
    assert f"{name} sends 2" in records and "the parent lingers" not in records, records
    assert not called, called
    client.close()

def fork(work):
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(1)
    return child

def daemon(client, producer, pending):
    assert pending.done() and pending.exception() is not None
    children = [fork(lambda name=name: send(client, producer, name)) for name in ("worker 1", "worker 2")]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    send(client, producer, "daemon")

with Served(Path(sys.argv[1]), 3) as served, served.connect() as client:
    client.create_topic("t")
    producer = client.producer(linger_ms=60_000)
    client.append("t", 0, ["the parent appends first"])
    pending = producer.send("t", "the parent lingers")
    pending.add_done_callback(lambda delivery: called.append(os.getpid()))
    eventually(lambda: client._driver._polling is not None)  # the thread that looks after the batch
    child = fork(lambda: daemon(client, producer, pending))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    client.append("t", 0, ["the parent appends last"])
    producer.flush(timeout_s=30)
    print(json.dumps({"status": status, "called": called == [os.getpid()], "records": [r.text() for r in client.read("t")]}))
"""


def test_children_go_on_by_themselves_and_do_not_harm_their_parents(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(root)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["status"] == 0, done.stderr
    assert said["called"]
    names = ("worker 1", "worker 2", "daemon")
    expected = [f"{name} {verb} {n}" for name in names for verb in ("appends", "sends") for n in range(3)]
    expected += ["the parent appends first", "the parent appends last", "the parent lingers"]
    assert sorted(said["records"]) == sorted(expected)
