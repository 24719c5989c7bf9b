"""A few runs of real brokers under faults, and what judges them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.chaos import faults, running
from tests.chaos.brokers import Brokers
from tests.chaos.links import Links
from tests.chaos.load import TOPIC, Load
from tests.chaos.running import PROGRESS_MIN, Run, run
from tests.chaos.stores import FileUnderTest

import replog
from replog.errors import Unavailable
from replog.testing.history import History, check

SECONDS = 15.0


@pytest.mark.parametrize(("store", "seed"), [("file", 1), pytest.param("zookeeper", 2, marks=pytest.mark.zookeeper)])
@pytest.mark.processes
def test_under_faults_nothing_is_lost_and_work_goes_on(store: str, seed: int) -> None:
    said: list[str] = []
    done = run(store, seed, SECONDS, say=said.append)
    assert done.broken == [], "\n".join(said)
    assert done.records >= done.acknowledged
    assert sum(done.faults.values()) >= SECONDS / 5


def test_a_fault_begins_at_least_every_five_seconds() -> None:
    assert faults.SECONDS[1] + faults.PAUSES[1] <= 5
    assert len(faults.draw(7, [1, 2, 3], 60)) >= 12


def test_a_seed_is_a_plan_and_seeds_bring_every_kind() -> None:
    assert faults.draw(7, [1, 2, 3], 60) == faults.draw(7, [1, 2, 3], 60)
    assert {fault.kind for seed in range(20) for fault in faults.draw(seed, [1, 2, 3], 60)} == set(faults.KINDS)


def test_a_log_that_ends_too_early_is_seen() -> None:
    with replog.Cluster(brokers=3, listen="tcp://127.0.0.1:0") as cluster:
        load = Load(cluster.endpoints[0], 2, writes=False, readers=0)
        for partition, value in enumerate("ab"):
            cluster.append(TOPIC, partition, [value])
            load.history.invoke_send("p", load.key(partition), [value]).ok(0)
        assert load.read_all() == 2
        assert check(load.history).ok
        load.history.invoke_send("p", load.key(1), ["c"]).ok(1)  # and it is not there, although no count is short
        assert load.read_all() == 2
        assert "unseen" in str(check(load.history))


def test_what_is_raised_is_counted() -> None:
    run, said = Run("file", 1, 3, 1.0), list[str]()
    with running.told(run.broken, said.append):
        raise AssertionError("a thread hangs")
    assert run.broken == ["AssertionError: a thread hangs"]
    assert "Traceback" in said[0]

    def nobody() -> int:
        raise Unavailable("nobody leads")

    history = History()
    history.invoke_send("p", "k", ["a"]).ok(0)
    history.invoke_poll("r", "k", 0).ok([(0, "b")])
    load: Any = SimpleNamespace(acknowledged=5, troubles=[], history=history, read_all=nobody)
    with running.told(run.broken, said.append):
        running._judge(run, load)
    assert len(run.broken) == 3
    assert run.broken[2] == "Unavailable: nobody leads"


def test_a_broker_that_ends_by_itself_is_seen(tmp_path: Path) -> None:
    ports: dict[int, int] = {}
    process: Any = SimpleNamespace(is_running=True, last_lines=["KeyError: 7"])
    with Links(ports) as links:
        brokers = Brokers(tmp_path, FileUnderTest(tmp_path), links, ports, {})
    brokers.processes[2] = process
    brokers.check_alive()
    process.is_running = False
    with pytest.raises(AssertionError, match="KeyError: 7"):
        brokers.check_alive()


def judged(run: Run, *, read: int, troubles: list[str] | None = None, history: History | None = None) -> list[str]:
    load: Any = SimpleNamespace(acknowledged=read, troubles=troubles or [], history=history or History(), read_all=lambda: read)
    load.acknowledged = 5
    running._judge(run, load)
    return run.broken


def test_what_is_judged() -> None:
    made = Run("file", 1, 3, 1.0)
    assert judged(made, read=5) == []
    assert judged(made, read=4) == ["5 records were acknowledged, and 4 are there"]
    assert judged(Run("file", 1, 3, 1.0), read=5, troubles=["reader 1: KeyError()"]) == ["reader 1: KeyError()"]
    slow = Run("file", 1, 3, 1.0, progress={kind: PROGRESS_MIN for kind in faults.KINDS} | {"kill": PROGRESS_MIN - 1})
    assert judged(slow, read=5) == ["99 acknowledgements during a fault 'kill'; 100 are wanted"]
    history = History()
    history.invoke_send("p", "k", ["a"]).ok(0)
    history.invoke_poll("r", "k", 0, final=True).ok([(0, "b")])
    assert len(judged(Run("file", 1, 3, 1.0), read=5, history=history)) == 1
