"""Columns: those that are read are Kafka's, those that are written are found by name, and mistakes are named."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from replog.errors import UsageError
from replog.spark.columns import WrittenColumns, arrow_schema, check_read_schema, check_written_schema, read_schema

HEADERS = t.ArrayType(t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]))


def schema(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


def test_arrow_types() -> None:
    found = {field.name: field.type for field in arrow_schema(headers=True)}
    assert list(found) == [*read_schema(headers=True).names]
    assert found["key"] == found["value"] == pa.binary()
    assert (found["partition"], found["offset"], found["timestamp"]) == (pa.int32(), pa.int64(), pa.timestamp("us", "UTC"))
    assert "headers" not in arrow_schema(headers=False).names


def test_only_the_fixed_columns_are_read() -> None:
    check_read_schema(read_schema(headers=False), headers=False)
    for wrong, headers in ((schema(value=t.StringType()), False), (read_schema(headers=True), False), (read_schema(headers=False), True)):
        with pytest.raises(UsageError, match=r"the columns of a topic are fixed: key binary, .*; leave .schema\(...\) out"):
            check_read_schema(wrong, headers=headers)


OTHERS = ["position", "partitions", "header", "keys", "topics", "values", "timestamp", "Offset", "Value"]


@pytest.mark.parametrize(
    ("columns", "has_topic", "expected"),
    [
        ({"value": t.StringType()}, True, WrittenColumns(0)),
        ({"n": t.LongType(), "value": t.BinaryType(), "topic": t.StringType()}, False, WrittenColumns(1, topic=2)),
        ({"key": t.BinaryType(), "value": t.StringType(), "partition": t.IntegerType()}, True, WrittenColumns(1, 0, partition=2)),
        ({"headers": HEADERS, "value": t.VarcharType(5)}, True, WrittenColumns(1, headers=0)),
        ({"value": t.StringType(), **dict.fromkeys(OTHERS, t.IntegerType())}, True, WrittenColumns(0)),
        ({"value": t.StringType(), "topic": t.StringType(), **dict.fromkeys(OTHERS, t.IntegerType())}, False, WrittenColumns(0, topic=1)),
    ],
)
def test_columns_are_found(columns: dict[str, t.DataType], has_topic: bool, expected: WrittenColumns) -> None:
    assert check_written_schema(schema(**columns), has_topic=has_topic) == expected


def test_what_was_read_can_be_written() -> None:
    assert check_written_schema(read_schema(headers=True), has_topic=False) == WrittenColumns(1, 0, 7, 2, 3)


@pytest.mark.parametrize(
    ("columns", "has_topic", "says"),
    [
        ({"key": t.StringType()}, True, r"a column 'value' \(string or binary\) is required; there are 'key'"),
        ({"vlaue": t.StringType()}, True, "there is a column 'vlaue', which is not known; did you mean 'value'?"),
        ({"Value": t.StringType()}, True, "there is a column 'Value', which is not known; did you mean 'value'?"),
        ({"value": t.StringType(), "Partition": t.IntegerType()}, True, "'Partition', which is not known; did you mean 'partition'?"),
        ({"value": t.StringType(), "topci": t.StringType()}, False, "there is a column 'topci', which is not known; did you mean 'topic'?"),
        ({"value": t.StringType()}, False, "nothing says which topic to write to: give the option topic, or a column 'topic'"),
        ({"value": t.LongType()}, True, "column 'value' is bigint; expected is string or binary"),
        ({"value": t.StringType(), "key": t.IntegerType()}, True, "column 'key' is int; expected is string or binary"),
        ({"value": t.StringType(), "partition": t.LongType()}, True, "column 'partition' is bigint; expected is int"),
        ({"value": t.StringType(), "topic": t.BinaryType()}, True, "column 'topic' is binary; expected is string"),
        ({"value": t.StringType(), "headers": t.StringType()}, True, "column 'headers' is string; expected is array<struct<"),
    ],
)
def test_what_is_wrong_is_named(columns: dict[str, t.DataType], has_topic: bool, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_written_schema(schema(**columns), has_topic=has_topic)


def test_a_column_that_is_there_twice() -> None:
    twice = t.StructType([t.StructField("value", t.StringType()), t.StructField("value", t.BinaryType())])
    with pytest.raises(UsageError, match="there are 2 columns 'value'; one is expected"):
        check_written_schema(twice, has_topic=True)
