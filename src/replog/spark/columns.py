"""The columns: those that are read, which are fixed, and those that may be written, which are found by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from replog.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["CREATE_TIME", "READ_COLUMNS", "WrittenColumns", "arrow_schema", "check_read_schema", "check_written_schema", "read_schema"]

READ_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""In this order; `headers` only if asked for."""
CREATE_TIME: Final = 0
"""`timestampType` as Kafka numbers it: 0, the time that the producer gave."""
_WRITTEN: Final = ("key", "value", "headers", "topic", "partition")
_NEAR: Final = 0.7


@frozen
class WrittenColumns:
    """Where the columns that are written stand in a row. None: there is no such column."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None


def read_schema(*, headers: bool) -> StructType:
    """The schema of what is read, as Spark's Kafka connector has it."""
    from pyspark.sql import types as t

    fields = [
        t.StructField("key", t.BinaryType()),
        t.StructField("value", t.BinaryType()),
        t.StructField("topic", t.StringType()),
        t.StructField("partition", t.IntegerType()),
        t.StructField("offset", t.LongType()),
        t.StructField("timestamp", t.TimestampType()),
        t.StructField("timestampType", t.IntegerType()),
    ]
    if headers:
        pair = t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())])
        fields.append(t.StructField("headers", t.ArrayType(pair)))
    return t.StructType(fields)


def arrow_schema(*, headers: bool) -> pa.Schema:
    """The same for Arrow, as Spark compares it with what it is given."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema: pa.Schema = to_arrow_schema(read_schema(headers=headers), timezone="UTC")
    return schema


def check_read_schema(schema: StructType, *, headers: bool) -> None:
    """Raise UsageError if somebody asked for other columns with `.schema(...)`."""
    expected = read_schema(headers=headers)
    given, fixed = ([(f.name, f.dataType.simpleString()) for f in one.fields] for one in (schema, expected))
    if given != fixed:
        raise UsageError(f"the columns of a topic are fixed: {_listed(fixed)}; leave .schema(...) out, and select from these")


def check_written_schema(schema: StructType, *, has_topic: bool) -> WrittenColumns:
    """Where the columns to be written are. Raises UsageError for one that is missing, misspelt or of another type.

    `has_topic`: the option `topic` is given. Columns of other names are left out, as Spark's Kafka connector does, so that what was read
    can be written as it is; except one that differs from a name that is written in case alone.
    """
    names = [field.name for field in schema.fields]
    at = {name: names.index(name) for name in _WRITTEN if name in names}
    for name in names:
        if names.count(name) > 1 and name in _WRITTEN:
            raise UsageError(f"there are {names.count(name)} columns {name!r}; one is expected")
        if name not in at and name.lower() in _WRITTEN and name.lower() not in at:
            raise UsageError(_unknown(name, name.lower()))
    for needed in [one for one in ("value", *(() if has_topic else ("topic",))) if one not in at]:
        near = difflib.get_close_matches(needed, names, 1, _NEAR)
        if near:
            raise UsageError(_unknown(near[0], needed))
    if "value" not in at:
        raise UsageError(f"a column 'value' (string or binary) is required; there are {', '.join(map(repr, names)) or 'none'}")
    if "topic" not in at and not has_topic:
        raise UsageError("nothing says which topic to write to: give the option topic, or a column 'topic'")
    for name, index in at.items():
        told, allows = _TYPES[name]
        if not allows(schema.fields[index].dataType):
            raise UsageError(f"column {name!r} is {schema.fields[index].dataType.simpleString()}; expected is {told}")
    return WrittenColumns(**at)


def _unknown(name: str, meant: str) -> str:
    return f"there is a column {name!r}, which is not known; did you mean {meant!r}?"


def _text_or_bytes(kind: Any) -> bool:
    return str(kind.typeName()) in ("string", "varchar", "char", "binary")


def _headers(kind: Any) -> bool:
    fields = getattr(getattr(kind, "elementType", None), "fields", ())
    return [(f.name, f.dataType.typeName()) for f in fields] == [("key", "string"), ("value", "binary")]


_TYPES: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "value": ("string or binary", _text_or_bytes),
    "key": ("string or binary", _text_or_bytes),
    "headers": ("array<struct<key:string,value:binary>>", _headers),
    "topic": ("string", lambda kind: kind.typeName() in ("string", "varchar", "char")),
    "partition": ("int", lambda kind: kind.typeName() == "integer"),
}


def _listed(columns: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
