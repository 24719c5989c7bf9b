r"""Templates of `replog read`: how a record is printed, such as `{partition} {offset} {key} {value}\n`."""

from __future__ import annotations

import argparse
import base64
import re
from collections.abc import Callable, Mapping
from typing import Final

from replog.cli.spoken import nearest
from replog.cli.times import time_of
from replog.records import Record

__all__ = ["FIELDS", "Template", "template"]

Template = Callable[[Record], bytes]
"""What a record is printed as."""


def _time(record: Record) -> str:
    """As ISO 8601 has it, where a calendar has it."""
    return str(None) if record.timestamp_ms is None else time_of(record.timestamp_ms, between="T", zone="Z")


def _length(data: bytes | None) -> int:
    """Of a key or a value; -1 if there is none."""
    return -1 if data is None else len(data)


_TEXTS: Final[Mapping[str, Callable[[Record], object]]] = {
    "topic": lambda record: record.topic,
    "partition": lambda record: record.partition,
    "offset": lambda record: record.offset,
    "timestamp_ms": lambda record: record.timestamp_ms,
    "time": _time,
    "leader_epoch": lambda record: record.leader_epoch,
    "key_bytes": lambda record: _length(record.key),
    "value_bytes": lambda record: _length(record.value),
}
_FORMS: Final[Mapping[str, Callable[[bytes], bytes]]] = {"base64": base64.b64encode, "hex": lambda data: data.hex().encode()}
"""How bytes can be printed that are not to be printed as they are."""
_BYTES: Final = ("key", "value", "headers")
FIELDS: Final = (*_TEXTS, *_BYTES)
"""What may stand in braces; behind those of bytes also `:base64` or `:hex`."""

_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|\\x([0-9A-Fa-f]{2})|\\(.?)|[{}]|[^{}\\]+", re.DOTALL)


def template(text: str) -> Template:
    r"""The template that a text is: fields in braces; \n \r \t \0 \\ \xHH; {{ and }} for braces. ArgumentTypeError for anything else."""
    parts: list[bytes | Template] = [_part(found) for found in _PIECE.finditer(text)]
    if not parts:
        raise argparse.ArgumentTypeError("'' is empty: at least one character")

    def printed(record: Record) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in parts)

    return printed


def _part(found: re.Match[str]) -> bytes | Template:
    """A piece of the text: bytes that are always the same, or what they are of a record."""
    whole, name, code, escaped = found[0], found[1], found[2], found[3]
    if name is not None:
        return _field(name)
    if code is not None:
        return bytes.fromhex(code)
    if escaped is not None:
        if escaped not in _ESCAPES:
            raise argparse.ArgumentTypeError(f"{whole!r} is no escape; known are \\n, \\r, \\t, \\0, \\\\ and \\xHH")
        return _ESCAPES[escaped]
    if whole in ("{", "}"):
        raise argparse.ArgumentTypeError(f"a single {whole!r} at position {found.start()}: fields are {{NAME}}, and a brace is typed twice")
    return whole[:1].encode() if whole in ("{{", "}}") else whole.encode("utf-8", "surrogateescape")


def _field(name: str) -> Template:
    plain, colon, form = name.partition(":")
    if plain not in FIELDS:
        raise argparse.ArgumentTypeError(f"unknown field {name!r}; known are {', '.join(FIELDS)}{nearest(plain, FIELDS)}")
    if plain in _TEXTS:
        if colon:
            raise argparse.ArgumentTypeError(f"{name!r}: only {', '.join(_BYTES)} have a form, and {plain} has none")
        text = _TEXTS[plain]
        return lambda record: str(text(record)).encode()
    if colon and form not in _FORMS:
        raise argparse.ArgumentTypeError(f"{name!r}: unknown form {form!r}; known are {', '.join(_FORMS)}{nearest(form, _FORMS)}")
    formed = _FORMS[form] if colon else bytes
    if plain == "headers":
        return lambda record: b",".join(header.encode() + b"=" + formed(value) for header, value in record.headers)
    return lambda record: formed((record.key if plain == "key" else record.value) or b"")
