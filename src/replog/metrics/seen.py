"""The metrics that anybody can tell who knows who leads what: for the command line, without asking a broker for its own."""

from __future__ import annotations

from typing import Final

from replog.client.view import View
from replog.config import default_min_isr
from replog.metrics.reading import Tally
from replog.metrics.snapshot import Sample, Snapshot

__all__ = ["SEEN", "seen"]

SEEN: Final = (
    "partitions", "leaders", "under_replicated_partitions", "under_min_isr_partitions", "at_min_isr_partitions",
    "preferred_leader_imbalance", "reassigning_partitions",
)  # fmt: skip
"""Of each broker; further `active_controller` and `offline_partitions`."""


def seen(view: View, wall_ms: int, *, is_led: bool = True) -> Snapshot:
    """Counted for each registered broker as it would count itself; `is_led`: whether the controller that the view names answers."""
    tallies = {broker_id: Tally(str(broker_id), 0, False) for broker_id in sorted(view.brokers)}
    offline = 0
    for topic in view.topics.values():
        for p in topic.partitions.values():
            offline += p.leader is None
            for broker_id in p.replicas:
                if broker_id in tallies:
                    tallies[broker_id].counts["partitions"] += 1
            if p.leader in tallies:
                least = topic.config.min_isr or default_min_isr(len(p.replicas) - len(p.adding))
                tallies[p.leader].led(p.replicas, p.isr, least, bool(p.adding or p.removing), len(p.adding))
    samples = [Sample(f"replog_{name}", (str(b),), tally.counts[name]) for b, tally in tallies.items() for name in SEEN]
    controller = view.brokers.get(view.controller)
    in_charge = None if controller is None or controller.fenced or not is_led else view.controller
    samples += [Sample("replog_active_controller", (str(b),), int(b == in_charge)) for b in tallies]
    samples += [Sample("replog_offline_partitions", (str(b),), offline if b == in_charge else 0) for b in tallies]
    return Snapshot(wall_ms, samples)
