"""What people type, as what the library takes. Every refusal names the text and what is allowed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from replog.client.arguments import FOREVER_S, Acks, Position
from replog.config import check_rack
from replog.errors import UsageError
from replog.transport.tcp.endpoint import SCHEME, Endpoint, parse_endpoint

__all__ = [
    "ACKS",
    "acks",
    "broker_id",
    "count",
    "demo_records",
    "filled",
    "http",
    "interval",
    "number",
    "position",
    "rack",
    "seconds",
    "setting",
    "settings",
    "store",
]

ACKS: Final[tuple[Acks, ...]] = (0, 1, "all")
"""Whose acknowledgement `produce` may wait for."""
_BROKER_ID_MAX: Final = 2**31 - 1
_DEMO_RECORDS_MAX: Final = 1_000_000
_INTERVAL_S_MIN: Final = 0.1
_INTERVAL_S_MAX: Final = 86_400
_DECIMAL: Final = re.compile(r"-?[0-9]{1,19}\.[0-9]{1,19}")


def filled(text: str) -> str:
    """Any text but none."""
    if not text:
        raise argparse.ArgumentTypeError("'' is empty: at least one character")
    return text


def rack(text: str) -> str:
    """Any text but none, in UTF-8."""
    try:
        check_rack(filled(text))
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def number(text: str) -> int:
    """A whole number from 0 up."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)


def count(text: str) -> int:
    """A whole number from 1 up."""
    if number(text) == 0:
        raise argparse.ArgumentTypeError("0 is too few: at least 1")
    return int(text)


def demo_records(text: str) -> int:
    """As many as the demo holds in memory, twice."""
    if count(text) > _DEMO_RECORDS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is too many: at most {_DEMO_RECORDS_MAX}")
    return int(text)


def broker_id(text: str) -> int:
    """A whole number that a broker may have."""
    if number(text) > _BROKER_ID_MAX:
        raise argparse.ArgumentTypeError(f"{text} is too large: at most {_BROKER_ID_MAX}")
    return int(text)


def store(text: str) -> str:
    """The URL of a metadata store that other processes can open as well."""
    if filled(text).partition("://")[0].lower() == "memory":
        instead = "file://PATH on one machine, zookeeper://HOSTS/CHROOT on several"
        raise argparse.ArgumentTypeError(f"{text!r} is seen by this process alone: no broker could find another; name {instead}")
    return text


def http(text: str) -> Endpoint:
    """HOST:PORT, an IPv6 address in brackets."""
    try:
        return parse_endpoint(SCHEME + text)
    except UsageError:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8101") from None


def seconds(text: str) -> float:
    """Seconds, from 0 up; more than anybody can wait is as long as clocks and locks count."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 up")
    return min(value, float(FOREVER_S))


def interval(text: str) -> float:
    """Seconds between two looks, or until the last one: from 0.1 to a day."""
    value = seconds(text)
    if not _INTERVAL_S_MIN <= value <= _INTERVAL_S_MAX:
        raise argparse.ArgumentTypeError(f"{text} s; allowed are {_INTERVAL_S_MIN} to {_INTERVAL_S_MAX}")
    return value


def acks(text: str) -> Acks:
    """0, 1 or all."""
    if text not in ("0", "1", "-1", "all"):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed are 0, 1, all")
    return "all" if text in ("all", "-1") else int(text)


def position(text: str) -> Position:
    """earliest, latest, an offset, or a time like 2026-01-31T12:00:00Z (without a zone: local time)."""
    if text == "earliest" or text == "latest":
        return text  # type: ignore[return-value]  # mypy does not narrow str to these two
    if text.isascii() and text.isdigit() and len(text) <= 19 and "-" not in text:
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        allowed = "earliest, latest, an offset, or a time like 2026-01-31T12:00:00Z"
        raise argparse.ArgumentTypeError(f"{text!r}; allowed are {allowed}") from None


def setting(text: str) -> tuple[str, Any]:
    """KEY=VALUE: a number, true, false, none, or text."""
    key, equals, value = text.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    words = {"true": True, "false": False, "none": None}
    plain = value.strip()
    digits = plain.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 19:
        return key, int(plain)
    if _DECIMAL.fullmatch(plain):
        return key, float(plain)
    return key, words.get(plain.lower(), plain)


def settings(pairs: Iterable[tuple[str, Any]] | None, parser: argparse.ArgumentParser) -> dict[str, Any]:
    """All of them; ends the command if a key is there twice."""
    found: dict[str, Any] = {}
    for key, value in pairs or ():
        if key in found:
            parser.error(f"--config: {key} is given twice")
        found[key] = value
    return found
