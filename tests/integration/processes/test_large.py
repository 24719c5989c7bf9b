"""More than a frame can carry: what is sent again after a restart, and what is too large in itself."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes.served import Served

from replog.config import BATCH_BYTES_MAX
from replog.errors import MessageTooLarge, UsageError

MIB = 1 << 20


@pytest.mark.parametrize(("partitions", "rounds", "size"), [(1, 5, 15 * MIB), (20, 5, MIB)], ids=["large", "many"])
def test_a_restart_does_not_stop_what_is_together_larger_than_a_frame(tmp_path: Path, partitions: int, rounds: int, size: int) -> None:
    value = bytes(size)
    with Served(tmp_path, 1) as served:
        endpoint = served.endpoints[0]
        with served.connect(max_record_bytes=16 * MIB, delivery_timeout_ms=25_000) as client:
            client.create_topic("t", partitions=partitions, max_batch_bytes=16 * MIB)
            client.append("t", 0, ["x"])
            with client.producer(buffer_bytes=256 * MIB, batch_bytes=size + 1_000, compression=None) as producer:
                with served.running[1]._pump.lock:  # it stands still: everything is under way
                    sent = [producer.send("t", value, partition=number) for _ in range(rounds) for number in range(partitions)]
                served.stop(1, controlled=False)
                served.start(1, listen=endpoint)
                producer.flush(timeout_s=60)
            assert [delivery.exception() for delivery in sent] == [None] * (rounds * partitions)
            assert [client.offset("t", n, "latest") for n in range(partitions)] == [rounds + (n == 0) for n in range(partitions)]


def test_the_largest_batch_goes_through_to_followers_and_readers(tmp_path: Path) -> None:
    value = bytes(BATCH_BYTES_MAX - 1_000)
    with Served(tmp_path) as served, served.connect(max_record_bytes=BATCH_BYTES_MAX) as client:
        client.create_topic("t", replication_factor=3, min_isr=3, max_batch_bytes=BATCH_BYTES_MAX)
        client.append("t", 0, ["before"])
        with client.producer(batch_bytes=BATCH_BYTES_MAX, buffer_bytes=2 * BATCH_BYTES_MAX, compression=None) as producer:
            assert producer.send("t", value).result(timeout_s=60).offset == 1
        found = client.fetch("t", 0, 1, wait_s=30)
        assert [len(record.value or b"") for record in found] == [len(value)]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda client: client.create_topic("u", max_batch_bytes=64 * MIB), UsageError, f"allowed are 256 to {BATCH_BYTES_MAX}"),
        (lambda client: client.alter_topic("t", max_batch_bytes=128 * MIB), UsageError, f"allowed are 256 to {BATCH_BYTES_MAX}"),
        (lambda client: client.producer(batch_bytes=65 * MIB), UsageError, f"batch_bytes is {65 * MIB}; allowed are 64 to"),
        (lambda client: client.append("t", 0, [bytes(65 * MIB)]), MessageTooLarge, f"{65 * MIB} bytes is too large; max_record_bytes is"),
        (lambda client: client.append("t", 0, [os.urandom(9 * MIB)]), MessageTooLarge, r"too large; the topic allows 8388608"),
        (lambda client: client.create_topic("u", assignment={n: [1] for n in range(200_000)}), MessageTooLarge, "; allowed are 249900"),
        (lambda client: client.elect_leaders([("n" * 240, n) for n in range(10_000)]), MessageTooLarge, "; allowed are 1048576"),
    ],
    ids=["create", "alter", "producer", "record", "batch", "items", "wish"],
)
def test_what_is_too_large_says_so_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, call: Any, error: type[Exception], says: str
) -> None:
    with Served(tmp_path, 1) as served, served.connect(max_record_bytes=BATCH_BYTES_MAX) as client:
        client.create_topic("t")
        with pytest.raises(error, match=says):
            call(client)
        dropped = [record.levelno for record in caplog.records if "message_dropped" in record.getMessage()]
        assert dropped == ([logging.WARNING] if says.endswith("1048576") else [])
        assert client.append("t", 0, ["after"]).base_offset == 0
