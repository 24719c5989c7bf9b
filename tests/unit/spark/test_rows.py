"""What becomes of a row, by column, by function or whole; and what is said of a row of which nothing can become."""

from __future__ import annotations

import json
import math
from collections import namedtuple
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgpack
import pytest
from pyspark.sql import Row
from pyspark.sql.types import _create_row

from replog.errors import UsageError
from replog.spark.rows import Chosen, RowColumns

Pair = namedtuple("Pair", ["k", "v"])


def place(index: int) -> str:
    return f"row {100 + index} of partition 2"


def chosen(rows: list[Any], **how: Any) -> Chosen:
    columns = RowColumns(**how)
    columns.check()
    return columns.of(rows, place)


ROWS = [Row(k="a", v=b"1"), Row(k=None, v=b"2"), Row(k="ä", v=None)]
PAIRS = [("a", b"1"), (None, b"2"), ("ä", None)]


@pytest.mark.parametrize(
    ("rows", "key", "value"),
    [
        (ROWS, "k", "v"),
        (ROWS, 0, 1),
        (ROWS, 0, -1),
        (ROWS, lambda row: row.k, lambda row: row["v"]),
        ([Pair(*pair) for pair in PAIRS], "k", "v"),
        ([{"k": k, "v": v} for k, v in PAIRS], "k", "v"),
        (PAIRS, 0, 1),
        ([list(pair) for pair in PAIRS], 0, 1),
        ([Row(v=b"1", k="a"), Row(k=None, v=b"2"), Row(v=None, k="ä")], "k", "v"),
        ([Row(k=k, v=None if v is None else bytearray(v)) for k, v in PAIRS], "k", "v"),
        ([ROWS[0], {"k": None, "v": b"2"}, Pair("ä", None)], "k", "v"),
    ],
)
def test_key_and_value(rows: list[Any], key: Any, value: Any) -> None:
    found = chosen(rows, key=key, value=value)
    assert (found.keys, found.values) == ([b"a", None, "ä".encode()], [b"1", b"2", None])
    assert (found.headers, found.partitions) == (None, None)


@pytest.mark.parametrize("rows", [[b"1", b"2"], ["1", "2"], [bytearray(b"1"), "2"]])
def test_bytes_and_text_are_values(rows: list[Any]) -> None:
    assert chosen(rows).values == [b"1", b"2"]
    assert chosen(rows, key=lambda row: row).keys == [b"1", b"2"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (Row(a=1, b="ä", c=None, d=1.5, e=True), {"a": 1, "b": "ä", "c": None, "d": 1.5, "e": True}),
        ({"a": Row(x=1, y=[Row(z=2)]), "b": {"k": (1, 2)}}, {"a": {"x": 1, "y": [{"z": 2}]}, "b": {"k": [1, 2]}}),
        (Row(a=Row(x=1), b={"k": Decimal("1.10")}), {"a": {"x": 1}, "b": {"k": "1.10"}}),
        (Row(d=date(2013, 1, 2), t=datetime(2013, 1, 2, 3, 4, 5)), {"d": "2013-01-02", "t": "2013-01-02T03:04:05"}),
        (Row(s=timedelta(minutes=1)), {"s": 60.0}),
        (Row(m={1: "x", None: "y"}), {"m": {"1": "x", "null": "y"}}),
        ((1, "a"), [1, "a"]),
        (Pair(1, 2), {"k": 1, "v": 2}),
    ],
)
def test_whole_rows(row: Any, expected: Any) -> None:
    for rows in ([row], [row, row], [row, {"other": 1}]):
        (text, *_), (packed, *_) = chosen(rows, format="json").values, chosen(rows, format="msgpack").values
        assert json.loads(text or b"") == expected
        assert msgpack.unpackb(packed or b"") == expected


def test_not_a_number_is_written_as_spark_does() -> None:
    (text,) = chosen([Row(a=float("nan"), b=[float("inf"), 1.0], c=-float("inf"))]).values
    assert text == b'{"a":"NaN","b":["Infinity",1.0],"c":"-Infinity"}'


def test_msgpack_holds_what_is_not_a_number() -> None:
    (packed,) = chosen([Row(a=float("nan"), b=[float("inf"), 1.0], c=-float("inf"))], format="msgpack").values
    found = msgpack.unpackb(packed or b"")
    assert math.isnan(found.pop("a"))
    assert found == {"b": [float("inf"), 1.0], "c": -float("inf")}


def test_msgpack_holds_binary() -> None:
    assert msgpack.unpackb(chosen([Row(a=b"\xff", b=[b"\xfe"])], format="msgpack").values[0] or b"") == {"a": b"\xff", "b": [b"\xfe"]}


def test_rows_of_all_kinds_together() -> None:
    rows = [b"1", {"a": 1}, "2", Row(a=2), bytearray(b"3"), (3,)]
    assert chosen(rows).values == [b"1", b'{"a":1}', b"2", b'{"a":2}', b"3", b"[3]"]


def test_headers_and_partitions() -> None:
    rows = [Row(h=[Row(key="a", value=b"1")], p=1), Row(h=None, p=None), Row(h=[("b", "2")], p=0)]
    found = chosen(rows, value=lambda row: b"", headers="h", partition="p")
    assert found.headers == [(("a", b"1"),), (), (("b", b"2"),)]
    assert found.partitions == [1, None, 0]
    assert chosen([{"h": {"a": b"1"}}], value=lambda row: None, headers="h").headers == [(("a", b"1"),)]


def fails(row: Any) -> bytes:
    raise KeyError("mine")


TWO_NAMES = _create_row(["id", "name", "name"], (1, "left", "right"))
"""As a join makes them."""
NEEDS_A_NAME = "has 2 columns 'name'; of a row that is written whole each needs a name of its own"
HEADED: dict[str, Any] = {"value": 0, "headers": 1}
NAME, FROM_0 = "the name of header", r"\(counted from 0\)"
PAIR = "a header is a pair of a name, which is str, and a value, which is bytes or str$"
BAD: list[tuple[list[Any], dict[str, Any], str]] = [
    ([TWO_NAMES], {}, f"row 100 of partition 2 {NEEDS_A_NAME}"),
    ([TWO_NAMES], {"format": "msgpack", "key": 0}, f"row 100 of partition 2 {NEEDS_A_NAME}"),
    ([Row(a=1), TWO_NAMES], {}, f"row 101 of partition 2 {NEEDS_A_NAME}"),
    ([Row(a=1), Row(a=TWO_NAMES)], {}, f"column 'a' of row 101 of partition 2 {NEEDS_A_NAME}"),
    ([TWO_NAMES], {"value": "name"}, "row 100 of partition 2 has 2 columns 'name'; give the place of the one that is meant"),
    ([Row(a="x"), TWO_NAMES], {"value": lambda row: b"", "key": "name"}, "row 100 of partition 2 has no column 'name'"),
    ([TWO_NAMES, Row(name="x")], {"value": lambda row: b"", "key": "name"}, "row 100 of partition 2 has 2 columns 'name'; give the place"),
    ([Row(key=1)], {"value": "kye"}, "row 100 of partition 2 has no column 'kye'; did you mean 'key'?"),
    ([Row(a=1, b=2)], {"value": "zzz"}, "row 100 of partition 2 has no column 'zzz'; it has 'a', 'b'"),
    ([{"key": b""}, {"a": 1}], {"value": "key"}, "row 101 of partition 2 has no column 'key'; it has 'a'"),
    ([Row(a=b""), Row(b=b"")], {"value": "a"}, "row 101 of partition 2 has no column 'a'"),
    ([(b"x",), ()], {"value": 0}, "row 101 of partition 2 has 0 columns; there is no column 0"),
    ([(1, 2)], {"value": "a"}, "row 100 of partition 2 is tuple, which has no column 'a'; give a function of the row"),
    ([b"x"], {"key": "a"}, "row 100 of partition 2 is bytes, which has no column 'a'"),
    ([Row(a=b"x"), Row(a=7)], {"value": "a"}, "column 'a' of row 101 of partition 2 is int; a value is bytes, str or None: cast it"),
    ([Row(a=b"x")], {"value": "a", "key": len}, "what len returned of row 100 of partition 2 is int; a key is bytes, str or None"),
    ([Row(a="x"), Row(a="\ud800")], {"value": "a"}, "column 'a' of row 101 of partition 2 is not valid Unicode"),
    ([Row(a=b"", p=True)], {"value": "a", "partition": "p"}, "column 'p' of row 100 of partition 2 is bool; a partition is an int or None"),
    ([Row(a=b"", h="x")], {"value": "a", "headers": "h"}, r"column 'h' of row 100 of partition 2: headers are a list of .*, not str$"),
    ([Row(a=b"", h=5)], {"value": "a", "headers": "h"}, r"column 'h' of row 100 of partition 2: headers are a list of .*, not int$"),
    ([(b"", [("a", b"")]), (b"", [("a", b""), (None, b"")])], HEADED, f"1 of row 101 of partition 2: {NAME} 1 {FROM_0} is None; {PAIR}"),
    ([(b"", [(1, b"")])], HEADED, f"column 1 of row 100 of partition 2: {NAME} 0 {FROM_0} is int; {PAIR}"),
    ([(b"", [("a", None)])], HEADED, f"the value of header 0 {FROM_0} is None; {PAIR}"),
    ([(b"", {"a": b"", "b": 7})], HEADED, f"the value of header 1 {FROM_0} is int; {PAIR}"),
    ([(b"", [("a", b""), ("a", b"", b"")])], HEADED, f"column 1 of row 100 of partition 2: header 1 {FROM_0} is tuple; {PAIR}"),
    ([(b"", [("\ud800", b"")])], HEADED, f"{NAME} 0 {FROM_0} is not valid Unicode$"),
    ([Row(a=1), Row(a=b"x")], {}, "column 'a' of row 101 of partition 2 is binary, which JSON does not hold: use format='msgpack'"),
    ([Row(a=[b"x"])], {}, "column 'a' of row 100 of partition 2 is binary"),
    ([Row(a=1j)], {"format": "msgpack"}, "column 'a' of row 100 of partition 2 is complex, which JSON and msgpack do not hold"),
    ([{"a": 1}, 7], {}, "row 101 of partition 2 is int; a row is a Row, dict, tuple, bytes or str"),
    ([{"a": 1}, None], {}, "row 101 of partition 2 is None; a row is a Row, dict, tuple, bytes or str"),
    ([Row(a=1), Row(a=2**70)], {"format": "msgpack"}, "row 101 of partition 2 cannot be encoded as msgpack"),
]


@pytest.mark.parametrize(("rows", "how", "said"), BAD)
def test_what_is_said_of_bad_rows(rows: list[Any], how: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        chosen(rows, **how)


def test_data_is_not_shown() -> None:
    with pytest.raises(UsageError) as told:
        chosen([Row(a=["secret"] * 100)], value="a")
    assert "secret" not in str(told.value)


def test_an_error_of_the_users_function_goes_on_and_says_for_which_row() -> None:
    with pytest.raises(KeyError, match="mine") as told:
        chosen([Row(a=1)], value=fails)
    assert told.value.__notes__ == ["in fails, called for row 100 of partition 2"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"key": 1.5}, "key is 1.5; allowed are a column's name"),
        ({"value": b"v"}, "value is b'v'; allowed are"),
        ({"partition": True}, "partition is True; allowed are"),
        ({"format": "jsn"}, "format is 'jsn'; allowed are 'json', 'msgpack'; did you mean 'json'"),
    ],
)
def test_what_cannot_be_asked_for(how: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        RowColumns(**how).check()


def test_a_function_sees_the_row_as_it_is() -> None:
    seen: list[Any] = []
    keep: Callable[[Any], bytes] = lambda row: seen.append(row) or b""  # type: ignore[func-returns-value]  # noqa: E731
    row = Row(a=1)
    chosen([row], value=keep)
    assert seen[0] is row
