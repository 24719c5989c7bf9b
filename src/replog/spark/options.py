"""Every option of the data source: what it means, what it may be, and what is said to who writes another one.

Names and meanings are those of Spark's Kafka connector wherever there is such a thing; keys are case-insensitive, as in all of Spark.
An option that would have no effect is refused: what somebody has written down he relies on.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import attrs
from attrs import frozen

from replog.client.arguments import parse_acks
from replog.client.partitioner import PARTITIONERS
from replog.config import ClientConfig, check_topic_name
from replog.errors import UsageError
from replog.model import ACKS_ALL, TopicPartition
from replog.spark.connections import Connection
from replog.spark.delivery import GUARANTEES, Guarantee
from replog.spark.guarantees import check_guarantee, check_identity
from replog.spark.offsets import EARLIEST, LATEST, Bound, offsets_bound, parse_assignment, times_bound

__all__ = ["ReadOptions", "Subscription", "WriteOptions", "include_headers"]

_BOTH: Final = ("includeHeaders", "replog.bootstrap.servers", "replog.security.file")
_BATCH_READ: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_STREAM_READ: Final = ("maxBytesPerTrigger", "maxOffsetsPerTrigger")
_READ: Final = (
    "assign",
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxRecordsPerPartition",
    "minPartitions",
    "rack",
    "replog.fetch.timeout.ms",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
    *_BATCH_READ,
    *_STREAM_READ,
)
_WRITE: Final = ("deliveryGuarantee", "replog.acks", "replog.compression", "replog.partitioner", "topic", "txnAppId", "txnVersion")
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""What Spark itself hands to a sink along with its options."""

_REFUSED: Final = {
    "groupidprefix": "Spark keeps the offsets of a stream in its checkpoint, and replog has no consumer groups",
    "minoffsetspertrigger": "a data source in Python can give Spark one limit only; use a longer trigger interval",
    "maxtriggerdelay": "a data source in Python can give Spark one limit only; use a longer trigger interval",
    "kafkaconsumer.polltimeoutms": "it is called replog.fetch.timeout.ms here",
    "path": "replog has topics, not paths: use subscribe, subscribePattern or assign for reading, topic for writing",
}
_KAFKA: Final = {
    "acks": "replog.acks",
    "batch.size": "replog.batch.bytes",
    "bootstrap.servers": "replog.bootstrap.servers",
    "buffer.memory": "replog.buffer.bytes",
    "client.rack": "rack",
    "compression.type": "replog.compression",
    "fetch.max.bytes": "replog.fetch.bytes",
    "fetch.max.wait.ms": "replog.fetch.wait.ms",
    "max.in.flight.requests.per.connection": "replog.max.in.flight",
    "max.partition.fetch.bytes": "replog.fetch.bytes",
    "max.request.size": "replog.max.record.bytes",
    "partitioner.class": "replog.partitioner",
    "transactional.id": "txnAppId",
}
_KAFKA_REASONS: Final = {
    "group.id": "Spark keeps the offsets of a stream in its checkpoint, and replog has no consumer groups",
    "isolation.level": "reads are below the high watermark always",
    "enable.idempotence": "writes are idempotent always",
}
_DIGITS_MAX: Final = 40
"""Of a number, with the blanks and zeros that may be around it."""
_CONFIG: Final = tuple(a.name for a in attrs.fields(ClientConfig))


@frozen
class Subscription:
    """Which partitions are read."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression that the whole name of a topic matches."""
    assigned: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """(topic, its partitions): these and no others."""

    def reads(self, place: TopicPartition) -> bool:
        """Whether a partition is read, if it is there."""
        if self.pattern is not None:
            return re.compile(self.pattern).fullmatch(place.topic) is not None
        return place.topic in self.topics or place.partition in dict(self.assigned).get(place.topic, ())

    @property
    def option(self) -> str:
        """The option it comes from."""
        return "subscribePattern" if self.pattern is not None else "assign" if self.assigned else "subscribe"


@frozen
class ReadOptions:
    """What `spark.read` and `spark.readStream` were told."""

    connection: Connection
    subscription: Subscription
    start: Bound
    end: Bound = LATEST
    """Of a batch; a stream has none."""
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    include_headers: bool = False
    rack: str | None = None
    """Read from an in-sync copy in this rack, where there is one."""
    fetch_timeout_ms: int = 30_000
    """How long a question or a fetch may take, all tries together."""
    offset_retries: int = 3
    """How often planning asks again after a refusal that another try can overcome."""
    offset_retry_ms: int = 10

    @classmethod
    def parse(cls, options: Mapping[str, Any], *, streaming: bool) -> ReadOptions:
        """From Spark's options. Raises UsageError naming the option, its value and what is allowed."""
        given = _Given(options, (*_BOTH, *_READ), "reading", (*_WRITE,), "writing")
        if streaming:
            given.refuse(_BATCH_READ, "a stream has no end; it is for spark.read")
        else:
            given.refuse(_STREAM_READ, "it limits the batches of a stream; it is for spark.readStream")
        return cls(
            connection=given.connection(),
            subscription=_subscription(given),
            start=_start(given, streaming=streaming),
            end=_end(given),
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            min_partitions=given.count_or_none("minPartitions"),
            max_records_per_partition=given.count_or_none("maxRecordsPerPartition"),
            max_offsets_per_trigger=given.count_or_none("maxOffsetsPerTrigger"),
            max_bytes_per_trigger=given.count_or_none("maxBytesPerTrigger"),
            include_headers=given.flag("includeHeaders", False),
            rack=given.text("rack"),
            fetch_timeout_ms=given.count("replog.fetch.timeout.ms", 30_000),
            offset_retries=given.count("fetchOffset.numRetries", 3, low=0),
            offset_retry_ms=given.count("fetchOffset.retryIntervalMs", 10, low=0),
        )


@frozen
class WriteOptions:
    """What `df.write` and `df.writeStream` were told."""

    connection: Connection
    topic: str | None = None
    """Goes before the column `topic`."""
    guarantee: Guarantee = "exactly-once"
    acks: int = ACKS_ALL
    compression: Literal["lz4"] | None = "lz4"
    partitioner: Literal["crc32", "murmur2"] = "crc32"
    include_headers: bool = False
    txn_app_id: str | None = None
    txn_version: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> WriteOptions:
        """From Spark's options. Raises UsageError naming the option, its value and what is allowed."""
        given = _Given(options, (*_BOTH, *_WRITE), "writing", _READ, "reading")
        topic, version = given.text("topic"), given.text("txnVersion")
        compression = given.choice("replog.compression", ("lz4", "none"), "lz4")
        wished = cls(
            connection=given.connection(),
            topic=None if topic is None else check_topic_name(topic),
            guarantee=given.choice("deliveryGuarantee", GUARANTEES, "exactly-once"),
            acks=_acks(given.choice("replog.acks", ("all", "-1", "0", "1"), "all")),
            compression=None if compression == "none" else compression,
            partitioner=given.choice("replog.partitioner", tuple(PARTITIONERS), "crc32"),
            include_headers=given.flag("includeHeaders", False),
            txn_app_id=given.text("txnAppId"),
            txn_version=None if version is None else given.count("txnVersion", 0, low=0),
        )
        return _checked(wished)


def include_headers(options: Mapping[str, Any]) -> bool:
    """Whether rows have the column `headers`: all that the schema depends on."""
    return _flag("includeHeaders", {key.lower(): value for key, value in options.items()}.get("includeheaders", "false"))


def _checked(options: WriteOptions) -> WriteOptions:
    check_guarantee("deliveryGuarantee", options.guarantee, "replog.acks", options.acks)
    check_identity(("txnAppId", "txnVersion"), options.txn_app_id, options.txn_version, options.guarantee)
    return options


def _acks(text: str) -> int:
    return parse_acks("all" if text == "all" else int(text))


# ---------------------------------------------------------------------------------------------------- what was given


class _Given:
    """The options of one call, by canonical name. Whatever is unknown, or belongs to the other direction, was refused."""

    def __init__(self, options: Mapping[str, Any], known: Iterable[str], direction: str, others: Iterable[str], other: str) -> None:
        names = {name.lower(): name for name in known}
        foreign = {name.lower(): name for name in others}
        self._values: dict[str, str] = {}
        self._settings: dict[str, Any] = {}
        for key, value in options.items():
            small = key.lower()
            if small in names:
                self._values[names[small]] = str(value)
            elif small in foreign:
                raise UsageError(f"option {foreign[small]} is for {other}, not for {direction}")
            elif small not in _OF_SPARK:
                self._setting(key, str(value), names)

    def _setting(self, key: str, value: str, names: Mapping[str, str]) -> None:
        """A limit or timeout of the client."""
        small = key.lower()
        name = small.removeprefix("replog.").replace(".", "_")
        if not small.startswith("replog.") or name not in _CONFIG:
            raise UsageError(_unknown(key, names))
        if name in self._settings:
            raise UsageError(f"option replog.{name.replace('_', '.')} is given twice (once as {key})")
        self._settings[name] = _whole(key, value)

    def refuse(self, names: Iterable[str], why: str) -> None:
        """These make no sense here."""
        for name in names:
            if name in self._values:
                raise UsageError(f"option {name}: {why}")

    def text(self, name: str) -> str | None:
        """As given; None if it was not. Empty is refused."""
        value = self._values.get(name)
        if value is not None and not value.strip():
            raise UsageError(f"option {name} is empty")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._values.get(name)
        return default if value is None else _flag(name, value)

    def count(self, name: str, default: int, *, low: int = 1) -> int:
        """A whole number from `low` up."""
        value = self._values.get(name)
        if value is None:
            return default
        number = _whole(name, value)
        if not low <= number < 2**63:
            raise UsageError(f"option {name} is {number}; allowed are {low} to {2**63 - 1}")
        return number

    def count_or_none(self, name: str) -> int | None:
        """A whole number from 1 up; None if it was not given."""
        return self.count(name, 0) if name in self._values else None

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> Any:
        """One of a few words."""
        value = self._values.get(name, default)
        if value.lower() not in allowed:
            near = difflib.get_close_matches(value.lower(), allowed, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"option {name} is {value!r}; allowed are {', '.join(map(repr, allowed))}{hint}")
        return value.lower()

    def connection(self) -> Connection:
        """Where the cluster is."""
        bootstrap = self.text("replog.bootstrap.servers")
        if bootstrap is None:
            raise UsageError("option replog.bootstrap.servers is missing: host:port of one broker or more, separated by commas")
        try:
            return Connection.of(bootstrap, self._settings, security=self.text("replog.security.file"))
        except UsageError as error:
            raise UsageError(f"option replog.bootstrap.servers or one of replog.*: {error}") from None


def _whole(name: str, text: str) -> int:
    try:
        number = int(text) if len(text) <= _DIGITS_MAX else 2**63  # Python converts no more than some thousands
    except ValueError:
        number = 2**63
    if not -(2**63) < number < 2**63:
        raise UsageError(f"option {name} is {text!r:.80}; a whole number is expected, below 2^63")
    return number


def _flag(name: str, value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise UsageError(f"option {name} is {value!r:.80}; allowed are true and false")
    return text == "true"


def _unknown(key: str, names: Mapping[str, str]) -> str:
    """Why there is no such option, and which one may be meant."""
    small = key.lower()
    if small in _REFUSED:
        return f"option {key} is not supported: {_REFUSED[small]}"
    if small.startswith("kafka."):
        return _of_kafka(key, small.removeprefix("kafka."), names)
    dotted = {f"replog.{name.replace('_', '.')}": f"replog.{name.replace('_', '.')}" for name in _CONFIG}
    choices = {**names, **dotted}
    near = difflib.get_close_matches(small.replace("_", "."), choices, 1) or difflib.get_close_matches(small, choices, 1, 0.5)
    hint = f"; did you mean {choices[near[0]]}?" if near else f"; known are {', '.join(sorted(choices.values()))}"
    return f"unknown option {key!r}{hint}"


def _of_kafka(key: str, rest: str, names: Mapping[str, str]) -> str:
    if rest in _KAFKA_REASONS:
        return f"option {key} is not supported: {_KAFKA_REASONS[rest]}"
    ours = _KAFKA.get(rest)
    if ours is None:
        dotted = [name.replace("_", ".") for name in _CONFIG] + [name.removeprefix("replog.") for name in names if "replog." in name]
        near = difflib.get_close_matches(rest, dotted, 1)
        ours = f"replog.{near[0]}" if near else None
    if ours is None:
        return f"option {key} is Kafka's, and replog has nothing like it; its own limits are named replog.*"
    return f"option {key} is Kafka's; it is called {ours} here"


# ------------------------------------------------------------------------------------------------------- what to read


def _subscription(given: _Given) -> Subscription:
    wished = {name: given.text(name) for name in ("subscribe", "subscribePattern", "assign")}
    named = [name for name, value in wished.items() if value is not None]
    if len(named) != 1:
        which = " and ".join(named) if named else "none of them"
        raise UsageError(f"exactly one of the options subscribe, subscribePattern and assign says what to read; given is {which}")
    if (listed := wished["subscribe"]) is not None:
        topics = dict.fromkeys(check_topic_name(topic.strip()) for topic in listed.split(",") if topic.strip())
        if not topics:
            raise UsageError(f"option subscribe is {listed!r}; it is a list of topics separated by commas")
        return Subscription(topics=tuple(topics))
    if (pattern := wished["subscribePattern"]) is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"option subscribePattern is {pattern!r:.80}, which is no regular expression: {error}") from None
        return Subscription(pattern=pattern)
    return Subscription(assigned=parse_assignment(wished["assign"] or ""))


def _start(given: _Given, *, streaming: bool) -> Bound:
    """Times go before offsets, and the one time for all partitions before those of each, as in Kafka's connector."""
    strategy = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    if (time := given.text("startingTimestamp")) is not None:
        return times_bound("startingTimestamp", time, or_latest=strategy == "latest")
    if (times := given.text("startingOffsetsByTimestamp")) is not None:
        return times_bound("startingOffsetsByTimestamp", times, or_latest=strategy == "latest")
    if (offsets := given.text("startingOffsets")) is not None:
        return offsets_bound("startingOffsets", offsets, earliest=True, latest=streaming)
    return LATEST if streaming else EARLIEST


def _end(given: _Given) -> Bound:
    if (time := given.text("endingTimestamp")) is not None:
        return times_bound("endingTimestamp", time, or_latest=True)
    if (times := given.text("endingOffsetsByTimestamp")) is not None:
        return times_bound("endingOffsetsByTimestamp", times, or_latest=True)
    if (offsets := given.text("endingOffsets")) is not None:
        return offsets_bound("endingOffsets", offsets, earliest=False, latest=True)
    return LATEST
