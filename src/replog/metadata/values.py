"""How a stored value is spelled: a JSON object with a version, read field by field with errors that name path and field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, Self

from replog.errors import StoreCorrupt

__all__ = ["NUMBER_MAX", "VALUE_VERSION", "Fields", "encode"]

VALUE_VERSION: Final = 1
NUMBER_MAX: Final = 2**31 - 1
"""Largest broker id, partition, epoch and creation number of a partition."""
WIDE_MAX: Final = 2**63 - 1
"""Largest creation number of the store (a broker epoch) and time."""
_MISSING: Final = object()


def encode(fields: Mapping[str, Any]) -> bytes:
    """The value with these fields. ASCII only (JSON escapes the rest), hence UTF-8; the same fields give the same bytes."""
    return json.dumps({"version": VALUE_VERSION, **fields}, separators=(",", ":"), allow_nan=False).encode()


class Fields:
    """The fields of one JSON object. Every reader raises StoreCorrupt if the field is missing or not of its type."""

    __slots__ = ("_fields", "_path", "_within")

    def __init__(self, path: str, fields: dict[str, Any], within: str = "") -> None:
        self._path = path
        self._fields = fields
        self._within = within

    @classmethod
    def of(cls, path: str, value: bytes) -> Self:
        """The fields of a stored value; refuses a version that is not known."""
        try:
            fields = json.loads(value.decode("utf-8"), parse_constant=_finite, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise StoreCorrupt(path, f"not JSON in UTF-8: {error}") from error
        if not isinstance(fields, dict):
            raise StoreCorrupt(path, f"a JSON object is needed, not {type(fields).__name__}")
        version = fields.get("version")
        if version != VALUE_VERSION or isinstance(version, bool | float):
            raise StoreCorrupt(path, f"the value has version {version!r}; this version of replog reads {VALUE_VERSION}")
        return cls(path, fields)

    def _get(self, name: str) -> Any:
        value = self._fields.get(name, _MISSING)
        if value is _MISSING:
            raise self._bad(name, "is missing")
        return value

    def _bad(self, name: str, why: str) -> StoreCorrupt:
        return StoreCorrupt(self._path, f"{self._within}{name} {why}")

    def _number(self, name: str, value: object, low: int, high: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._bad(name, f"is {_short(value)}, not a number from {low} to {high}")
        return value

    def names(self) -> list[str]:
        """Names of the fields, as stored."""
        return list(self._fields)

    def plain(self) -> dict[str, Any]:
        """The fields as they are."""
        return self._fields

    def number(self, name: str, *, low: int = 0, wide: bool = False, missing: int | None = None) -> int:
        """An int from `low` to 31 bits, or 63 if `wide`. `missing` if the field may be left out."""
        if missing is not None and name not in self._fields:
            return missing
        return self._number(name, self._get(name), low, WIDE_MAX if wide else NUMBER_MAX)

    def numbers(self, name: str, *, wide: bool = False, missing: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Ids of brokers, or (`wide`) broker epochs: numbers of which none comes twice. `missing` if the field may be left out."""
        if missing is not None and name not in self._fields:
            return missing
        numbers = tuple(self._number(name, item, 0, WIDE_MAX if wide else NUMBER_MAX) for item in self.items(name))
        if len(set(numbers)) != len(numbers):
            raise self._bad(name, f"has a number twice: {_short(list(numbers))}")
        return numbers

    def span(self, name: str, *, missing: tuple[int, int]) -> tuple[int, int]:
        """Lowest and highest of a range, both from 1 up. `missing` if the field is left out."""
        if name not in self._fields:
            return missing
        items = self.items(name)
        numbers = [self._number(name, item, 1, NUMBER_MAX) for item in items]
        if len(numbers) != 2 or numbers[0] > numbers[1]:
            raise self._bad(name, f"is {_short(items)}, not a lowest and a highest number")
        return numbers[0], numbers[1]

    def text(self, name: str) -> str:
        """A string that UTF-8 can encode: JSON can name half of a surrogate pair, which no message carries."""
        value = self._get(name)
        if not _is_text(value):
            raise self._bad(name, f"is {_short(value)}, not a string of UTF-8")
        return str(value)

    def escaped(self, name: str) -> bytes:
        """The bytes of a string in UTF-8, where each byte that is none of it is escaped (PEP 383)."""
        value = self._get(name)
        try:
            return str.encode(value, "utf-8", "surrogateescape")
        except (TypeError, UnicodeEncodeError):
            raise self._bad(name, f"is {_short(value)}, not an escaped string") from None

    def text_or_none(self, name: str) -> str | None:
        """A string or null."""
        return None if self._get(name) is None else self.text(name)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        items = self.items(name)
        if not all(map(_is_text, items)):
            raise self._bad(name, f"is {_short(items)}, not a list of strings of UTF-8")
        return tuple(items)

    def items(self, name: str) -> list[Any]:
        """A list of anything."""
        value = self._get(name)
        if not isinstance(value, list):
            raise self._bad(name, f"is {_short(value)}, not a list")
        return value

    def flag(self, name: str, *, missing: bool | None = None) -> bool:
        """true or false. `missing` if the field may be left out."""
        if missing is not None and name not in self._fields:
            return missing
        value = self._get(name)
        if not isinstance(value, bool):
            raise self._bad(name, f"is {_short(value)}, not true or false")
        return value

    def hexadecimal(self, name: str, size: int) -> bytes:
        """`size` bytes in lower case hexadecimal digits."""
        text = self.text(name)
        try:
            value = bytes.fromhex(text)
        except ValueError:
            value = b""
        if len(value) != size or value.hex() != text:
            raise self._bad(name, f"is {_short(text)}, not {2 * size} hexadecimal digits")
        return value

    def part(self, name: str) -> Fields:
        """An object inside this one."""
        value = self._get(name)
        if not isinstance(value, dict):
            raise self._bad(name, f"is {_short(value)}, not an object")
        return Fields(self._path, value, f"{self._within}{name}.")


def _finite(text: str) -> float:
    """A number that can be written again: JSON has no other."""
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text:.20} is no number of JSON")
    return number


def _is_text(value: object) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
