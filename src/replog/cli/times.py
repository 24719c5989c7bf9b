"""The time of a record as people read it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

__all__ = ["time_of"]

_YEAR_10000_MS: Final = 253_402_300_800_000


def time_of(timestamp_ms: int, *, between: str = " ", zone: str = "") -> str:
    """In UTC, with milliseconds; the number where no calendar has it. `between` day and time, `zone` behind both."""
    if not 0 <= timestamp_ms < _YEAR_10000_MS:
        return str(timestamp_ms)
    day_and_time = datetime.fromtimestamp(timestamp_ms // 1_000, UTC).strftime(f"%Y-%m-%d{between}%H:%M:%S")
    return f"{day_and_time}.{timestamp_ms % 1_000:03d}{zone}"
