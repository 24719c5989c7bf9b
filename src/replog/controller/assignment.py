"""Where the copies of a new topic go: round robin, leaders spread, racks alternating. The same input, the same answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from replog.config import check_partition_number
from replog.errors import UsageError

__all__ = ["alternate_racks", "check_assignment", "check_replicas", "spread"]


def alternate_racks(brokers: Mapping[int, str | None]) -> list[int]:
    """Brokers in an order where neighbours are on different racks as long as possible; by id where there are none."""
    racks: dict[str, list[int]] = {}
    for broker in sorted(brokers):
        racks.setdefault(brokers[broker] or "", []).append(broker)
    order: list[int] = []
    for turn in range(max(map(len, racks.values()), default=0)):
        order += [members[turn] for _, members in sorted(racks.items()) if turn < len(members)]
    return order


def spread(brokers: Mapping[int, str | None], partitions: int, replication_factor: int, start: int = 0) -> dict[int, tuple[int, ...]]:
    """Replicas of partitions 0 to n-1 on `brokers` (id -> rack). `start` turns the wheel, so that topics begin on different brokers.

    Leaders go round robin; the followers of one leader shift with each round, so that a dead leader's load spreads.
    No rack gets a second copy before every rack has one. Brokers without a rack (None or "") stand in one together, as for Kafka's
    controller (`StripedReplicaPlacer`): nobody knows that they stand apart.
    """
    order = alternate_racks(brokers)
    count = len(order)
    assert 1 <= replication_factor <= count, "the caller checks the replication factor"
    result: dict[int, tuple[int, ...]] = {}
    for partition in range(partitions):
        first = (start + partition) % count
        shift = (start + partition) // count
        others = [order[(first + 1 + (shift + i) % (count - 1)) % count] for i in range(count - 1)] if count > 1 else []
        result[partition] = _pick([order[first], *others], brokers, replication_factor)
    return result


def _pick(candidates: Sequence[int], racks: Mapping[int, str | None], wanted: int) -> tuple[int, ...]:
    """The first `wanted` candidates, taking those on racks that have no copy yet before the others."""
    chosen: list[int] = []
    used: set[str] = set()
    for candidate in candidates:
        rack = racks[candidate] or ""
        if len(chosen) < wanted and rack not in used:
            chosen.append(candidate)
            used.add(rack)
    rest = [c for c in candidates if c not in chosen]
    return tuple(chosen + rest[: wanted - len(chosen)])


def check_replicas(partition: int, replicas: object, brokers: Mapping[int, object]) -> tuple[int, ...]:
    """Where one partition shall be, as it will be stored: different registered brokers, at least one; else UsageError."""
    if not isinstance(replicas, list | tuple) or not replicas:
        raise UsageError(f"partition {partition} is assigned to {replicas!r}; it needs a list of broker ids")
    for broker in replicas:
        if not isinstance(broker, int) or isinstance(broker, bool) or broker not in brokers:
            raise UsageError(f"partition {partition} is assigned to broker {broker!r}; registered are {sorted(brokers)}")
    if len(set(replicas)) != len(replicas):
        raise UsageError(f"partition {partition} is assigned twice to one broker: {list(replicas)}")
    return tuple(replicas)


def check_assignment(assignment: object, brokers: Mapping[int, object]) -> dict[int, tuple[int, ...]]:
    """An explicit assignment {partition: [broker ids]} as it will be stored, else UsageError.

    Partitions are numbered from 0 without a hole; every partition has as many replicas as the others, on different
    registered brokers.
    """
    if not isinstance(assignment, Mapping) or not assignment:
        raise UsageError(f"an assignment is a mapping of partition to broker ids, not {assignment!r}")
    checked: dict[int, tuple[int, ...]] = {}
    for partition, replicas in assignment.items():
        check_partition_number(partition)
        checked[partition] = check_replicas(partition, replicas, brokers)
    missing = sorted(set(range(len(checked))) - checked.keys())
    if missing:
        raise UsageError(f"partitions are numbered from 0 without a hole; {missing[0]} is missing among {sorted(checked)}")
    factors = sorted({len(replicas) for replicas in checked.values()})
    if len(factors) > 1:
        raise UsageError(f"every partition has the same number of replicas; this assignment has {factors[0]} and {factors[-1]}")
    return dict(sorted(checked.items()))
