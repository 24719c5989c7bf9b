"""Topics that are asked for: judged, measured, and placed only to be made.

Whoever only asks whether a topic could be made (`validate_only`), and whoever asks for one that is too large, costs the controller the same
few steps, however many partitions that topic would have; unless whether it is too large depends on the digits of the brokers' numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from replog.config import TopicConfig, default_min_isr
from replog.controller.assignment import check_assignment, spread
from replog.controller.changes import Topic
from replog.controller.cluster import Cluster
from replog.controller.nodes import fitting, node_bytes, too_large
from replog.controller.refusal import Refusal
from replog.errors import Code, UsageError
from replog.model import Assignment

if TYPE_CHECKING:
    from replog.controller.controller import Controller

__all__ = ["Draft", "draft", "resolved"]


@frozen
class Draft:
    """A topic that may be made as far as its arguments say; `check_size` says whether there is room for it."""

    topic: Topic
    """Without partitions if they are still to be placed."""
    factor: int
    count: int = 0
    """Partitions that are still to be placed, on these brokers (id -> rack)."""
    racks: Mapping[int, str | None] = field(factory=dict)
    start: int = 0
    """Where the wheel of brokers stands (`spread`)."""

    def placed(self) -> Topic:
        """With all of its partitions."""
        if not self.count:
            return self.topic
        replicas = spread(self.racks, self.count, self.factor, start=self.start)
        return evolve(self.topic, assignments={partition: Assignment(brokers) for partition, brokers in replicas.items()})

    def check_size(self, controller: Controller) -> None:
        """Raises Refusal, with the size and the limit, if the store may not keep so much of it.

        Partitions are placed for that only where it depends on which of the brokers have shorter numbers.
        """
        limit = controller.config.topic_bytes_max
        least, most = self._bytes()
        if least > limit:
            size = str(least) if least == most else f"at least {least}"
            raise too_large(self.topic.topic, len(self.topic.assignments) + self.count, size, limit)
        if most > limit:
            fitting(controller, self.placed())

    def _bytes(self) -> tuple[int, int]:
        """What the store would keep of it, at least and at most: only the digits of its brokers depend on where a partition is placed."""
        rest = node_bytes(self.topic)
        if not self.count:
            return rest, rest
        one = node_bytes(evolve(self.topic, assignments={0: Assignment((0,) * self.factor)})) - rest - self.factor
        numbers = self.count + sum(self.count - 10**d for d in range(1, len(str(self.count))))  # digits of 0 to count - 1
        rest += self.count * (one - 1) + numbers + self.count - 1  # and the commas between them
        digits = sorted(len(str(broker)) for broker in self.racks)
        return rest + self.count * sum(digits[: self.factor]), rest + self.count * sum(digits[-self.factor :])


def resolved(config: Mapping[str, Any], replication_factor: int) -> TopicConfig:
    """A topic's configuration with min_isr filled in. Raises UsageError on an unknown key or a bad value."""
    wanted = TopicConfig.from_mapping(config)
    if wanted.min_isr is None:
        return TopicConfig.from_mapping({**wanted.to_mapping(), "min_isr": default_min_isr(replication_factor)})
    if wanted.min_isr > replication_factor:
        raise UsageError(f"min_isr is {wanted.min_isr}; allowed are 1 to {replication_factor} (the replication factor)")
    return wanted


def draft(cluster: Cluster, name: str, topic_id: bytes, arguments: Mapping[str, Any], partitions_max: int) -> Draft:
    """The topic that `create_topic` arguments ask for. Raises Refusal, naming the value and the limit."""
    config, explicit = arguments.get("config") or {}, arguments.get("assignment")
    replicas: dict[int, tuple[int, ...]] = {}
    count = 0
    if explicit is None:
        count, factor = _numbers(cluster, arguments, partitions_max)
    else:
        try:
            replicas = _explicit(cluster, explicit, arguments)
        except UsageError as error:
            raise Refusal(Code.INVALID_REPLICA_ASSIGNMENT, str(error)) from error
        factor = len(replicas[0])
    if not isinstance(config, Mapping):
        raise Refusal(Code.INVALID_CONFIG, f"a topic's configuration is a mapping, not {config!r}")
    try:
        settled = resolved(config, factor)
    except (UsageError, TypeError) as error:
        raise Refusal(Code.INVALID_CONFIG, str(error)) from error
    topic = Topic(name, topic_id, settled, {partition: Assignment(brokers) for partition, brokers in replicas.items()})
    racks = {broker: info.rack for broker, info in cluster.staying_brokers().items()}
    return Draft(topic, factor, count, racks, cluster.partitions_total)


def _explicit(cluster: Cluster, assignment: object, arguments: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
    checked = check_assignment(assignment, cluster.brokers)
    for key, actual in (("partitions", len(checked)), ("replication_factor", len(checked[0]))):
        if arguments.get(key) not in (None, actual):
            raise UsageError(f"the assignment has {key} {actual}, but {key} is {arguments[key]!r}")
    return checked


def _numbers(cluster: Cluster, arguments: Mapping[str, Any], partitions_max: int) -> tuple[int, int]:
    """How many partitions, and how many replicas of each."""
    live = cluster.staying_brokers()
    count, factor = arguments.get("partitions", 1), arguments.get("replication_factor")
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= partitions_max:
        raise Refusal(Code.INVALID_PARTITIONS, f"partitions is {count!r}; allowed are 1 to {partitions_max}")
    if not live:
        raise Refusal(Code.INVALID_REPLICATION_FACTOR, "no broker is live: there is nowhere to put a replica")
    if factor is None:
        factor = min(3, len(live))
    if not isinstance(factor, int) or isinstance(factor, bool) or not 1 <= factor <= len(live):
        raise Refusal(Code.INVALID_REPLICATION_FACTOR, f"replication_factor is {factor!r}; allowed are 1 to {len(live)} (live brokers)")
    return count, factor
