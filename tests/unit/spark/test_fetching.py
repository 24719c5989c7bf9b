"""The fetch of a task, when not all of an answer can be used."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.client.fake import FakeCluster, make

from replog.client.client import Client
from replog.errors import CorruptMessage
from replog.messages import Fetch, Fetched
from replog.model import TopicPartition
from replog.spark.fetching import RangeFetchOp
from replog.spark.planning import OffsetRange


def fetched(cluster: FakeCluster, client: Client, now_ms: int, offset: int) -> Any:
    one = OffsetRange(TopicPartition("t", 0), cluster.partition("t").identity, 0, 3, 0)
    op = RangeFetchOp(one, offset, max_bytes=1 << 20, wait_ms=0, deadline_ms=now_ms + 3_000, known_epoch=0, rack=None)
    return client._do(op)


def test_damage_in_an_answer_is_asked_for_again_once_what_is_in_front_of_it_was_taken() -> None:
    cluster, driver, client = make({"t": 1})
    for text in "abc":
        client.append("t", 0, [text])
    wished: list[bool] = []

    def override(message: Any, broker: int) -> Any:
        if not isinstance(message, Fetch):
            return None
        wished.append(message.verify)
        answer = cluster._fetched(broker, message.entries[0])
        data = bytearray(answer.slices[-1].view())
        data[-1] ^= 1
        answer.slices[-1] = type(answer.slices[-1])(answer.slices[-1].base_offset, answer.slices[-1].end_offset, bytes(data))
        return [Fetched(message.request, 0, -1, 0, [answer])]

    cluster.override = override
    found = fetched(cluster, client, driver.now_ms(), 0)
    assert ([batch.base_offset for batch in found.batches], found.next_offset, wished) == ([0, 1], 2, [False])
    with pytest.raises(CorruptMessage, match="damaged batch: the batch at offset 2 does not match its payload checksum"):
        fetched(cluster, client, driver.now_ms(), 2)
    assert wished[1:3] == [False, True]
