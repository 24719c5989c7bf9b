"""A broker that leads everything is killed: what its successors cost, against the bare limit of the same nodes in the same run.

Run with `pytest benchmarks/test_failover.py --benchmark-enable -s`; it takes some minutes. Three broker processes with a record in each
partition and a real ZooKeeper; RF 3, every state changes. `multis` is the limit: the same paths and bytes changed by kazoo alone, in
multis of a thousand that are all on their way at once; `reads` the same states read by kazoo alone, all on their way at once;
`one by one` the same changes by a call for each, the next once the last is answered.

- `failover`: from the watch that fires to every partition led and both survivors' answers to all they were told.
- `beyond detection`: the same from the kill, less the session time and ZooKeeper's tick, within which death is noticed at the latest.
- `by another`: the controller is killed with the leader, and a new one reads everything first.
- The stages are V3's, which estimated 40 s for the third of them with 10,000 partitions; here in seconds after the watch, but for the
  first two. A record is then appended to each partition, acks=all: `committed` is when the last one was.
- `growth`: times as long as the row before, with ten times as many partitions.

Processes share the processors with each other and with ZooKeeper: where these are few, that is part of the figures.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.failover import DEAD, SESSION_MS, Bare, Failover, Trio, assignments
from benchmarks.measuring import report, timed
from benchmarks.targets import Target, at_least, at_most
from tests.integration.zookeeper_server import TICK_MS, ZooKeeperServer

import replog
from replog.metadata import layout
from replog.metadata.memory import MemoryStore
from replog.ports import Check, Create, Op, Put

pytestmark = [pytest.mark.zookeeper, pytest.mark.processes, pytest.mark.long]

SIZES = (100, 1_000, 10_000)
MEMORY_SIZES = (*SIZES, 100_000)
ROUNDS = 3
MULTI = 1_000
AFTER_S = 0.15
"""What a failover of the most partitions is to take after its detection."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """It keeps the last 500 transactions in memory: with multis of this size that takes more than tests give it."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper") / "server", heap_mib=1_024).start()
    yield server
    server.kill()


def told(capsys: Any, *lines: str) -> None:
    """Print to whoever runs the benchmark."""
    with capsys.disabled():
        print("", *lines, sep="\n", flush=True)


def spent(failover: Failover, limit_cpu_s: float) -> str:
    """How often it asked whom, and the processor time."""
    seen, cpu_s = failover.controller, failover.cpu_s()
    requests = {int(to): len(sizes) for to, sizes in sorted(seen["notices"].items())}
    return (
        f"{seen['transactions']} transactions with {seen['puts']} changes, requests to brokers {requests}; processor s: "
        f"the controller's process {cpu_s['controller']:.2f}, the other's {cpu_s['other']:.2f}, bare multis {limit_cpu_s:.2f}"
    )


def row(capsys: Any, server: ZooKeeperServer, folder: Path, count: int, controller: int) -> dict[str, float]:
    """One failover: by a controller that knows everything, or by one that has to read it first."""
    chroot, bare_chroot = f"/ours-{count:06}-{controller}", f"/bare-{count:06}-{controller}"
    with Trio(f"{server.address}{chroot}", folder / chroot[1:], count, controller) as trio:
        bare = Bare(server.address, trio, chroot, bare_chroot)
        reads = [bare.read_s() for _ in range(ROUNDS)]
        singly = [bare.one_by_one_s() for _ in range(ROUNDS)]
        multis = [bare.multis_s() for _ in range(ROUNDS + 1)][1:]
        failover = trio.fail_over()
        failover.append()
        multis += [bare.multis_s() for _ in range(ROUNDS)]
        singly += [bare.one_by_one_s() for _ in range(ROUNDS)]
        reads += [bare.read_s() for _ in range(ROUNDS)]
        bare.close()
    kind = "by another controller" if controller == DEAD else "failover"
    lines = [f"{kind} of {count:,} partitions at ZooKeeper: {spent(failover, statistics.median(cpu for _, cpu in multis))}"]
    lines += [f"  {name:<44} {value:9.3f} s" for name, value in failover.stages.items()]
    told(capsys, *lines)
    return {
        "multis_s": statistics.median(taken for taken, _ in multis),
        "reads_s": statistics.median(reads),
        "one_by_one_s": statistics.median(singly),
        "beyond_s": failover.from_kill_s - (SESSION_MS + TICK_MS) / 1_000,
        "total_s": failover.total_s,
        "committed_s": failover.committed_s,
        "loaded_s": failover.loaded_s,
    }


def growth(rows: dict[int, dict[str, float]], count: int, name: str) -> str:
    """Times the row before."""
    before = rows.get(count // 10)
    return "" if before is None else f"{rows[count][name] / before[name]:.1f}"


def test_at_zookeeper(benchmark: Any, capsys: Any, tmp_path: Path, server: ZooKeeperServer) -> None:
    """100 to 10,000 partitions: a failover in multis, and what a new controller takes beyond it, in reads."""
    warm: dict[int, dict[str, float]] = {}
    cold: dict[int, dict[str, float]] = {}
    for count in SIZES:
        warm[count] = row(capsys, server, tmp_path, count, 1)
        cold[count] = row(capsys, server, tmp_path, count, DEAD)
    lines = [f"{'partitions':>10}{'multis s':>10}{'failover s':>12}{'ratio':>7}{'growth':>8}{'committed s':>13}"]
    figures: dict[str, float] = {}
    targets: list[Target] = []
    lines[0] += f"{'reads s':>9}{'by another s':>14}{'growth':>8}{'over reads':>12}{'one by one s':>14}{'beyond detection s':>20}"
    for count in SIZES:
        one, other = warm[count], cold[count]
        ratio, over = one["total_s"] / one["multis_s"], (other["total_s"] - one["total_s"]) / other["reads_s"]
        lines.append(
            f"{count:>10,}{one['multis_s']:>10.3f}{one['total_s']:>12.3f}{ratio:>7.1f}{growth(warm, count, 'total_s'):>8}"
            f"{one['committed_s']:>13.3f}{other['reads_s']:>9.3f}{other['total_s']:>14.3f}{growth(cold, count, 'total_s'):>8}{over:>12.2f}"
            f"{one['one_by_one_s']:>14.3f}{one['beyond_s']:>20.3f}"
        )
        figures |= {f"ratio_{count}": ratio, f"over_reads_{count}": over, f"failover_s_{count}": one["total_s"]}
        figures |= {f"times_one_by_one_{count}": one["one_by_one_s"] / one["total_s"], f"beyond_detection_s_{count}": one["beyond_s"]}
        targets += [at_most(f"ratio_{count}", 1.5), at_most(f"over_reads_{count}", 1.15)]
    targets += [at_most(f"failover_s_{SIZES[-1]}", AFTER_S), at_most(f"beyond_detection_s_{SIZES[-1]}", AFTER_S)]
    targets += [at_least(f"times_one_by_one_{SIZES[-1]}", 25)]
    told(capsys, *lines)
    report(benchmark, capsys, "failover at ZooKeeper / bare multis, and bare reads", figures, *targets)
    benchmark.pedantic(lambda: None, rounds=1)


def bare_commit_s(count: int) -> float:
    """The same nodes of a store in memory, changed in as many transactions, and nothing else."""
    store = MemoryStore()
    store.commit([Create(layout.CONTROLLER_EPOCH, b"1")])
    paths = [layout.partition_state_path(topic, p) for topic, parts in assignments(count).items() for p in parts]
    guard, value = Check(layout.CONTROLLER_EPOCH, 0), b"x" * 130
    changes: list[list[Op]] = []
    for at in range(0, count, MULTI):
        store.commit([guard, *(Create(path, value) for path in paths[at : at + MULTI])])
        changes.append([guard, *(Put(path, value, 0) for path in paths[at : at + MULTI])])
    return timed(lambda: [store.commit(ops) for ops in changes])


def memory_row(count: int) -> dict[str, float]:
    """Three brokers in this process, logs and store in memory: from the kill to everything led and told."""
    with replog.Cluster(brokers=3) as cluster:
        dead = next(b for b in cluster.brokers if b != cluster.controller_id)
        for topic, parts in assignments(count, dead).items():
            cluster.create_topic(topic, assignment=parts, min_isr=2, timeout_s=600)
        cluster.wait_until_in_sync(timeout_s=600)
        controller = cluster.controller_id
        assert controller not in (None, dead)
        executor = cluster._embedded.running[controller].controller

        def is_over() -> bool:
            term = executor._term
            return term is not None and not term.cluster.due and not executor.unacknowledged

        def fail_over() -> None:
            cluster.kill_broker(dead)
            assert cluster._embedded.wait(is_over, 600)

        cpu_s = time.process_time()
        total_s = timed(fail_over)
        cpu_s = time.process_time() - cpu_s
        term = executor._term
        assert term is not None
        assert all(state.leader not in (None, dead) for state in term.cluster.states.values())
        assert len(term.cluster.states) == count
    return {"total_s": total_s, "cpu_s": cpu_s, "bare_s": bare_commit_s(count)}


def test_on_the_memory_store(benchmark: Any, capsys: Any) -> None:
    """100 to 100,000 partitions, everything in one process: does each cost the same? `us each` and `growth` are processor time, which
    neighbours disturb less."""
    rows: dict[int, dict[str, float]] = {}
    figures: dict[str, float] = {}
    targets: list[Target] = []
    lines = [f"{'partitions':>10}{'failover s':>12}{'processor s':>13}{'us each':>9}{'growth':>8}{'bare commits s':>16}"]
    for count in MEMORY_SIZES:
        one = rows[count] = memory_row(count)
        each = one["cpu_s"] / count * 1e6
        shown = f"{count:>10,}{one['total_s']:>12.3f}{one['cpu_s']:>13.3f}{each:>9.0f}"
        lines.append(f"{shown}{growth(rows, count, 'cpu_s'):>8}{one['bare_s']:>16.3f}")
        figures[f"us_each_{count}"] = each
        if count // 10 in rows:
            figures[f"growth_{count}"] = one["cpu_s"] / rows[count // 10]["cpu_s"]
            targets.append(at_most(f"growth_{count}", 10))
    told(capsys, *lines)
    report(benchmark, capsys, "failover on the memory store, three brokers in one process", figures, *targets)
    benchmark.pedantic(lambda: None, rounds=1)
