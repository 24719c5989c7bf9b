"""`replog produce` and `replog read`: records from lines, and lines from records."""

from __future__ import annotations

import base64
import os
import select
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO, Final

from replog.cli.context import Context
from replog.cli.exits import OK
from replog.cli.stored import Stored
from replog.client.client import Client
from replog.errors import ReplogError, Unavailable, UsageError
from replog.records import Record

__all__ = ["chunks_of_lines", "plain_record", "produce", "read"]

_READ_BYTES: Final = 1 << 18
_UNDER_WAY_MAX: Final = 8
_REST_S: Final = 0.1
"""So often, while no line comes, it is seen what has become of those before."""
_NO_FILE: Final = (OSError, ValueError, AttributeError)
"""What something raises that is no file of the system."""
_POLL_RECORDS: Final = 500
_LOOK_S: Final = 1.0
"""So often whoever follows, and is told of no record, looks whether its own reader is still there."""


# ---------------------------------------------------------------------------------------------------------------- produce


def produce(context: Context) -> int:
    """A record for each line of stdin, acknowledged before the command ends; then where they went."""
    asked = context.arguments
    stored = Stored()
    separator = None if asked.key_separator is None else asked.key_separator.encode("utf-8", "surrogateescape")
    with context.client() as client:
        client.partitions_for(asked.topic, timeout_s=context.timeout_s)  # an unknown topic is refused before stdin is read
        limit = client._core.config.max_record_bytes + len(separator or b"")  # which is in no record
        try:
            with client.producer(acks=asked.acks) as producer:
                try:
                    for first, lines in chunks_of_lines(context.stdin, asked.batch, limit, lambda: _look_after(client, stored)):
                        keys, values = (None, lines) if separator is None else _split(lines, separator)
                        stored.send(producer, asked.topic, values, keys, asked.partition)
                        stored.settle(_UNDER_WAY_MAX, context.timeout_s)
                        if len(values) < len(lines):
                            raise UsageError(f"line {first + len(values)} has no key: there is no {asked.key_separator!r} in it")
                except (ReplogError, OSError):  # a line that is no record does not take back those before it
                    stored.settle(0, context.timeout_s)
                    raise
                stored.settle(0, context.timeout_s)
        except (ReplogError, OSError, KeyboardInterrupt):
            stored.count(acknowledged=asked.acks != 0)
            rest = f"; of {stored.unknown} others it is not known" if stored.unknown else ""
            context.output.note(f"replog: {stored.records} records are stored{rest}")
            context.facts = {"records": stored.records, "unknown": stored.unknown}
            raise
    _report(context, stored)
    return OK


def _look_after(client: Client, stored: Stored) -> bool:
    """What is under way while no line comes: raises what has failed. Returns whether anything still is."""
    with suppress(Unavailable):  # no connection can be opened now: what that does to records their outcomes say
        client._driver.run()
    return stored.look()


def _report(context: Context, stored: Stored) -> None:
    output, topic = context.output, context.arguments.topic
    places = [{"partition": n, "first_offset": ends[0], "last_offset": ends[1]} for n, ends in sorted(stored.ranges.items())]
    if output.is_json:
        output.json({"topic": topic, "records": stored.records, "partitions": places})
    elif places:
        rows = [(p["partition"], p["first_offset"], p["last_offset"]) for p in places]
        output.table(("partition", "first", "last"), rows, f"{stored.records} records in {topic}")
    else:
        output.line(f"0 records in {topic}")


def chunks_of_lines(
    stream: BinaryIO, most: int, bytes_max: int, meanwhile: Callable[[], bool] = lambda: False
) -> Iterator[tuple[int, list[bytes]]]:
    """(number of the first, up to `most` lines) as soon as they are there: a slow writer's line does not wait for the next.

    The last line needs no newline. `meanwhile` is called before each read, and again and again while there is nothing to read, until it
    returns False; what it raises ends it. UsageError where a line is longer than any record may be.
    """
    read = getattr(stream, "read1", stream.read)
    begun, number = b"", 1
    while True:
        while meanwhile() and not _is_ready(stream, _REST_S):
            pass
        data = read(_READ_BYTES)
        if not data and _does_not_wait(stream) and _is_ready(stream, None):
            data = read(_READ_BYTES)
        if not data:
            break
        *lines, begun = (begun + data).split(b"\n")
        fitting = next((at for at, line in enumerate(lines) if len(line) > bytes_max), len(lines))
        for at in range(0, fitting, most):
            chunk = lines[at : min(at + most, fitting)]
            yield number, chunk
            number += len(chunk)
        if fitting < len(lines) or len(begun) > bytes_max:
            raise UsageError(f"line {number} is longer than {bytes_max} bytes, and no record may be")
    if begun:
        yield number, [begun]


def _does_not_wait(stream: BinaryIO) -> bool:
    """Whether it reads nothing where there is nothing yet, as at its end."""
    try:
        return not os.get_blocking(stream.fileno())
    except _NO_FILE:
        return False


def _is_ready(stream: BinaryIO, timeout_s: float | None) -> bool:
    """Wait until there is something to read, or its end; False: there was not within the time. What is no file of the system has to be read
    to know."""
    try:
        return bool(select.select([stream.fileno()], [], [], timeout_s)[0])
    except _NO_FILE:
        return True


def _split(lines: list[bytes], separator: bytes) -> tuple[list[bytes | str | None], list[bytes]]:
    """Keys and values of the lines before the first one that has no separator."""
    keys: list[bytes | str | None] = []
    values = []
    for line in lines:
        key, found, value = line.partition(separator)
        if not found:
            break
        keys.append(key)
        values.append(value)
    return keys, values


# ------------------------------------------------------------------------------------------------------------------- read


def read(context: Context) -> int:
    """Records to stdout: what is there, then it ends; or with --follow, for ever."""
    asked, output = context.arguments, context.output
    left = asked.count
    _check_one_form(context)
    with context.client() as client:
        if not asked.follow:
            found = client.read(asked.topic, partitions=asked.partition, start=asked.start, timeout_s=context.timeout_s)
            for record in found if left is None else _first(found, left):
                _write(context, record)
            return OK
        client.partitions_for(asked.topic, timeout_s=context.timeout_s)
        with client.consumer(asked.topic, partitions=asked.partition, start=asked.start) as consumer:
            while left is None or left > 0:
                records = consumer.poll(_POLL_RECORDS if left is None else min(left, _POLL_RECORDS), _LOOK_S)
                if not records:
                    output.rest(0)
                for record in records:
                    _write(context, record)
                output.flush()  # whoever follows wants it now
                left = None if left is None else left - len(records)
    return OK


def _check_one_form(context: Context) -> None:
    """Raise UsageError where it is said twice how records are printed."""
    asked = context.arguments
    if asked.raw and context.output.is_json:
        raise UsageError("--raw prints bytes as they are, and --format json prints none: leave one of them out")
    if asked.template is not None:
        named = {"--format json": context.output.is_json, "--raw": asked.raw, "--keys": asked.keys, "--offsets": asked.offsets}
        if others := [name for name, given in named.items() if given]:
            raise UsageError(f"--template says all of how a record is printed: leave out {', '.join(others)}, or the template")


def _first(records: Iterator[Record], most: int) -> Iterable[Record]:
    """The first few, without asking for more."""
    for _ in range(most):
        record = next(records, None)
        if record is None:
            return
        yield record


def _write(context: Context, record: Record) -> None:
    asked, output = context.arguments, context.output
    if output.is_json:
        output.json(plain_record(record))
        return
    if asked.template is not None:
        output.data(asked.template(record))
        return
    parts = []
    if asked.offsets:
        parts.append(b"%d\t%d" % (record.partition, record.offset))
    if asked.keys:
        parts.append(record.key or b"")
    parts.append(record.value or b"")
    output.data(b"\t".join(parts) + (b"" if asked.raw else b"\n"))


def plain_record(record: Record) -> dict[str, Any]:
    """A record as plain values. Bytes that are no UTF-8 stand as base64, under a name that says so."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [{"name": name, **_text("value", value)} for name, value in record.headers],
        "leader_epoch": record.leader_epoch,
    }


def _text(name: str, value: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if value is None else bytes(value).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value or b"").decode()}
