"""What a failover costs at ZooKeeper: transactions and requests, counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.integration.zookeeper.conftest import OpenStore

import replog
from replog.messages import LeaderAndIsr
from replog.ports import Check, Put
from replog.testing.eventually import eventually

pytestmark = pytest.mark.zookeeper

PATIENT_MS = 600_000
"""Nothing is sent again because time has passed."""
CONFIG = {name: PATIENT_MS for name in ("ack_timeout_ms", "heartbeat_ms", "reconcile_ms", "replica_lag_ms_max")}
SLICE = 1_000


class Costs:
    """What one controller has asked of the store and of the brokers."""

    def __init__(self, controller: Any) -> None:
        self.transactions: list[list[Any]] = []
        """Those that change states of partitions."""
        self.requests: dict[int, list[int]] = {}
        """Broker -> how many partitions each of its requests names."""
        self.verbs: Counter[str] = Counter()
        self._outbox = controller.outbox
        for name in ("receive", "tick"):
            setattr(controller, name, self._watched(getattr(controller, name)))

    def _watched(self, act: Any) -> Any:
        def watched(*arguments: Any) -> None:
            act(*arguments)
            for call in self._outbox.calls:
                self.verbs[call.verb] += 1
                if call.verb == "commit_each":
                    self.transactions += [ops for ops in call.argument if any(op.path.endswith("/leaderAndISR") for op in ops)]
            for to, message in self._outbox.messages:
                if isinstance(message, LeaderAndIsr):
                    self.requests.setdefault(to, []).append(len(message.entries))

        return watched


def create_led_by(cluster: replog.Cluster, leader: int, count: int) -> None:
    """A topic of so many partitions, all led by one broker."""
    others = [b for b in cluster.brokers if b != leader]
    assignment = {p: [leader, *(others if p % 2 else reversed(others))] for p in range(count)}
    cluster.create_topic("t", assignment=assignment, min_isr=2, timeout_s=120)
    eventually(lambda: {one.leader for one in cluster.describe("t").partitions} == {leader}, 60)


@pytest.mark.parametrize(("count", "slices"), [(1_000, 1), (2_500, 3)])
def test_a_slice_is_one_transaction_and_one_request_to_each_survivor(open_store: OpenStore, count: int, slices: int) -> None:
    """A slice is stored, then told: no broker is asked twice about a partition, none is asked for one partition at a time."""
    with replog.Cluster(brokers=3, store=open_store(session_ms=20_000), config=CONFIG) as cluster:
        controller = cluster.controller_id
        assert controller is not None
        dead = next(b for b in cluster.brokers if b != controller)
        create_led_by(cluster, dead, count)
        executor = cluster._embedded.running[controller].controller
        eventually(lambda: not executor.unacknowledged, 60)
        costs = Costs(executor)
        cluster.kill_broker(dead)
        eventually(lambda: all(len(one.isr) == 2 and one.leader != dead for one in cluster.describe("t").partitions), 60)
        eventually(lambda: not executor.unacknowledged, 60)
    expected = [min(SLICE, count - at) for at in range(0, count, SLICE)]
    assert len(expected) == slices
    assert [len(ops) - 1 for ops in costs.transactions] == expected
    for ops in costs.transactions:
        assert isinstance(ops[0], Check)
        assert all(isinstance(op, Put) for op in ops[1:])
    survivors = {1, 2, 3} - {dead}
    assert costs.requests == dict.fromkeys(sorted(survivors), expected)
    # Nothing is read for it but who is registered, a list and the values there; and before anybody is told, that the seat is kept.
    assert costs.verbs["read_each"] == 2
