"""Which partition a key belongs to. The answer is format: changing it would scatter the records of one key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from zlib import crc32

__all__ = ["PARTITIONERS", "crc32_partition", "murmur2", "murmur2_partition"]

_MASK: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995


def crc32_partition(key: bytes, count: int) -> int:
    """Index into the sorted partitions: CRC-32 (zlib's) of the key, modulo their number."""
    return crc32(key) % count


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of Kafka's Java client, unsigned (org.apache.kafka.common.utils.Utils.murmur2)."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        k = (k ^ k >> 24) * _MULTIPLIER & _MASK
        h = h * _MULTIPLIER & _MASK ^ k
    if length != whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    return h ^ h >> 15


def murmur2_partition(key: bytes, count: int) -> int:
    """As Kafka's Java client chooses: for topics that it shares. The sign bit is dropped, not negated."""
    return (murmur2(key) & 0x7FFFFFFF) % count


PARTITIONERS: Final[dict[str, Callable[[bytes, int], int]]] = {"crc32": crc32_partition, "murmur2": murmur2_partition}
"""By the name that `producer(partitioner=...)` takes."""
