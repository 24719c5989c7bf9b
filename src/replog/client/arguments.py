"""What callers may pass, checked before anything is sent. Every refusal names the value and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, Literal

from replog.client.operations import AT_EARLIEST, AT_LATEST
from replog.config import SCATTERED_KEYS_MAX, TopicConfig, check_partition_number
from replog.errors import Code, UsageError, rejection
from replog.errors.texts import number_text
from replog.model import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from replog.payload import as_bytes, check_rows
from replog.records import Record

__all__ = [
    "Acks",
    "Position",
    "check_broker_id",
    "check_choice",
    "check_count",
    "check_list",
    "check_timeout",
    "checked_assignment",
    "checked_partitions",
    "checked_records",
    "merged_config",
    "parse_acks",
    "parse_place",
    "parse_position",
]

Acks = int | Literal["all"]
Position = int | Literal["earliest", "latest"] | datetime
"""An offset, an end of the log, or a time."""

FOREVER_S: Final = 10**9
"""More than thirty years: no clock or lock has to count further."""

_EPOCH_YEAR: Final = 1970
_LAST_MS: Final = 253_402_300_800_000
"""The end of the year 9999."""

_ACKS: Mapping[object, int] = {"all": ACKS_ALL, ACKS_ALL: ACKS_ALL, ACKS_NONE: ACKS_NONE, ACKS_LEADER: ACKS_LEADER}


def parse_acks(acks: object) -> int:
    """0, 1 or "all" (or -1) as the protocol's number."""
    if (isinstance(acks, str) or (isinstance(acks, int) and not isinstance(acks, bool))) and acks in _ACKS:
        return _ACKS[acks]
    raise UsageError(f'acks is {acks!r}; allowed are 0, 1, "all"')


def parse_position(position: object, name: str = "position") -> tuple[int | None, int | None]:
    """(offset, None) for an int, (None, what to ask the leader for) for "earliest", "latest" and times.

    A `datetime` without a zone is local time, as everywhere in Python.
    """
    if isinstance(position, datetime):
        try:
            at = int(position.timestamp() * 1000)
        except (ValueError, OverflowError):  # where local time would leave the years of a datetime
            at = -1 if position.year < _EPOCH_YEAR else _LAST_MS
        if at < 0:
            raise UsageError(f"{name} is {position.isoformat()}; times before 1970 hold no records")
        return None, at
    if position == "earliest":
        return None, AT_EARLIEST
    if position == "latest":
        return None, AT_LATEST
    if isinstance(position, int) and not isinstance(position, bool):
        return check_count(name, position, 0), None
    raise UsageError(f'{name} is {position!r}; allowed are an offset (int), "earliest", "latest" or a datetime')


def parse_place(place: object, name: str) -> int:
    """What to ask the leader for: as `parse_position`, without an offset, which nobody need be asked for."""
    if isinstance(place, datetime) or place == "earliest" or place == "latest":
        wanted = parse_position(place, name)[1]
        assert wanted is not None
        return wanted
    given = number_text(place) if isinstance(place, int) and not isinstance(place, bool) else repr(place)
    raise UsageError(f'{name} is {given}; allowed are "earliest", "latest" or a datetime')


def check_count(name: str, value: object, low: int, high: int = 2**63 - 1) -> int:
    """An int (never a bool) within limits, as an int and no subclass of it."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} is an int, not {value!r}")
    if not low <= value <= high:
        raise UsageError(f"{name} is {number_text(value)}; allowed are {low} to {high}")
    return int.__int__(value)


def check_list(name: str, value: object, of: str) -> Iterable[Any]:
    """Something to iterate, and no text or bytes, which would fall apart into characters."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | bytearray):
        raise UsageError(f"{name} is a list of {of}, not {value!r}")
    return value


def check_choice(name: str, value: object, allowed: Iterable[Any]) -> Any:
    """One of a few values; the nearest one is named when a str is misspelt."""
    choices = list(allowed)
    if value in choices:
        return value
    near = difflib.get_close_matches(value, [c for c in choices if isinstance(c, str)], 1) if isinstance(value, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UsageError(f"{name} is {value!r}; allowed are {', '.join(map(repr, choices))}{hint}")


def checked_assignment(assignment: object) -> dict[int, list[int]]:
    """{partition: [broker ids]}, as it is sent: in the order of the numbers. Raises InvalidReplicaAssignment for one that is long and has a
    hole: no frame may carry it, and no topic be so.
    """
    if not isinstance(assignment, Mapping) or not assignment:
        raise UsageError(f"assignment is a mapping of partition number to broker ids, not {assignment!r}")
    placed = {
        check_partition_number(number): [
            check_count("broker id", b, 0, 2**31 - 1) for b in check_list(f"the assignment of partition {number}", ids, "broker ids")
        ]
        for number, ids in assignment.items()
    }
    numbers = sorted(placed)
    if len(numbers) > SCATTERED_KEYS_MAX:
        for before, number in pairwise(numbers):
            if number != before + 1:
                text = f"the partitions of an assignment are numbered without a hole; {number} follows {before}"
                raise rejection(Code.INVALID_REPLICA_ASSIGNMENT, text)
    return {number: placed[number] for number in numbers}


def merged_config(config: object, keys: Mapping[str, Any]) -> dict[str, Any]:
    """A topic's configuration from a mapping (or None) and keywords, which override it, by whichever of its names a key is given."""
    if config is not None and not isinstance(config, Mapping):
        raise UsageError(f"config is a mapping of configuration keys to values, not {config!r}")
    return {_plain(key): _plain(value) for key, value in {**TopicConfig.named(config or {}), **TopicConfig.named(keys)}.items()}


def _plain(value: Any) -> Any:
    """A str or an int of a subclass (a member of an enumeration) as what it is without that: messages carry no others."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__int__(value) if isinstance(value, int) and not isinstance(value, bool) else value


def check_broker_id(broker_id: object) -> int:
    """The number of a broker. Raises UsageError."""
    if not isinstance(broker_id, int) or isinstance(broker_id, bool) or not 0 <= broker_id < 2**31:
        raise UsageError(f"broker_id is {broker_id!r}; a broker has a number from 0 to {2**31 - 1}")
    return int.__int__(broker_id)


def check_timeout(timeout_s: object, name: str = "timeout_s") -> float | None:
    """Seconds, at least 0; None, and more than anybody can wait: as long as it takes."""
    if timeout_s is None:
        return None
    if (type(timeout_s) is not int and (not isinstance(timeout_s, float | int) or isinstance(timeout_s, bool))) or not timeout_s >= 0:
        raise UsageError(f"{name} is {timeout_s!r}; allowed are seconds from 0 up, or None for no limit")
    return float(timeout_s) if timeout_s <= FOREVER_S else None


def checked_records(records: Sequence[Record | bytes | str | None]) -> list[Record | bytes | None]:
    """What one batch is to hold, at least one record. Raises UsageError."""
    check_rows("records", records, "values or Records")
    made = [record if type(record) is bytes or isinstance(record, Record) else as_bytes("value", record) for record in records]
    if not made:
        raise UsageError("records is empty; a batch has at least one record")
    return made


def checked_partitions(partitions: Iterable[int]) -> list[int]:
    """Numbers of partitions, each once, in order. Raises UsageError."""
    return sorted({check_partition_number(partition) for partition in check_list("partitions", partitions, "partition numbers")})
