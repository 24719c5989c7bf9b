"""Which partition a key belongs to is format: known answers, from zlib and from Kafka's Java client."""

from __future__ import annotations

import pytest

from replog.client.partitioner import crc32_partition, murmur2, murmur2_partition

# Kafka: UtilsTest.testMurmur2, signed 32-bit.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", sorted(JAVA))
def test_murmur2_agrees_with_java(key: bytes) -> None:
    assert murmur2(key) == JAVA[key] % 2**32


def test_murmur2_partition_drops_the_sign() -> None:
    assert murmur2_partition(b"21", 1000) == (-973932308 & 0x7FFFFFFF) % 1000
    assert murmur2_partition(b"abc", 7) == 479470107 % 7


def test_crc32_is_the_checksum_modulo_the_number_of_partitions() -> None:
    assert crc32_partition(b"123456789", 1000) == 0xCBF43926 % 1000
    assert {crc32_partition(f"user-{n}".encode(), 4) for n in range(50)} == {0, 1, 2, 3}
