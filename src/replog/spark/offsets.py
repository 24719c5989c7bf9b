"""Positions as they are written: JSON of offsets and times, the words "earliest" and "latest", and offsets of a stream.

The shapes are those of Spark's Kafka connector: `{"orders": {"0": 123, "1": -2}}`, where -2 is earliest and -1 latest, and where an
offset is that of the next record to be read. Nothing here asks anybody.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import field, frozen

from replog.client.operations import AT_EARLIEST, AT_LATEST
from replog.config import check_partition_number, check_topic_name
from replog.errors import UsageError
from replog.model import TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "Bound",
    "Positions",
    "from_offsets",
    "offsets_bound",
    "parse_assignment",
    "times_bound",
    "to_offsets",
]

Positions = dict[TopicPartition, int]
"""Offset of the next record of each partition."""

_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 20
"""What has more, sign included, is no offset, no time and no partition; Python converts no more than some thousands."""
_PARTITION_MAX: Final = 2**31 - 1


class _Long:
    """A whole number in JSON with more digits than anything here has."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return f"{self._text[:_DIGITS_MAX]}... ({len(self._text.lstrip('-'))} digits)"


@frozen
class Bound:
    """Where reading begins or ends, before anybody was asked where that is."""

    option: str
    """The option it comes from, for messages; empty: the default."""
    everywhere: int | None = None
    """For every partition: AT_EARLIEST, AT_LATEST, or with `is_time` a time in ms. None: `named` says it of each."""
    named: Mapping[TopicPartition, int] = field(factory=dict)
    """The same for each partition, or an offset."""
    is_time: bool = False
    or_latest: bool = False
    """Where no record is as young as the time: the end, instead of an error."""

    @property
    def is_fixed(self) -> bool:
        """Whether the answer is the same whenever somebody asks: it is offsets alone. An end moves with what is written, a beginning
        with retention, and the first record of a time with both."""
        return not self.is_time and self.everywhere is None and min(self.named.values(), default=0) >= 0

    def of(self, place: TopicPartition) -> tuple[int | None, int | None]:
        """(offset, None), or (None, what the leader is to be asked for). Raises UsageError for a partition that is not named."""
        at = self.named.get(place, self.everywhere)
        if at is None:
            value = "a time" if self.is_time else "an offset, or -2 for earliest, -1 for latest"
            raise UsageError(f"option {self.option} names no partition {place.partition} of topic {place.topic!r}: give {value} for each")
        return (None, at) if self.is_time or at < 0 else (at, None)

    def check_named(self, places: Iterable[TopicPartition]) -> None:
        """Raise UsageError if it names what is not read."""
        read = set(places)
        for place in self.named:
            if place not in read:
                raise UsageError(f"option {self.option} names partition {place.partition} of topic {place.topic!r}, which is not read")


EARLIEST: Final = Bound("", AT_EARLIEST)
LATEST: Final = Bound("", AT_LATEST)


def offsets_bound(option: str, text: str, *, earliest: bool, latest: bool) -> Bound:
    """From "earliest", "latest" or JSON of offsets; `earliest` and `latest` say whether these may be asked for here."""
    allowed = {"earliest": AT_EARLIEST} if earliest else {}
    allowed |= {"latest": AT_LATEST} if latest else {}
    word = text.strip().lower()
    if word in allowed:
        return Bound(option, allowed[word])
    if word in ("earliest", "latest"):
        raise UsageError(f"option {option} is {word!r}; allowed here are {_words(allowed)} and JSON of offsets")
    named = _parse(option, text, 'earliest, latest or JSON like {"orders": {"0": 123, "1": -2}}')
    for place, at in named.items():
        if at < 0 and at not in allowed.values():
            shown = {AT_EARLIEST: "-2 (earliest)", AT_LATEST: "-1 (latest)"}.get(at, str(at))
            ends = "".join(f", {value} ({name})" for name, value in allowed.items())
            raise UsageError(f"option {option} has {shown} for {place}; allowed are offsets from 0 up{ends}")
    return Bound(option, named=named)


def times_bound(option: str, text: str, *, or_latest: bool) -> Bound:
    """From one time for all partitions, or JSON of times; in ms since 1970."""
    if not text.strip().startswith("{"):
        return Bound(option, _time(option, text), is_time=True, or_latest=or_latest)
    named = _parse(option, text, 'JSON like {"orders": {"0": 1700000000000}}')
    for place, at in named.items():
        if at < 0:
            raise UsageError(f"option {option} has {at} for {place}; allowed are milliseconds since 1970, from 0 up")
    return Bound(option, named=named, is_time=True, or_latest=or_latest)


def parse_assignment(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The option `assign`, JSON like {"orders": [0, 1]}. Raises UsageError."""
    parsed = _json("assign", text, 'JSON like {"orders": [0, 1]}')
    found = []
    for topic, partitions in parsed.items():
        check_topic_name(topic)
        if not isinstance(partitions, list) or not partitions:
            raise UsageError(f"option assign has {partitions!r:.80} for topic {topic!r}; a list of partition numbers is expected")
        if (long := next((number for number in partitions if isinstance(number, _Long)), None)) is not None:
            raise UsageError(f"option assign has {long!r} for topic {topic!r}; partitions are numbered from 0 to {_PARTITION_MAX}")
        found.append((topic, tuple(sorted({check_partition_number(number) for number in partitions}))))
    return tuple(found)


def to_offsets(positions: Positions) -> dict[str, dict[str, int]]:
    """As Spark keeps and shows them, sorted."""
    offsets: dict[str, dict[str, int]] = {}
    for place in sorted(positions):
        offsets.setdefault(place.topic, {})[str(place.partition)] = positions[place]
    return offsets


def from_offsets(offsets: Mapping[str, Any], what: str = "the offset of the stream") -> Positions:
    """What `to_offsets` made; somebody may have edited the checkpoint since. Raises UsageError."""
    return _places(what, offsets, '{"orders": {"0": 123}}')


def _parse(option: str, text: str, expected: str) -> Positions:
    return _places(f"option {option}", _json(option, text, expected), expected)


def _json(option: str, text: str, expected: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise UsageError(f"option {option} has the key {name!r:.80} twice; which of the two counts, nobody can tell")
            found[name] = value
        return found

    try:
        parsed = json.loads(text, object_pairs_hook=once, parse_int=_number)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"option {option} is {text!r:.80}, which is no JSON ({error}); expected is {expected}") from None
    if not isinstance(parsed, dict) or not parsed:
        raise UsageError(f"option {option} is {text!r:.80}; expected is {expected}")
    return parsed


def _places(what: str, parsed: Mapping[str, Any], expected: str) -> Positions:
    found: Positions = {}
    for topic, partitions in parsed.items():
        check_topic_name(topic)
        if not isinstance(partitions, Mapping):
            raise UsageError(f"{what} has {partitions!r:.80} for topic {topic!r}; expected is {expected}")
        for number, at in partitions.items():
            place = TopicPartition(topic, _partition(what, topic, number))
            if type(at) is not int or not -_MAX <= at <= _MAX:
                raise UsageError(f"{what} has {at!r:.80} for partition {number} of topic {topic!r}; a whole number is expected, below 2^63")
            if place in found:
                raise UsageError(f"{what} names partition {place.partition} of topic {topic!r} twice, once as {number!r}")
            found[place] = at
    return found


def _partition(what: str, topic: str, number: object) -> int:
    """As JSON has it, the key of an object."""
    if not (isinstance(number, str) and number.isascii() and number.isdigit()):
        raise UsageError(f"{what} has {number!r:.80} where a partition number of topic {topic!r} is expected")
    if len(number) > _DIGITS_MAX:
        allowed = f"partitions are numbered from 0 to {_PARTITION_MAX}"
        raise UsageError(f"{what} has {_Long(number)!r} where a partition number of topic {topic!r} is expected; {allowed}")
    return check_partition_number(int(number))


def _number(text: str) -> int | _Long:
    return int(text) if len(text) <= _DIGITS_MAX else _Long(text)


def _time(option: str, text: str) -> int:
    try:
        time = int(text)
    except ValueError:
        time = -1
    if not 0 <= time <= _MAX:
        raise UsageError(f"option {option} is {text!r:.80}; expected are milliseconds since 1970")
    return time


def _words(allowed: Mapping[str, int]) -> str:
    return ", ".join(map(repr, allowed))
