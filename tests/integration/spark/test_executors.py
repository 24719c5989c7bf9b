"""Executors in processes of their own: they import replog themselves, reach the brokers themselves, and may be killed under any task.

One Spark application runs all jobs, because each takes long to start: on one host, where executors are killed, and on two addresses, where
Spark tries slow tasks a second time (it never does on the host of the first attempt).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.spark.brokers import Brokers, differences, expected
from tests.integration.spark.cluster_jobs import ROWS
from tests.integration.spark.conftest import QUIET
from tests.integration.spark.faults import Faults
from tests.integration.spark.test_faults_batch import GUARANTEES, PIECES
from tools.java import spark_jars

from replog.testing.eventually import eventually

READ = 600
"""Rows in each of two partitions."""
HOSTS = ("127.0.0.2", "127.0.0.3")
SOON = {"spark.shuffle.io.maxRetries": "1", "spark.shuffle.io.retryWait": "100ms"}
"""Files of an executor that is gone are not asked for again and again."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


class Jobs:
    """Jobs for one application, and what they found."""

    def __init__(self, brokers: Brokers, folder: Path) -> None:
        self._brokers = brokers
        self._folder = folder
        self._jobs: list[dict[str, Any]] = []

    def add(self, kind: str, topic: str, *faults: tuple[str, str], **options: Any) -> Faults:
        folder = self._folder / f"job-{len(self._jobs)}"
        folder.mkdir()
        self._jobs.append({"kind": kind, "topic": topic, "faults": faults, "options": options, "folder": str(folder)})
        return Faults(str(folder))

    def run(self, master: str, config: dict[str, str], *, at_once: int = 1) -> list[Any]:
        plan = {
            **{"master": master, "config": {**QUIET, **config}, "servers": self._brokers.servers},
            **{"executors": 2, "at_once": at_once, "jobs": self._jobs},
        }
        command = [sys.executable, "-m", "tests.integration.spark.cluster_jobs", json.dumps(plan)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, cwd=self._folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def jobs(spark_environment: None, brokers: Brokers, tmp_path: Path) -> Jobs:
    return Jobs(brokers, tmp_path)


def filled(brokers: Brokers) -> tuple[str, list[list[Any]]]:
    """A topic, and what a read of it finds."""
    topic = brokers.topic(partitions=2)
    for partition in (0, 1):
        brokers.client.append(topic, partition, [f"{partition} {n}" for n in range(READ)])
    return topic, [[partition, n, f"{partition} {n}"] for partition in (0, 1) for n in range(READ)]


@pytest.mark.first
def test_executors_that_die(brokers: Brokers, jobs: Jobs) -> None:
    """E4: with an executor go the files of a shuffle, so the stage before runs again, and attempts are counted from 0 again. The jobs run
    side by side, and wait for each other where their executors are killed: these are started again once, not once for each job."""
    source, rows = filled(brokers)
    read = jobs.add("read", source, ("half way in 0", "kill executor"), minPartitions=4)
    writes: dict[str, Faults] = {}
    for options, config in GUARANTEES.values():
        topic = brokers.topic(**config)
        writes[topic] = jobs.add("save", topic, ("written in 0", "kill executor"), **options)
    topic = brokers.topic(**PIECES)
    writes[topic] = jobs.add("rows", topic, ("written in 0", "kill executor"))
    found = jobs.run("local-cluster[2,3,1024]", SOON, at_once=1 + len(writes))
    assert read.struck() == 1
    assert found[0]["rows"] == rows
    numbers = [[number for number, _ in faults.attempts("written in 0")] for faults in writes.values()]
    assert all(len(each) > 1 for each in numbers)
    assert max(each.count(0) for each in numbers) > 1
    for topic, faults in writes.items():
        assert faults.struck() == 1
        assert differences(brokers.rows(topic), expected(range(ROWS))) == {}


@contextmanager
def spark_class(name: str, *words: str, address: str, says: str) -> Iterator[Callable[[], str]]:
    """A process of Spark's; ended in the end. What is yielded waits for what it says of itself."""
    command = [str(spark_jars().parent / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", address, "--port", "0"]
    command += ["--webui-port", "0", *words]
    environment = {**os.environ, "SPARK_LOCAL_IP": address, "SPARK_NO_DAEMONIZE": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment) as process:
        said: list[str] = []
        assert process.stderr is not None
        reader = threading.Thread(target=said.extend, args=(process.stderr,), daemon=True)
        reader.start()

        def found() -> str | None:
            assert process.poll() is None, "".join(said)
            return next((match[0] for match in (re.search(says, line) for line in list(said)) if match), None)

        try:
            yield lambda: eventually(found, 120)
        finally:
            process.terminate()
            process.wait(60)
            reader.join(60)


@contextmanager
def two_hosts(folder: Path) -> Iterator[str]:
    """A standalone cluster whose two workers have addresses of their own; its address. They start while an application does."""
    with spark_class("master.Master", address="127.0.0.1", says=r"spark://127\.0\.0\.1:\d+") as address:
        master = address()
        first, second = (["--cores", "1", "--memory", "1g", "--work-dir", str(folder / host), master] for host in HOSTS)
        joined = "Successfully registered with master"
        with (
            spark_class("worker.Worker", *first, address=HOSTS[0], says=joined) as one,
            spark_class("worker.Worker", *second, address=HOSTS[1], says=joined) as two,
        ):
            yield master
            assert one() == two() == joined


@pytest.mark.first
def test_slow_tasks_are_tried_on_another_host(brokers: Brokers, jobs: Jobs, tmp_path: Path) -> None:
    """E3: two attempts at the same rows at once. They meet half way, or when both have written everything; one of them counts."""
    source, rows = filled(brokers)
    jobs.add("read", source, minPartitions=8, hosts=len(HOSTS))
    writes: list[tuple[str, str, Faults]] = []
    for point in ("half way in 3", "written in 3"):
        for options, config in GUARANTEES.values():
            topic = brokers.topic(**config)
            writes.append((topic, point, jobs.add("save", topic, (point, "meet"), **options)))
        for config in ({}, PIECES):
            topic = brokers.topic(**config)
            writes.append((topic, point, jobs.add("rows", topic, (point, "meet"))))
    with two_hosts(tmp_path) as master:
        found = jobs.run(master, {**SPECULATION, "spark.executor.memory": "1g"})
    assert found[0] == {"rows": rows, "hosts": list(HOSTS)}
    for topic, point, faults in writes:
        assert [number for number, _ in faults.attempts(point)] == [0, 1]
        assert differences(brokers.rows(topic), expected(range(ROWS))) == {}
