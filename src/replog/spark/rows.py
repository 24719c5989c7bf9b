"""What becomes of a row: its key, value, headers and partition, chosen by column, by a function, or the whole row encoded.

Rows are taken by the hundred and column by column: looking at each by itself costs more than all that follows. Only when something is
wrong is every row looked at, to say which one it is. Messages name columns and types, never what a row holds.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import repeat, tee
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

import msgpack
from attrs import frozen

from replog.client.arguments import check_choice
from replog.config import RECORD_HEADERS_MAX
from replog.errors import UsageError
from replog.payload import Headers, as_headers, too_many_headers

__all__ = ["FORMATS", "Chosen", "RowColumns", "Selector"]

Selector = str | int | Callable[[Any], Any] | None
"""A column by name, a place in a tuple, or a function of the row."""
FORMATS: Final = ("json", "msgpack")
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_WITH_BYTES: Final = _PLAIN | {bytes}
_ITSELF: Final = frozenset({bytes, str, bytearray})


class Chosen(NamedTuple):
    """Columns of as many cells as there were rows; None where no row has any."""

    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[Headers] | None
    partitions: list[int | None] | None


@frozen
class RowColumns:
    """How rows become records. Picklable, if the functions are."""

    key: Selector = None
    value: Selector = None
    """None: the row itself if it is bytes or str, else all of it, encoded as `format` says."""
    headers: Selector = None
    partition: Selector = None
    format: Literal["json", "msgpack"] = "json"

    def check(self) -> None:
        """Raise UsageError for what is none of the ways to choose."""
        check_choice("format", self.format, FORMATS)
        for name in ("key", "value", "headers", "partition"):
            selector = getattr(self, name)
            if not (selector is None or isinstance(selector, str) or callable(selector)) and type(selector) is not int:
                allowed = "a column's name, a place in a tuple, a function of the row, or None"
                raise UsageError(f"{name} is {selector!r:.80}; allowed are {allowed}")

    def of(self, rows: Sequence[Any], place: Callable[[int], str]) -> Chosen:
        """The columns of these rows, of which there is at least one. `place` says where the row at an index stands, for messages."""
        taken = _Rows(rows, place)
        return Chosen(
            taken.whole(self.format) if self.value is None else taken.cells("value", self.value),
            None if self.key is None else taken.cells("key", self.key),
            None if self.headers is None else taken.headers(self.headers),
            None if self.partition is None else taken.partitions(self.partition),
        )


class _Rows:
    """Some rows, column by column."""

    def __init__(self, rows: Sequence[Any], place: Callable[[int], str]) -> None:
        self._rows = rows
        self._place = place
        self._kinds = set(map(type, rows))
        self._fields = _common_fields(rows)

    def cells(self, what: str, selector: Selector) -> list[bytes | None]:
        """A column as bytes and None."""
        column = self._column(selector)
        kinds = set(map(type, column))
        if kinds <= {bytes, type(None)}:
            return column
        if kinds == {str}:
            try:
                return [cell.encode() for cell in column]
            except UnicodeEncodeError:
                pass
        return [cell if cell is None else self._bytes(what, selector, index, cell) for index, cell in enumerate(column)]

    def headers(self, selector: Selector) -> list[Headers]:
        """Each a tuple of (name, value); a mapping is taken for its items."""
        found: list[Headers] = []
        for index, cell in enumerate(self._column(selector)):
            pairs = again = cell.items() if isinstance(cell, Mapping) else cell
            if isinstance(pairs, Iterator):  # what is wrong is looked for from the beginning
                pairs, again = tee(pairs)
            try:
                found.append(as_headers(pairs))
            except UsageError:
                raise UsageError(f"{self._source(selector)} of {self._place(index)}: {_wrong_headers(again)}") from None
        return found

    def partitions(self, selector: Selector) -> list[int | None]:
        """Whole numbers, or None for rows that do not care."""
        column = self._column(selector)
        if not set(map(type, column)) <= {int, type(None)}:
            index = next(i for i, cell in enumerate(column) if type(cell) not in (int, type(None)))
            raise UsageError(f"{self._source(selector)} of {self._place(index)} is {_kind(column[index])}; a partition is an int or None")
        return column

    def whole(self, how: str) -> list[bytes | None]:
        """The rows themselves if they are bytes or str, else all that each holds."""
        return self.cells("value", _itself) if self._kinds <= _ITSELF else self._encoded(how)

    # ---------------------------------------------------------------------------------------------------------- columns

    def _column(self, selector: Selector) -> list[Any]:
        if callable(selector):
            return self._called(selector)
        if isinstance(selector, str) and self._fields is not None:
            selector = _index(self._fields, selector, self._place(0))
        if type(selector) is int and all(issubclass(kind, tuple) for kind in self._kinds):
            try:
                return list(map(tuple.__getitem__, self._rows, repeat(selector)))  # a Row's own way takes five times as long
            except IndexError:
                pass
        return [self._cell(selector, index, row) for index, row in enumerate(self._rows)]

    def _called(self, function: Callable[[Any], Any]) -> list[Any]:
        found: list[Any] = []
        try:
            for row in self._rows:
                found.append(function(row))  # how many there are says whose turn it was
        except Exception as error:
            error.add_note(f"in {_name(function)}, called for {self._place(len(found))}")
            raise
        return found

    def _cell(self, selector: Any, index: int, row: Any) -> Any:
        """One cell of one row, or why there is none."""
        where = self._place(index)
        if isinstance(row, Mapping):
            if selector not in row:
                raise UsageError(_no_column(selector, list(row), where))
            return row[selector]
        if type(selector) is int and isinstance(row, tuple | list):
            if not -len(row) <= selector < len(row):
                raise UsageError(f"{where} has {len(row)} columns; there is no column {selector}")
            return row[selector]
        fields = _fields(row)
        if fields is None:
            raise UsageError(f"{where} is {_kind(row)}, which has no column {selector!r}; give a function of the row")
        return row[_index(fields, selector, where)]

    def _bytes(self, what: str, selector: Selector, index: int, cell: Any) -> bytes:
        if isinstance(cell, bytes | bytearray | memoryview):
            return bytes(cell)
        where = f"{self._source(selector)} of {self._place(index)}"
        if not isinstance(cell, str):
            raise UsageError(f"{where} is {_kind(cell)}; a {what} is bytes, str or None: cast it to string or binary, or give a function")
        try:
            return cell.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{where} is not valid Unicode: {error.reason} at character {error.start}") from None

    @staticmethod
    def _source(selector: Selector) -> str:
        if selector is _itself:
            return "the value"
        return f"what {_name(selector)} returned" if callable(selector) else f"column {selector!r}"

    # ------------------------------------------------------------------------------------------------------- whole rows

    def _encoded(self, how: str) -> list[bytes | None]:
        encode, allowed = (_json, _PLAIN) if how == "json" else (_msgpack, _WITH_BYTES)
        plain: list[Any] = []
        if self._fields is not None:
            columns = []
            if (twice := _twice(self._fields)) is not None:
                raise UsageError(f"{self._place(0)} {twice}")
            for name, column in zip(self._fields, zip(*self._rows, strict=True), strict=True):
                columns.append(column if set(map(type, column)) <= allowed else self._plain(repr(name), column, binary=how == "msgpack"))
            plain = [dict(zip(self._fields, row, strict=True)) for row in zip(*columns, strict=True)]
        else:
            plain = self._plain("", self._rows, binary=how == "msgpack")
        found: list[bytes | None] = []
        try:
            for index, row in enumerate(plain):
                found.append(self._bytes("value", _itself, index, row) if type(row) in _ITSELF else encode(row))
        except (ValueError, OverflowError, TypeError) as error:
            raise UsageError(f"{self._place(len(found))} cannot be encoded as {how}: {error!s:.80}") from None
        return found

    def _plain(self, column: str, cells: Sequence[Any], *, binary: bool) -> list[Any]:
        found: list[Any] = []
        try:
            for cell in cells:
                if not column and not isinstance(cell, Mapping | tuple | list | bytes | str | bytearray):
                    raise TypeError(f"is {_kind(cell)}; a row is a Row, dict, tuple, bytes or str")
                found.append(cell if not column and type(cell) in _ITSELF else _plain(cell, binary))
        except TypeError as error:
            where = self._place(len(found))
            raise UsageError(f"{f'column {column} of ' if column else ''}{where} {error}") from None
        return found


def _itself(row: Any) -> Any:
    return row


def _kind(cell: Any) -> str:
    return "None" if cell is None else type(cell).__name__


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _wrong_headers(pairs: Any) -> str:
    """What is wrong with a cell that holds no headers."""
    wanted = "a header is a pair of a name, which is str, and a value, which is bytes or str"
    if not isinstance(pairs, Iterable) or isinstance(pairs, str | bytes):
        return f"headers are a list of (str, bytes) pairs, not {_kind(pairs)}"
    for number, pair in enumerate(pairs):
        if number == RECORD_HEADERS_MAX:
            return too_many_headers(pairs)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            return f"header {number} (counted from 0) is {_kind(pair)}; {wanted}"
        for what, cell, kinds in zip(("name", "value"), pair, (str, str | bytes | bytearray | memoryview), strict=True):
            if not isinstance(cell, kinds):
                return f"the {what} of header {number} (counted from 0) is {_kind(cell)}; {wanted}"
            if isinstance(cell, str) and not _is_unicode(cell):
                return f"the {what} of header {number} (counted from 0) is not valid Unicode"
    return wanted


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fields(row: Any) -> Sequence[str] | None:
    """Names of a Row (of Spark) or of a named tuple."""
    found = getattr(row, "__fields__", None) or getattr(row, "_fields", None)
    return found if isinstance(row, tuple) and found else None


_names_of_row: Final = attrgetter("__fields__")


def _common_fields(rows: Sequence[Any]) -> Sequence[str] | None:
    """The names that all rows have, in this order; None if they differ, or have none."""
    first = _fields(rows[0])
    if first is None:
        return None
    try:
        found = list(map(_names_of_row, rows))
    except AttributeError:
        found = list(map(_fields, rows))
    if len(set(map(id, found))) == 1:  # rows that came together share one list
        return first
    return first if all(fields is not None and list(fields) == list(first) for fields in found) else None


def _index(fields: Sequence[str], name: Any, where: str) -> int:
    """Where a column stands. Raises UsageError if it is not there, or not alone."""
    if name not in fields:
        raise UsageError(_no_column(name, fields, where))
    if fields.count(name) > 1:
        raise UsageError(f"{where} has {fields.count(name)} columns {name!r}; give the place of the one that is meant, or rename them")
    return fields.index(name)


def _twice(fields: Sequence[str]) -> str | None:
    """What is wrong with a row of these columns that is written whole, where each name stands for one value; None: nothing is."""
    if len(set(fields)) == len(fields):
        return None
    name = next(name for name in fields if fields.count(name) > 1)
    return f"has {fields.count(name)} columns {name!r}; of a row that is written whole each needs a name of its own: rename them"


def _no_column(name: object, known: Sequence[Any], where: str) -> str:
    near = difflib.get_close_matches(str(name), [str(one) for one in known], 1)
    shown = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(map(repr, known[:20]))}"
    return f"{where} has no column {name!r}{shown}"


def _plain(cell: Any, binary: bool) -> Any:
    """What JSON and msgpack hold: text, numbers, lists, mappings; times in ISO 8601, decimals as text. Raises TypeError."""
    if type(cell) in _PLAIN:
        return cell
    if isinstance(cell, bytes | bytearray | memoryview):
        if not binary:
            raise TypeError("is binary, which JSON does not hold: use format='msgpack', or choose the column with value=")
        return bytes(cell)
    if isinstance(cell, datetime | date | time):
        return cell.isoformat()
    if isinstance(cell, Decimal):
        return str(cell)
    if isinstance(cell, timedelta):
        return cell.total_seconds()
    if isinstance(cell, Mapping):
        found = {_key_name(key, binary): _plain(one, binary) for key, one in cell.items()}
        if len(found) != len(cell):
            raise TypeError("has a map with two keys of one name: cast its keys to one type, or give a function")
        return found
    fields = _fields(cell)
    if fields is not None:
        if (twice := _twice(fields)) is not None:
            raise TypeError(twice)
        return {name: _plain(one, binary) for name, one in zip(fields, cell, strict=True)}
    if isinstance(cell, list | tuple):
        return [_plain(one, binary) for one in cell]
    if isinstance(cell, str | int | float):  # an enumeration, or another number
        return cell
    raise TypeError(f"is {_kind(cell)}, which JSON and msgpack do not hold: cast it, or give a function")


def _key_name(key: Any, binary: bool) -> str | bytes:
    """What the key of a map is called: numbers and truth as in Spark's `to_json`, times as among values; never what Python shows.

    Raises TypeError for what is no single value.
    """
    if isinstance(key, str):
        return str.__str__(key)  # of an enumeration: its value
    if isinstance(key, bytes | bytearray | memoryview):
        if not binary:
            raise TypeError("has a map whose keys are binary, which JSON does not hold: use format='msgpack', or give a function")
        return bytes(key)
    if key is None or isinstance(key, bool):
        return _to_json(key)
    if isinstance(key, int):
        return int.__repr__(key)
    if isinstance(key, float):
        return float.__repr__(key) if math.isfinite(key) else str(_finite(key))
    if isinstance(key, Decimal | date | time | timedelta):
        return str(_plain(key, binary))
    raise TypeError(f"has {_kind(key)} as a key of a map: cast it to string, or give a function")


_to_json: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _json(row: Any) -> bytes:
    try:
        return _to_json(row).encode()
    except ValueError:
        return _to_json(_finite(row)).encode()


def _finite(cell: Any) -> Any:
    """NaN and the infinities as text, as Spark's own `to_json` writes them."""
    if isinstance(cell, float) and not math.isfinite(cell):
        return "NaN" if math.isnan(cell) else "Infinity" if cell > 0 else "-Infinity"
    if isinstance(cell, dict):
        return {name: _finite(one) for name, one in cell.items()}
    return [_finite(one) for one in cell] if isinstance(cell, list) else cell


def _msgpack(row: Any) -> bytes:
    return bytes(msgpack.packb(row))
