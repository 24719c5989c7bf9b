"""A writer that makes its batches itself, and wrongly: a cluster refuses what it can tell at a glance, and readers get past the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lz4.block
import pytest

import replog
from replog.errors import InvalidRecord, UndecodableBatch
from replog.records import BODY_HEADER, sealed

CUT_OFF = b"\x92\xc4\x01a\xc4\x02b"
"""Two values, the second of which has one byte less than it says."""


def body(payload: bytes, attributes: int = 0) -> bytes:
    """A batch of two records with this payload, and the right checksum."""
    return sealed([BODY_HEADER.pack(0, attributes, 0, 2, 5, 5, -1, -1, -1)[4:], payload])


def column(values: bytes) -> bytes:
    return len(values).to_bytes(4, "little") + bytes(12) + values


UNDECODABLE = {
    "a value that is cut off": body(column(CUT_OFF)),
    "a block that does not decompress": body((40).to_bytes(4, "little") + b"\xff" * 20, 1),
    "a block of something else": body((100).to_bytes(4, "little") + lz4.block.compress(b"\xff" * 100, store_size=False), 1),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[replog.Cluster]:
    with replog.Cluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def send(cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bytes], Any]:
    """Append a body as it is."""

    def sent(topic: str, made: bytes) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr("replog.client.batches.encode_values", lambda *_, **__: made)
            return cluster.append(topic, 0, ["x", "y"])

    return sent


def test_what_is_no_payload_is_refused_and_hinders_nobody(cluster: replog.Cluster, send: Callable[[str, bytes], Any]) -> None:
    cluster.create_topic("refused")
    cluster.append("refused", 0, ["before"])
    for payload, attributes in ((b"\xff" * 20, 0), (column(CUT_OFF)[:-1], 0), (b"", 0), (b"\xff" * 20, 1)):
        with pytest.raises(InvalidRecord):
            send("refused", body(payload, attributes))
    cluster.append("refused", 0, ["after"])
    assert [record.text() for record in cluster.read("refused")] == ["before", "after"]


@pytest.mark.parametrize("name", UNDECODABLE)
def test_readers_get_past_what_only_they_can_tell(name: str, cluster: replog.Cluster, send: Callable[[str, bytes], Any]) -> None:
    topic = name.replace(" ", "-")
    cluster.create_topic(topic, partitions=2)
    cluster.append(topic, 0, ["before"])
    assert send(topic, UNDECODABLE[name]).base_offset == 1
    cluster.append(topic, 0, ["after"])
    cluster.append(topic, 1, ["other"])
    cluster.wait_until_in_sync()
    reading = cluster.read(topic, partitions=[0])
    assert next(reading).text() == "before"
    with pytest.raises(UndecodableBatch, match=f"{topic}-0: the batch of offsets 1 to 2 is stored as it was sent, and cannot be decoded"):
        next(reading)
    with cluster.consumer(topic, start="earliest") as consumer:
        told: list[str] = []
        ends = [0]
        while len(told) < 5:
            try:
                told += [record.text() for record in consumer.poll(timeout_s=30)]
            except UndecodableBatch as error:
                assert consumer.position(topic, 0) == 1
                told.append("undecodable")
                ends.append(error.next_offset)
        assert sorted(told) == ["before", "other", "undecodable", "undecodable", "undecodable"]
        consumer.seek(topic, 0, ends[-1])
        assert [record.text() for record in consumer.poll(timeout_s=30)] == ["after"]
