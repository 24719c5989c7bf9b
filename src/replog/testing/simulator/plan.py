"""What one run will be, drawn from its seed before anything runs: the shape of the cluster and the plan of faults.

A plan is data: it can be printed, kept, edited and run again. Separate random streams decide separate things, so that a
change in one does not shift the rest.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import evolve, frozen

from replog.config import BrokerConfig, ClientConfig, TopicConfig
from replog.errors import UsageError
from replog.testing.simulator import limits, racks
from replog.testing.simulator.kinds import BEYOND, FILES, KINDS, LOSSY, MEMORY, check_kinds, length_of, roles_of
from replog.testing.simulator.limits import USUAL, Limits

__all__ = ["BATCH_BYTES", "KINDS", "UNCLEAN", "Fault", "Plan", "Shape", "applies", "check_sizes", "draw", "stream"]

BATCH_BYTES: Final = 16_384
"""How large batches grow."""
_KEEP = 0.6
"""Each run keeps each kind of fault with this probability: the rest of them get more room."""
_ABSENT = 0.4
"""Share of runs in which some broker stays out after the others are healed, if the others can do without."""

_SOMETIMES: Final = (
    ("retention_ms", "retention by age", 0.25, (500, 2_000, 8_000, 30_000)),  # mostly less than pauses of clients: a log loses all it has
    ("flush_heard_ms", "outcomes of flushes", 0.3, (20, 200, 1_500)),
    ("poll_ms", "polls", 0.4, (1, 3, 10)),
    ("flush_takes_ms", "lengths of flushes", 0.4, (5, 50, 400, 1_500)),
)
"""Fields of the shape that are 0 in most runs: the stream of each, the share of runs in which it is not, and what it is then."""
UNCLEAN: Final = ("", "topic", "asked", "both")
"""Who allows unclean elections: nobody, the configuration of every topic, a person who asks for one."""
_MOST: Final = {"brokers": 100, "partitions": 200, "clients": 200}
"""Field of a shape -> the most that it may be. Of more a run takes minutes, or does more in a second than its invariants allow (S21)."""


def stream(seed: int, name: str) -> random.Random:
    """A random stream of its own for one part of one run. Seeding with a str does not depend on PYTHONHASHSEED."""
    return random.Random(f"{seed}/{name}")


@frozen
class Shape:
    """The cluster and its surroundings, the same for the whole run."""

    brokers: int = 3
    replicas: int = 3
    min_isr: int = 2
    partitions: int = 1
    flush: str = "os"
    clients: int = 1
    drop: float = 0.0
    """Share of messages that get lost."""
    repeat: float = 0.0
    slow: float = 0.0
    """Share of messages that take up to `slow_ms`."""
    slow_ms: int = 500
    delay_ms: int = 3
    unsure: float = 0.0
    """Share of store calls whose outcome gets lost at any time."""
    session_ms: int = 1_500
    lag_ms: int = 500
    fetch_partition_bytes: int = 65_536
    think_ms: int = 60
    """Half the longest pause of a client between two things that it does."""
    workloads: tuple[str, ...] = ("append", "read")
    files: bool = False
    """Logs are files on a simulated disk; else they are in memory."""
    codec: bool = False
    """Every message is encoded and decoded on its way."""
    drift: float = 0.0
    """By how much the clock of each broker may run fast or slow: 0.05 is 5 %."""
    fetch_wait_ms: int = 200
    segment_bytes: int = 1 << 20
    retention_bytes: int = 0
    """0: none is removed by size."""
    compression: bool = False
    self_checks: bool = False
    """Brokers check themselves, as they can in production."""
    absent: int = 0
    """So many brokers stay out for a while after everything else is healed: the others must do without."""
    retention_ms: int = 0
    """0: nothing is removed by age."""
    flush_heard_ms: int = 0
    """What has been flushed is heard of up to so much later: between the two the log may have changed."""
    slice_bytes: int = 0
    """Of a publication so much is appended in one turn; 0: as much as usual."""
    slice_ms: int = 0
    """Between two turns of a publication pass up to so many ms more, if nothing else happens."""
    stage_ms: int = 0
    """What is put aside is kept so long; 0: as long as usual."""
    poll_ms: int = 0
    """Half of the messages are handed over up to so long before their actor gets its turn, which is one turn for all of them; 0: none."""
    flush_takes_ms: int = 0
    """A flush takes up to so long, while its broker goes on, and makes durable what was there when its fsync began; 0: it is one moment."""
    linger_ms: int = 0
    """So long batches of `produce` stay open."""
    batch_bytes: int = 0
    """How large its batches grow; 0: as large as others."""
    buffer_bytes: int = 0
    """What is under way of one of its producers at most; 0: as much as usual."""
    limits: Limits = USUAL
    """What else is smaller than usual."""
    racks: tuple[str, ...] = ()
    """Where each broker stands, and each client that reads, from the first on, and then the first again; none: nobody says where."""
    auto_create_topics_max: int = 0
    """Topics that are sought are made while there are not so many; 0: none is made."""
    unclean: str = ""
    """Who allows unclean elections (`UNCLEAN`). Then more may be lost at a time than acks=all survives, and the store has to say so."""

    def broker_config(self) -> BrokerConfig:
        """Timeouts scaled down, so that a run of some seconds sees many of them pass."""
        usual = BrokerConfig()
        scaled = BrokerConfig(
            publish_slice_bytes=self.slice_bytes or usual.publish_slice_bytes,
            stage_expiry_ms=self.stage_ms or usual.stage_expiry_ms,
            replica_lag_ms_max=self.lag_ms,
            fetch_wait_ms=self.fetch_wait_ms,
            fetch_timeout_ms=self.fetch_wait_ms + 1_000,
            fetch_partition_bytes_max=self.fetch_partition_bytes,
            retry_backoff_ms=20,
            retry_backoff_ms_max=300,
            proposal_timeout_ms=400,
            ack_timeout_ms=600,
            session_ms=self.session_ms,
            heartbeat_ms=500,
            reconcile_ms=4_000,
            checkpoint_interval_ms=900,
            retention_check_ms=700,
            deletion_delay_ms=1_500,
            open_files_max=8,
            index_interval_bytes=256,
            leader_imbalance_check_ms=3_000 if "lead" in self.workloads else 0,
            leader_imbalance_max=0.0,
            auto_create_topics=self.auto_create_topics_max > 0,
            auto_create_topics_max=self.auto_create_topics_max or usual.auto_create_topics_max,
            auto_create_partitions=2,
            auto_create_replication_factor=self.replicas,
            auto_create_min_isr=self.min_isr,
        )
        return self.limits.of_broker(scaled)

    def client_config(self) -> ClientConfig:
        """Timeouts of the clients, of the same scale."""
        return ClientConfig(
            request_timeout_ms=1_500,
            unanswered_ms=500,
            delivery_timeout_ms=15_000,
            retry_backoff_ms=20,
            retry_backoff_ms_max=300,
            fetch_wait_ms=100,
        )

    def producer_config(self) -> ClientConfig:
        """Of the producers of `produce`."""
        usual = self.client_config()
        room = {"batch_bytes": self.batch_bytes or BATCH_BYTES, "buffer_bytes": self.buffer_bytes or usual.buffer_bytes}
        return evolve(usual, linger_ms=self.linger_ms, **room)

    def topic_config(self) -> TopicConfig:
        """Of every topic of the run."""
        usual = TopicConfig(
            min_isr=self.min_isr,
            flush=self.flush,  # type: ignore[arg-type]
            flush_interval_ms=300,
            segment_bytes=self.segment_bytes,
            retention_bytes=self.retention_bytes or None,
            retention_ms=self.retention_ms or None,
            unclean_leader_election=self.unclean in ("topic", "both"),
        )
        return self.limits.of_topic(usual)


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
        pair = f"-{self.other}" if self.kind in ("cut", "cut_one_way", "slow_link") else ""
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
        shape = ", ".join(f"{name} {_plain(getattr(self.shape, name))}" for name in Shape.__annotations__)
        return "\n".join([f"seed {self.seed}: {shape}", f"faults for {self.safety_ms} ms:", *(f"  {fault}" for fault in self.faults)])


def _plain(value: object) -> str:
    return "+".join(value) if isinstance(value, tuple) else str(value)


def draw(seed: int, *, only: Sequence[str] | None = None, **shape_given: Any) -> Plan:
    """The plan of a seed. A directed one has faults of `only` these kinds, and fields of the shape as given.

    Sizes that are not given make room for those that are. Raises UsageError for a kind that there is not, if none of the kinds
    can befall the cluster, and for sizes that no cluster has: min_isr <= replicas <= brokers.
    """
    shape = _fit(evolve(_shape(stream(seed, "shape")), **shape_given), shape_given)
    if "absent" not in shape_given:
        shape = evolve(shape, absent=_absent(stream(seed, "absent"), shape))
    for name, part, share, values in _SOMETIMES:
        chance = stream(seed, part)
        drawn, value = chance.random() < share, chance.choice(values)
        if drawn and name not in shape_given:
            given: dict[str, Any] = {name: value}
            shape = evolve(shape, **given)
    if "limits" not in shape_given:
        writers = 2 * shape.clients if "once" in shape.workloads else 0
        slow = shape.flush_takes_ms + shape.flush_heard_ms > 0
        shape = evolve(shape, limits=limits.draw(stream(seed, "limits"), shape.brokers, writers, slow=slow))
    if "racks" not in shape_given:
        shape = evolve(shape, racks=racks.draw(stream(seed, "racks"), shape.brokers))
    shape = evolve(shape, **{name: value for name, value in _slices(stream(seed, "slices")).items() if name not in shape_given})
    if "workloads" not in shape_given:
        decides = ("decide",) if shape.unclean in ("asked", "both") else ()
        shape = evolve(shape, workloads=(*shape.workloads, *_blocking(stream(seed, "blocking clients")), *decides))
    seeking, most = _seeking(stream(seed, "sought topics"), shape.flush)
    if "workloads" not in shape_given:
        shape = evolve(shape, workloads=(*shape.workloads, *seeking))
    if "auto_create_topics_max" not in shape_given:
        shape = evolve(shape, auto_create_topics_max=most)
    shape = evolve(shape, **{name: value for name, value in _open(stream(seed, "open batches")).items() if name not in shape_given})
    chance = stream(seed, "faults")
    kinds = [kind for kind in KINDS if kind != "strand" and chance.random() < _KEEP]
    if only is not None:
        check_kinds(only)
        kinds = list(only)
    kinds = [kind for kind in kinds if applies(kind, shape)]
    if only and not kinds:
        raise UsageError(f"nothing of {', '.join(only)} can befall a cluster of this shape: {shape}")
    safety_ms = chance.randint(22_000, 95_000)
    faults = []
    for _ in range(chance.randint(5, 12) * safety_ms // 10_000 if kinds else 0):
        kind = chance.choice(kinds)
        broker = chance.randint(1, shape.brokers)
        roles = roles_of(kind)
        target = roles[0] if len(roles) == 1 else chance.choice((*roles, str(broker), str(broker)))
        length = length_of(chance, kind, shape)
        faults.append(Fault(chance.randint(0, safety_ms), kind, target, length, chance.randint(1, shape.brokers)))
    if only is None and applies("strand", shape):
        faults += _strands(stream(seed, "strands"), shape, safety_ms)
    faults.sort(key=lambda fault: fault.at_ms)
    return Plan(seed, shape, tuple(faults), safety_ms)


def applies(kind: str, shape: Shape) -> bool:
    """Whether a kind can befall such a cluster, and whether such a cluster promises to survive it."""
    if kind in FILES and not shape.files and kind not in MEMORY:
        return False
    if kind == "strand":  # nobody complete is left
        return bool(shape.unclean) and shape.replicas > 1
    if kind in BEYOND and shape.unclean:
        return True
    if kind == "power_all":  # only what is flushed before it is acknowledged survives that everywhere
        return shape.flush == "ack"
    if kind in LOSSY:
        return shape.min_isr >= 2
    return kind != "ring" or shape.brokers > 3


def _strands(chance: random.Random, shape: Shape, safety_ms: int) -> list[Fault]:
    """Where elections may lose something they are not left to chance alone."""
    return [
        Fault(chance.randint(0, safety_ms), "strand", "all", length_of(chance, "strand", shape)) for _ in range(chance.choice((0, 1, 2, 4)))
    ]


def _fit(shape: Shape, given: Mapping[str, Any]) -> Shape:
    """Let sizes that are not given follow those that are."""
    brokers, replicas, min_isr = shape.brokers, shape.replicas, shape.min_isr
    if "brokers" not in given:
        brokers = max(brokers, replicas if "replicas" in given else 1, min_isr if "min_isr" in given else 1)
    if "replicas" not in given:
        replicas = min(brokers, max(replicas, min_isr if "min_isr" in given else 1))
    if "min_isr" not in given:
        min_isr = min(min_isr, replicas)
    fitting = evolve(shape, brokers=brokers, replicas=replicas, min_isr=min_isr)
    check_sizes(fitting)
    return fitting


def check_sizes(shape: Shape) -> None:
    """Raise UsageError for sizes that no cluster has: 1 <= min_isr <= replicas <= brokers, and min_isr replicas are always there.

    And for more than can be simulated.
    """
    for name, most in _MOST.items():
        if not 1 <= (size := getattr(shape, name)) <= most:
            raise UsageError(f"{name} is {size}, and must be from 1 to {most}")
    brokers, replicas, min_isr, absent = shape.brokers, shape.replicas, shape.min_isr, shape.absent
    for small, many, large, room in (("replicas", replicas, "brokers", brokers), ("min_isr", min_isr, "replicas", replicas)):
        if not 1 <= many <= room:
            raise UsageError(f"{small} is {many}, {large} is {room}: {small} must be from 1 to {large}")
    if not 0 <= absent <= replicas - min_isr:
        raise UsageError(f"absent is {absent}, replicas is {replicas}, min_isr is {min_isr}: absent must be from 0 to replicas - min_isr")


def _absent(chance: random.Random, shape: Shape) -> int:
    """How many brokers stay out for a while: no more than acks=all promises to do without."""
    drawn, number = chance.random() < _ABSENT, chance.randint(1, 2)
    return min(number, shape.replicas - shape.min_isr, max(1, shape.min_isr - 1)) if drawn else 0


def _slices(chance: random.Random) -> dict[str, Any]:
    """How publications go on: mostly in many turns; and how long what is put aside is kept: mostly for longer than a run."""
    return {
        "slice_bytes": chance.choice((1, 1, 400, 2_000)),
        "slice_ms": chance.choice((0, 20, 200)),
        "stage_ms": chance.choice((0, 0, 0, 700, 5_000)),
    }


def _blocking(chance: random.Random) -> tuple[str, ...]:
    """Workloads of the real `Producer` and `Consumer`."""
    return tuple(name for name, share in (("produce", 0.25), ("consume", 0.25)) if chance.random() < share)


def _seeking(chance: random.Random, flush: str) -> tuple[tuple[str, ...], int]:
    """Whether clients seek topics that nobody creates, and how many topics there may be when one is made for them; 0: none is made.

    What is made so is flushed as usual: none is where power may fail everywhere at once.
    """
    drawn, most = chance.random() < 0.2, chance.choice((0, 2, 3, 5, 10_000, 10_000))
    return (("seek",) if drawn else ()), (most if drawn and flush != "ack" else 0)


def _open(chance: random.Random) -> dict[str, Any]:
    """How long a producer's batches stay open, how large they grow, and how much room there is for all of them."""
    return {
        "linger_ms": chance.choice((0, 2, 20, 20, 200, 2_000)),
        "batch_bytes": chance.choice((0, 0, 300, 1_500)),
        "buffer_bytes": chance.choice((0, 1_024, 4_096, 16_384)),
    }


def _shape(chance: random.Random) -> Shape:
    brokers = chance.choice((3, 3, 3, 3, 4, 5, 6, 1, 2, 7))
    replicas = chance.choice([n for n in (3, 3, 3, 5, 4, 2, 1) if n <= brokers])
    files = chance.random() < 0.3
    shape = Shape(
        brokers=brokers,
        replicas=replicas,
        min_isr=min(replicas, chance.choice((2, 2, 2, 2, 1, 3))),
        partitions=chance.choice((1, 1, 1, 2, 3, 8)),
        flush=chance.choice(("os", "os", "os", "ack", "ack", "interval")),
        clients=chance.choice((1, 2, 3)),
        drop=chance.choice((0.0, 0.0, 0.01, 0.05, 0.2)),
        repeat=chance.choice((0.0, 0.02, 0.1)),
        slow=chance.choice((0.0, 0.01, 0.05)),
        slow_ms=chance.choice((500, 2_000, 6_000)),
        delay_ms=chance.choice((3, 15, 50)),
        unsure=chance.choice((0.0, 0.0, 0.02, 0.1)),
        session_ms=chance.choice((1_500, 3_000, 6_000)),
        lag_ms=chance.choice((500, 1_000, 2_000, 3_000)),
        fetch_partition_bytes=chance.choice((1_024, 65_536)),
        think_ms=chance.choice((60, 250, 800)),
        workloads=_workloads(chance),
        files=files,
        codec=chance.random() < 0.1,
        drift=chance.choice((0.0, 0.0, 0.01, 0.05)),
        fetch_wait_ms=chance.choice((200, 500, 1_500)),
        segment_bytes=chance.choice((1 << 20, 256, 1_024, 65_536)),
        retention_bytes=chance.choice((0, 0, 0, 4_096, 32_768)),
        compression=chance.random() < 0.1,
        self_checks=chance.random() < 0.2,
    )
    # What is drawn last leaves all that was drawn before as it was: so do workloads that were added later.
    for name, share in (("offsets", 0.3), ("reassign", 0.25), ("reshape", 0.25), ("lead", 0.25), ("restored", 0.2), ("once", 0.3)):
        if chance.random() < share:
            shape = evolve(shape, workloads=(*shape.workloads, name))
    return shape


def _workloads(chance: random.Random) -> tuple[str, ...]:
    chosen = ["append"]
    for name, share in (("read", 0.7), ("follow", 0.5), ("topics", 0.4), ("plain", 0.3), ("burst", 0.2)):
        if chance.random() < share:
            chosen.append(name)
    return tuple(chosen)
