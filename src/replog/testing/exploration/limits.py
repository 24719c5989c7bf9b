"""What the sizes of an exploration may be, as validators: UsageError names the size, what it is and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import Attribute

from replog.errors import UsageError

__all__ = ["whole"]


def whole(low: int, high: int | None = None) -> Callable[[Any, Attribute[int], Any], None]:
    """An int from `low` to `high`; None is no end."""

    def validate(_: Any, attribute: Attribute[int], value: Any) -> None:
        if type(value) is not int:
            raise UsageError(f"{attribute.name} is an int, not {value!r}")
        if value < low or (high is not None and value > high):
            allowed = f"{low} and more" if high is None else f"{low} to {high}"
            raise UsageError(f"{attribute.name} is {value}; allowed are {allowed}")

    return validate
