"""Valid values with one part of them replaced, left out or doubled: what a peer sends that can be read and means nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgpack
from tests.fuzz.sealing import frame_sealed

from replog.codec import HEADER

__all__ = ["frame_with", "json_behind", "lines_with", "swapped"]

_HOSTILE: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2**31 - 1, 2**31, 2**32, 2**63 - 1, -(2**63), 2**64 - 1, 0.5, "", "x" * 300, "../../etc", "\x00",
    [], [[]], [None] * 20, {}, {"a": {"b": {}}}, {1: 2},
)  # fmt: skip
_TEXTS: Final[tuple[Any, ...]] = (*_HOSTILE[:-1], 10**30, 1e300, "\ud800", "٣", "1", "-0", "9" * 400, "0-2147483647", [0, 0], [[], {}])
"""Such as only JSON tells."""


def swapped(value: Any, chance: Random, *, binary: bool) -> Any:
    """The value with one part changed; `binary`: bytes are allowed in it, and keys that are not text."""
    if isinstance(value, list | dict) and value and chance.random() < 0.85:
        copy: Any = value.copy()
        key = chance.randrange(len(value)) if isinstance(value, list) else chance.choice(list(value))
        kind = chance.randrange(12)
        if kind == 0:
            del copy[key]
        elif kind == 1 and isinstance(copy, list):
            copy.insert(key, copy[key])
        elif kind == 1:
            copy[str(chance.choice(_TEXTS))] = copy[key]
        else:
            copy[key] = swapped(value[key], chance, binary=binary)
        return copy
    return chance.choice((*_HOSTILE, b"", b"\xff" * 16, b"x" * 17) if binary else _TEXTS)


def frame_with(frame: bytes, chance: Random) -> bytes:
    """A frame with another meta, sealed."""
    (length,) = (int.from_bytes(frame[8:12], "little"),)
    meta = msgpack.unpackb(frame[HEADER.size : HEADER.size + length], strict_map_key=False, use_list=True)
    packed = msgpack.packb(swapped(meta, chance, binary=True), unicode_errors="surrogatepass")
    made = bytearray(frame[: HEADER.size] + packed + frame[HEADER.size + length :])
    made[8:12] = len(packed).to_bytes(4, "little")
    frame_sealed(made)
    return bytes(made)


def json_behind(front: int) -> Callable[[bytes, Random], bytes]:
    """Of bytes that are JSON but for so many in front."""

    def changed(value: bytes, chance: Random) -> bytes:
        return value[:front] + json.dumps(swapped(json.loads(value[front:]), chance, binary=False)).encode()

    return changed


def lines_with(text: bytes, chance: Random) -> bytes:
    """Of lines of JSON one changed, left out, or elsewhere."""
    lines = text.splitlines(keepends=True)
    at, kind = chance.randrange(len(lines)), chance.randrange(6)
    line = lines.pop(at)
    if kind > 1:
        lines.insert(at, json.dumps(swapped(json.loads(line), chance, binary=False)).encode() + b"\n")
    elif kind:
        lines.insert(chance.randrange(len(lines) + 1), line)
    return b"".join(lines)
