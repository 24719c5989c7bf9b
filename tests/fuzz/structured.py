"""Valid values with one part of them replaced, left out or doubled: what a peer sends that packs correctly and means nothing."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

import msgpack
from tests.fuzz.targets import frame_sealed

from replog.codec import HEADER

__all__ = ["frame_with", "swapped", "value_with"]

_HOSTILE: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2**31 - 1, 2**31, 2**32, 2**63 - 1, -(2**63), 2**64 - 1, 0.5, "", "x" * 300, "../../etc", "\x00",
    [], [[]], [None] * 20, {}, {"a": {"b": {}}}, {1: 2},
)  # fmt: skip


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
        else:
            copy[key] = swapped(value[key], chance, binary=binary)
        return copy
    other = chance.choice((*_HOSTILE, b"", b"\xff" * 16, b"x" * 17) if binary else _HOSTILE[:-1])
    return other


def frame_with(frame: bytes, chance: Random) -> bytes:
    """A frame with another meta, sealed."""
    (length,) = (int.from_bytes(frame[8:12], "little"),)
    meta = msgpack.unpackb(frame[HEADER.size : HEADER.size + length], strict_map_key=False, use_list=True)
    packed = msgpack.packb(swapped(meta, chance, binary=True))
    made = bytearray(frame[: HEADER.size] + packed + frame[HEADER.size + length :])
    made[8:12] = len(packed).to_bytes(4, "little")
    frame_sealed(made)
    return bytes(made)


def value_with(value: bytes, chance: Random) -> bytes:
    """A stored value with another object in it; its version stays more often than not."""
    fields = swapped(json.loads(value[1:]), chance, binary=False)
    return value[:1] + json.dumps(fields).encode()
