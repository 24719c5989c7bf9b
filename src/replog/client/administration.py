"""What administrators ask of a cluster beyond making and deleting topics: elections, draining a broker, explanations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from replog.client.arguments import check_choice, check_count, check_list, checked_assignment, merged_config
from replog.client.explaining import Explanation, FollowersOp, explanation
from replog.client.operations import AdminOp, MetadataOp, Operation
from replog.client.reassigning import Reassigning
from replog.client.results import ControllerDescription, FeatureLevels
from replog.client.vacancies import Candidate, Vacancy
from replog.client.view import Topic, View
from replog.config import TopicConfig, check_partition_number, check_topic_name
from replog.errors import Code, Rejected, TimedOut, UsageError, rejection
from replog.model import why_not_highest

__all__ = ["Administration", "check_removable"]

_LEADER_S: Final = 2
"""How long a leader may take to say how far its followers are: without it there is less to explain."""
_NEWS_S: Final = 5
"""How long a change that is stored may take to be known at the broker that is asked."""


class Administration(Reassigning):
    """The part of `Client` that asks the controller for changes."""

    def _do(self, op: Operation) -> Any:
        """Run an operation to its end."""
        raise NotImplementedError

    def _deadline(self, timeout_s: float | None) -> int:
        """When an operation that begins now is given up."""
        raise NotImplementedError

    def _topic(self, topic: str, timeout_s: float | None) -> Topic:
        """The topic, as some broker knows it now."""
        raise NotImplementedError

    def _view(self, timeout_s: float | None) -> View:
        """The cluster, as some broker knows it now."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------------------ topics

    def _found(self, name: str, deadline_ms: int) -> dict[str, Any]:
        """What has this name now, as the controller knows: a broker may be late. Raises UnknownTopicOrPartition."""
        found: dict[str, Any] = self._do(AdminOp("find_topic", {"name": name}, deadline_ms))
        return found

    def add_partitions(
        self, name: str, total: int, *, assignment: Mapping[int, Sequence[int]] | None = None, timeout_s: float | None = 30
    ) -> None:
        """Give a topic more partitions, `total` in all, and wait until they can be used. Having that many already is fine.

        It is a number to reach, not one to add: of two who ask at once for the same total both get it, and who asks for less than
        another one has got meanwhile has what he asked for, too. `assignment` names the brokers of each new partition, the preferred
        leader first; it is refused if others are new by then, and moves nothing that is there. Records with a key go by the number of
        partitions: those that come later may go elsewhere.

        Raises InvalidPartitions for a total below what there is when this is called; InvalidReplicaAssignment; UnknownTopicId if the topic
        was made anew meanwhile, or partitions were removed. Found when the request is repeated, that is Unavailable: it
        may have been done before, and is not done again.
        """
        name = check_topic_name(name)
        total = check_count("total", total, 1, 2**31 - 1)
        placed = None if assignment is None else checked_assignment(assignment)
        deadline_ms = self._deadline(timeout_s)
        found = self._found(name, deadline_ms)
        # What it was made for goes along: asked again it adds nothing, whoever else has added some, removed some, or made the topic anew.
        meant = {"count": found["partitions"], "topic_id": found["topic_id"], "next_creation": found["next_creation"]}
        self._do(AdminOp("add_partitions", {"name": name, "total": total, "assignment": placed, **meant}, deadline_ms))

        def usable(view: View) -> bool:
            topic = view.topics.get(name)
            return topic is None or all((place := topic.places.get(n)) is not None and place.leader is not None for n in range(total))

        self._do(MetadataOp(deadline_ms, until=usable, what=f"partitions of topic {name!r}"))

    def remove_partitions(self, name: str, partitions: Iterable[int], *, timeout_s: float | None = 30) -> None:
        """Remove partitions and everything in them: the highest numbers of a topic, and never the last one.

        A number that is added again later is another log. Raises UnknownTopicOrPartition, InvalidPartitions.
        """
        name = check_topic_name(name)
        numbers = sorted({check_partition_number(number) for number in check_list("partitions", partitions, "partition numbers")})
        if not numbers:
            raise UsageError("partitions is empty; name those to remove")
        deadline_ms = self._deadline(timeout_s)
        known = self._topic(name, timeout_s)
        _check_there(name, numbers, known.places)
        meant = {known.places[number].identity for number in numbers}
        creations = [known.places[number].identity.creation for number in numbers]
        arguments = {"name": name, "partitions": numbers, "topic_id": known.topic_id.hex(), "creations": creations}
        self._do(AdminOp("remove_partitions", arguments, deadline_ms))

        def gone(view: View) -> bool:
            topic = view.topics.get(name)
            return topic is None or not any(place.identity in meant for place in topic.places.values())

        self._do(MetadataOp(deadline_ms, until=gone, what=f"the removal of partitions of {name!r}"))

    def alter_topic(
        self, name: str, *, config: Mapping[str, Any] | None = None, timeout_s: float | None = 30, **config_keys: Any
    ) -> dict[str, Any]:
        """Change keys of a topic's configuration (`retention_ms=...`, `min_isr=1`); None puts one back to its default.

        Returns all keys that differ from the defaults now. Leaders act on them as soon as they hear of them; another `min_isr`
        counts for a partition once that is stored with its state. Raises InvalidConfig.
        """
        name = check_topic_name(name)
        keys = TopicConfig.named(merged_config(config, config_keys))
        if not keys:
            raise UsageError("there is nothing to change: name at least one configuration key")
        TopicConfig.from_mapping({key: value for key, value in keys.items() if value is not None})
        deadline_ms = self._deadline(timeout_s)
        stored: dict[str, Any] = self._do(AdminOp("alter_topic", {"name": name, "config": keys}, deadline_ms))["config"]

        def told(view: View) -> bool:
            topic = view.topics.get(name)
            return topic is None or topic.config.to_mapping() == stored

        with suppress(TimedOut):  # it is stored: somebody else may have changed it again meanwhile
            self._do(MetadataOp(min(deadline_ms, self._deadline(_NEWS_S)), until=told, what=f"the configuration of topic {name!r}"))
        return stored

    # --------------------------------------------------------------------------------------------------------- elections

    def elect_leaders(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        to: int | None = None,
        unclean: bool = False,
        timeout_s: float | None = 30,
    ) -> dict[tuple[str, int], Rejected | None]:
        """Elect the preferred leader, the first of its replicas, of these partitions (None: of all). Returns why not; None: elected.

        It takes over only from within the ISR, so that nothing is lost. `to`: elect this broker in its place, of partitions that are named;
        they go back by themselves with the next balance (`leader_imbalance_check_ms`), unless their replicas are reordered. `unclean`:
        where there is no leader at all, elect any live replica, although records may be lost; what may be missing is recorded and logged.
        For all partitions the answer has those that were elected, or could not be. ElectionNotNeeded is no failure: the partition was led
        as asked already. If the request had to be repeated, because its answer was lost, such a partition counts as elected.
        """
        check_choice("unclean", unclean, (True, False))
        asked = None if partitions is None else [list(place) for place in _places(partitions)]
        if to is not None:
            to = check_count("to", to, 0, 2**31 - 1)
            if unclean or asked is None:
                what = "unclean=True takes whoever is live" if unclean else "the partitions that it is to lead have to be named"
                raise UsageError(f"to is {to}, and {what}")
        manner = {"unclean": bool(unclean)} if to is None else {"unclean": False, "to": to}
        op = AdminOp("elect", {"partitions": asked, **manner}, self._deadline(timeout_s))
        found: dict[tuple[str, int], Rejected | None] = {}
        for topic, partition, code, text in self._do(op)["partitions"]:
            done = not code or (op.uncertain and code == Code.ELECTION_NOT_NEEDED)
            found[topic, partition] = None if done else rejection(code, text, topic=topic, partition=partition)
        return found

    def _vacancies(self, places: Iterable[tuple[str, int]] | None, timeout_s: float | None) -> list[Vacancy]:
        """Of these partitions (None: of all) those that nobody leads, and who could. Raises UnknownTopicOrPartition."""
        view, deadline_ms = self._view(timeout_s), self._deadline(timeout_s)
        if places is None:
            places = [(name, number) for name, topic in sorted(view.topics.items()) for number in topic.numbers()]
        vacant = []
        for name, number in places:
            if view.place(name, number) is None:
                raise rejection(Code.UNKNOWN_TOPIC_OR_PARTITION, view.unknown(name, number), topic=name, partition=number)
            if (one := view.topics[name].partitions[number]).leader is None:
                vacant.append((name, one, view.topics[name].places[number].identity))
        live = {broker_id for broker_id, broker in view.brokers.items() if not broker.fenced}
        holders = [(broker, identity) for _, one, identity in vacant for broker in one.replicas if broker in live]
        ends = self._ends(holders, min(deadline_ms, self._deadline(_LEADER_S)))
        return [
            Vacancy(
                name,
                one.partition,
                tuple(Candidate(b, ends.get((b, identity))) for b in sorted(one.replicas, key=one.adding.__contains__) if b in live),
                tuple(b for b in one.replicas if b not in live),
            )
            for name, one, identity in vacant
        ]

    def explain(self, topic: str, partition: int, *, timeout_s: float | None = 30) -> Explanation:
        """Why a partition is as it is, in sentences: who leads it, who is not in sync and why, what it waits for, what can be done.

        Prints as text, a sentence a line; `.to_dict()` for programs. Raises UnknownTopicOrPartition.
        """
        topic = check_topic_name(topic)
        partition = check_partition_number(partition)
        deadline_ms = self._deadline(timeout_s)
        said = self._do(AdminOp("explain", {"name": topic, "partition": partition}, deadline_ms))
        found = None
        if said["leader"] is not None:
            with suppress(TimedOut, Rejected):
                found = self._do(FollowersOp(topic, partition, min(deadline_ms, self._deadline(_LEADER_S))))
        return explanation(topic, partition, said, found)

    def drain_broker(self, broker_id: int, *, timeout_s: float | None = 30) -> list[tuple[str, int]]:
        """Move what a broker leads to others, and take it out of the in-sync sets; it goes on running. Returns what remains.

        What remains are partitions that nobody else can lead now. It serves again after a restart. Raises BrokerIdNotRegistered,
        and StaleBrokerEpoch if it has been restarted meanwhile.
        """
        broker_id = check_count("broker_id", broker_id, 0, 2**31 - 1)
        deadline_ms = self._deadline(timeout_s)
        known = self._do(MetadataOp(deadline_ms)).brokers.get(broker_id)
        arguments = {"broker": broker_id, "broker_epoch": None if known is None else known.broker_epoch}
        found = self._do(AdminOp("drain", arguments, deadline_ms))
        return [(topic, partition) for topic, partition in found["remaining"]]

    # ---------------------------------------------------------------------------------------------------- feature levels

    def describe_features(self, *, timeout_s: float | None = 30) -> FeatureLevels:
        """The feature level of the cluster, and which levels each registered broker supports, as the controller knows (KIP-584).

        `controller` says which one that is, since when, and how much was waiting there. It answers once it has seen in the metadata store
        that it is still the controller. Raises ClusterAuthorizationFailed for whoever may not describe the cluster.
        """
        said = self._do(AdminOp("describe_features", {}, self._deadline(timeout_s)))
        brokers = {broker: (low, high) for broker, (low, high) in said["brokers"].items()}
        return FeatureLevels(said["cluster_id"], said["level"], brokers, _controller(said.get("controller")))

    def raise_feature_level(self, level: int, *, timeout_s: float | None = 30) -> None:
        """Allow brokers to write what came with a newer version, once all of them run it. It cannot be undone (KIP-584).

        It is a level to reach: a cluster that has it already is fine. Raises FeatureUpdateFailed if a registered broker does not support
        it, which is named, or if the cluster has a higher one. Brokers that are away now and do not support it cannot come back.
        """
        level = check_count("level", level, 1, 2**31 - 1)
        self._do(AdminOp("raise_feature_level", {"level": level}, self._deadline(timeout_s)))


def _controller(said: dict[str, Any] | None) -> ControllerDescription | None:
    """Who has answered. What an older broker does not say is not known; what a newer one says beside it is passed over."""
    if said is None:
        return None
    numbers = (said.get(name) for name in ("since_ms", "queued_events", "due_partitions"))
    return ControllerDescription(said["broker"], said["epoch"], *numbers)


def check_removable(name: str, numbers: Sequence[int], there: Collection[int]) -> None:
    """Raise what `remove_partitions` would, of a topic that has the partitions `there`."""
    _check_there(name, numbers, there)
    why = why_not_highest(name, sorted(numbers, reverse=True), there)
    if why:
        raise rejection(Code.INVALID_PARTITIONS, why)


def _check_there(name: str, numbers: Iterable[int], there: Collection[int]) -> None:
    for number in numbers:
        if number not in there:
            text = f"topic {name!r} has no partition {number}; it has {len(there)}"
            raise rejection(Code.UNKNOWN_TOPIC_OR_PARTITION, text, topic=name, partition=number)


def _places(partitions: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """(topic, partition) pairs, checked."""
    places = []
    for place in check_list("partitions", partitions, "(topic, partition) pairs"):
        if not isinstance(place, tuple | list) or len(place) != 2:
            raise UsageError(f"partitions has {place!r}; it takes (topic, partition) pairs")
        places.append((check_topic_name(place[0]), check_partition_number(place[1])))
    return places
