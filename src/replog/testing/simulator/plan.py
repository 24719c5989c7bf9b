"""What one run will be, drawn from its seed before anything runs: the shape of the cluster and the plan of faults.

A plan is data: it can be printed, kept and run again. Separate random streams decide separate things, so that a change in
one does not shift the rest.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve, frozen

from replog.config import BrokerConfig, ClientConfig, TopicConfig

__all__ = ["KINDS", "Fault", "Plan", "Shape", "draw", "stream"]

KINDS: Final = (
    "kill",  # a process ends, its log stays as written; it starts again after the length of the fault
    "power",  # as kill, but what was not flushed is gone
    "wipe",  # the data directory is gone
    "pause",  # a process stands still
    "expire",  # a store session ends while its process lives
    "churn",  # the leader's session expires, several times in a row
    "cut",  # two brokers do not reach each other
    "cut_one_way",  # only one way
    "isolate",  # a broker reaches nobody, and nobody reaches it; the store does
    "store",  # a broker does not reach the store
    "outage",  # nobody reaches the store
    "unsure",  # outcomes of a broker's store calls get lost, applied or not
    "lag",  # a follower does not get its fetch answers
    "flush",  # flushes of a broker take seconds
)
_KEEP: Final = 0.6
"""Each run keeps each kind of fault with this probability: the rest of them get more room."""
_LOSSY: Final = ("power", "wipe")


def stream(seed: int, name: str) -> random.Random:
    """A random stream of its own for one part of one run. Seeding with a str does not depend on PYTHONHASHSEED."""
    return random.Random(f"{seed}/{name}")


@frozen
class Shape:
    """The cluster and its surroundings, the same for the whole run."""

    brokers: int
    replicas: int
    min_isr: int
    partitions: int
    flush: str
    clients: int
    drop: float
    """Share of messages that get lost."""
    repeat: float
    slow: float
    """Share of messages that take up to `slow_ms`."""
    slow_ms: int
    delay_ms: int
    unsure: float
    """Share of store calls whose outcome gets lost at any time."""
    session_ms: int
    lag_ms: int
    fetch_partition_bytes: int
    think_ms: int

    def broker_config(self) -> BrokerConfig:
        """Timeouts scaled down, so that a run of some seconds sees many of them pass."""
        return BrokerConfig(
            replica_lag_ms_max=self.lag_ms,
            fetch_wait_ms=200,
            fetch_timeout_ms=1_200,
            fetch_partition_bytes_max=self.fetch_partition_bytes,
            retry_backoff_ms=20,
            retry_backoff_ms_max=300,
            proposal_timeout_ms=400,
            ack_timeout_ms=600,
            session_ms=self.session_ms,
            heartbeat_ms=400,
            reconcile_ms=2_500,
            checkpoint_interval_ms=900,
        )

    def client_config(self) -> ClientConfig:
        """Timeouts of the clients, of the same scale."""
        return ClientConfig(
            request_timeout_ms=1_500, delivery_timeout_ms=15_000, retry_backoff_ms=20, retry_backoff_ms_max=300, fetch_wait_ms=100
        )

    def topic_config(self) -> TopicConfig:
        """The one topic of the run."""
        return TopicConfig(min_isr=self.min_isr, flush=self.flush)  # type: ignore[arg-type]


@frozen
class Fault:
    """One fault: when, what, to whom, and for how long. `target` is a broker id, or a role that is looked up at that time."""

    at_ms: int
    kind: str
    target: str
    length_ms: int
    other: int = 0
    """The second broker of a cut."""

    def __str__(self) -> str:
        pair = f"-{self.other}" if self.kind.startswith("cut") else ""
        return f"{self.at_ms:>6} {self.kind} {self.target}{pair} for {self.length_ms}"


@frozen
class Plan:
    """Everything about a run that is decided before it."""

    seed: int
    shape: Shape
    faults: tuple[Fault, ...]
    safety_ms: int
    """How long faults may happen; afterwards everything is healed, and the cluster must recover."""

    def __str__(self) -> str:
        shape = ", ".join(f"{name} {getattr(self.shape, name)}" for name in Shape.__annotations__)
        return "\n".join([f"seed {self.seed}: {shape}", f"faults for {self.safety_ms} ms:", *(f"  {fault}" for fault in self.faults)])


def draw(seed: int, *, only: Sequence[str] | None = None, **shape_given: Any) -> Plan:
    """The plan of a seed. A directed one has faults of `only` these kinds, and fields of the shape as given."""
    shape = evolve(_shape(stream(seed, "shape")), **shape_given)
    chance = stream(seed, "faults")
    kinds = [kind for kind in KINDS if chance.random() < _KEEP]
    if only is not None:
        kinds = list(only)
    if shape.min_isr < 2:
        kinds = [kind for kind in kinds if kind not in _LOSSY]
    safety_ms = chance.randint(10_000, 30_000)
    faults = []
    for _ in range(chance.randint(5, 15) * safety_ms // 10_000 if kinds else 0):
        kind = chance.choice(kinds)
        broker = chance.randint(1, shape.brokers)
        roles = ["leader", "leader", "leader", "follower", "controller", str(broker), str(broker)]
        target = "leader" if kind == "churn" else "all" if kind == "outage" else chance.choice(roles)
        length = _length(chance, kind, shape)
        faults.append(Fault(chance.randint(0, safety_ms), kind, target, length, chance.randint(1, shape.brokers)))
    faults.sort(key=lambda fault: fault.at_ms)
    return Plan(seed, shape, tuple(faults), safety_ms)


def _shape(chance: random.Random) -> Shape:
    brokers = chance.choice((3, 3, 3, 4, 5))
    replicas = chance.choice([n for n in (3, 3, 3, 5, 2) if n <= brokers])
    return Shape(
        brokers=brokers,
        replicas=replicas,
        min_isr=min(replicas, chance.choice((2, 2, 2, 2, 1, 3))),
        partitions=chance.choice((1, 1, 2, 3)),
        flush=chance.choice(("os", "os", "os", "ack")),
        clients=chance.choice((1, 2, 3)),
        drop=chance.choice((0.0, 0.0, 0.01, 0.05)),
        repeat=chance.choice((0.0, 0.02, 0.1)),
        slow=chance.choice((0.0, 0.01, 0.05)),
        slow_ms=chance.choice((500, 2_000, 6_000)),
        delay_ms=chance.choice((3, 15, 50)),
        unsure=chance.choice((0.0, 0.0, 0.02, 0.1)),
        session_ms=chance.choice((1_500, 3_000)),
        lag_ms=chance.choice((500, 1_000, 2_000)),
        fetch_partition_bytes=chance.choice((1_024, 65_536)),
        think_ms=chance.choice((20, 60, 150)),
    )


def _length(chance: random.Random, kind: str, shape: Shape) -> int:
    """Half of the faults end before a session would, so that nobody else ever hears of them."""
    if kind in ("cut", "cut_one_way", "isolate", "lag"):
        return chance.randint(50, 3 * shape.lag_ms)
    if kind == "churn":
        return chance.randint(2, 4) * 700
    short = chance.random() < 0.5
    return chance.randint(5, shape.session_ms * 3 // 4) if short else chance.randint(shape.session_ms, shape.session_ms * 3)
