"""Numbers of bytes and times as people read them: 1.5 KiB, 3 min 20 s; or, where somebody asks for it, as plain numbers."""

from __future__ import annotations

import re
from typing import Any, Final

from attrs import frozen

__all__ = ["Units", "plain"]

_KIB: Final = 1 << 10
_BINARY: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_WHOLE: Final = 100
"""Numbers from here on have no decimals."""
_TIMES: Final = ((2 * 86_400, "d", 86_400, "h", 3_600), (3_600, "h", 3_600, "min", 60), (60, "min", 60, "s", 1))
"""From how many seconds on: a unit and its seconds, and the smaller one that stands behind it with its own."""
_KEY: Final = re.compile(r".*_(ms|bytes)(_max)?")


@frozen
class Units:
    """How numbers of bytes and times are written. JSON never is written so: its numbers are plain."""

    raw: bool = False
    """Plain numbers instead: bytes, and seconds."""

    def size(self, count: float | None) -> str | None:
        """Bytes, for a column whose heading says so: "147", "1.5 KiB". Raw: "1536". None stays None."""
        if count is None:
            return None
        if not self.raw and round(count) >= _KIB:
            return self.sized(count)
        return str(count) if isinstance(count, int) else plain(count)

    def sized(self, count: float) -> str:
        """Bytes, in a sentence: "147 bytes", "1.5 KiB". Raw: "1536 bytes"."""
        unit = self._unit(count)
        number = _number(count, unit)
        return "1 byte" if (number, unit) == ("1", 0) else f"{number} {_BINARY[unit]}"

    def part(self, done: float, total: float) -> str:
        """How much of so many bytes, both in one unit: "0.5 of 1.5 KiB". Raw: "512 of 1536 bytes"."""
        unit = self._unit(total)
        return f"{_number(done, unit)} of {_number(total, unit)} {_BINARY[unit]}"

    def time(self, seconds: float) -> str:
        """How long: "1.5 s", "20 s", "3 min 20 s", "47 h 5 min", "7 d". Raw: "200 s"."""
        if self.raw or round(seconds) < 60:
            return f"{seconds:.1f}".removesuffix(".0") + " s" if seconds < 10 else f"{seconds:.0f} s"
        _, unit, unit_s, smaller, smaller_s = next(one for one in _TIMES if round(seconds) >= one[0])
        count, rest = divmod(round(seconds / smaller_s), unit_s // smaller_s)
        return f"{count} {unit} {rest} {smaller}" if rest else f"{count} {unit}"

    def setting(self, key: str, value: Any) -> str:
        """A key of a configuration as it is typed, and what its number means: "retention_ms=604800000 (7 d)". Raw: only as it is typed."""
        typed, kind = f"{key}={value}", _KEY.fullmatch(key)
        if self.raw or kind is None or type(value) is not int:
            return typed
        if kind[1] == "bytes":
            return f"{typed} ({self.sized(value)})" if value >= _KIB else typed
        return f"{typed} ({self.time(value / 1_000)})" if value >= 1_000 else typed

    def _unit(self, count: float) -> int:
        """The largest one of which there is one: as it is shown, 1023.99 KiB are one MiB."""
        unit = 0
        while not self.raw and unit + 1 < len(_BINARY) and round(count / _KIB**unit) >= _KIB:
            unit += 1
        return unit


def plain(number: float) -> str:
    """A number without a unit: "4.2", "417"."""
    return f"{number:.1f}" if number < _WHOLE else f"{number:.0f}"


def _number(count: float, unit: int) -> str:
    value = count / _KIB**unit
    return f"{value:.0f}" if value >= _WHOLE or value == int(value) else f"{value:.1f}"
