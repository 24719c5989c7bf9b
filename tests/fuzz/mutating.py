"""Bytes made from valid ones: changed, cut, lengthened, repeated, crossed with another. Fast, and the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

__all__ = ["Mutator", "every_byte"]

_TELLING: Final = (
    bytes(4),
    b"\xff" * 4,
    b"\xff\xff\xff\x7f",
    b"\x00\x00\x00\x80",
    bytes(8),
    b"\xff" * 8,
    b"\xff" * 7 + b"\x7f",
    bytes(7) + b"\x80",
    b"\xdd\xff\xff\xff\xff",  # msgpack: an array of 4 Gi items
    b"\xdf\xff\xff\xff\xff",  # a map
    b"\xc6\xff\xff\xff\xff",  # bytes
    b"\xdb\xff\xff\xff\xff",  # text
    b"\xc9\xff\xff\xff\xff\x01",  # an extension
    b"\x91" * 16,  # nested
    b"\x81" * 16,
    b"[" * 16,
    b"NaN",
    b"1e999",
    b"-1",
    b"9223372036854775808",
    b"null",
    b"true",
    b'"\\ud800"',
)
"""What decoders have been wrong about elsewhere."""


class Mutator:
    """Endless mutants of `seeds`; `seal` puts right what would end the reading before it has begun (checksums, lengths).

    Of sixteen mutants one stays unsealed. With `structured` every fourth is what that makes of a seed, which bytes changed at random
    hardly ever are: a value that can be read.
    """

    def __init__(
        self,
        seeds: Sequence[bytes],
        seed: int,
        seal: Callable[[bytearray], None] | None = None,
        structured: Callable[[bytes, Random], bytes] | None = None,
    ) -> None:
        self._seeds = seeds
        self._chance = Random(seed)
        self._seal = seal
        self._structured = structured

    def next(self) -> bytes:
        """The next mutant."""
        chance = self._chance
        random = chance.random
        seeds = self._seeds
        seed = seeds[int(random() * len(seeds))]
        if self._structured is not None and random() < 0.25:
            return self._structured(seed, chance)
        data = bytearray(seed)
        for _ in range(_HOW_OFTEN[int(random() * len(_HOW_OFTEN))]):
            size = len(data)
            kind = int(random() * 16)
            at = int(random() * size)
            if kind < 6 and size:
                data[at] = int(random() * 256)
            elif kind < 9 and size:
                data[at] ^= 1 << int(random() * 8)
            elif kind < 12:
                telling = _TELLING[int(random() * len(_TELLING))]
                data[at : at + (len(telling) if kind < 11 else 0)] = telling
            elif kind == 12:
                del data[at : at + 1 + int(random() * 8)]
            elif kind == 13:
                del data[at:]
            elif kind == 14:
                data[at:at] = data[at : at + 1 + int(random() * 32)]
            else:
                other = seeds[int(random() * len(seeds))]
                data[at:] = other[int(random() * len(other)) :]
        if self._seal is not None and random() < 0.9375:
            self._seal(data)
        return bytes(data)


_HOW_OFTEN: Final = (1, 1, 1, 1, 2, 2, 3, 5)


def every_byte(data: bytes) -> list[bytes]:
    """The same bytes with each of them replaced by each of the 256 values."""
    return [data[:at] + bytes((value,)) + data[at + 1 :] for at in range(len(data)) for value in range(256)]
