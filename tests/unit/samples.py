"""One filled-in sample of every message, for the tests of the codec: no field has its default, so that none can be lost unnoticed."""

from __future__ import annotations

from typing import Any

from replog import messages as m
from replog.config import TopicConfig
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.ports import MemorySlice
from replog.records import Record, RecordBatch, encode_records, encode_values

P0 = PartitionId(bytes(range(16)), 0, 7)
P1 = PartitionId(b"\xff" * 16, 2**31 - 1, 2**32 - 1)
STATE = PartitionState(2, 9, (2, 3), (4,), (2, 3, 4), True, 5, 11)
IDLE = PartitionState(None, -1, ())
ASSIGNMENT = Assignment((1, 2, 3), 7, (4,), (1,), (1, 2, 3))
CONFIG = TopicConfig(min_isr=2, flush="ack", retention_ms=60_000, unclean_leader_election=True)
BROKERS = [BrokerInfo(1, 2**40, ("tcp://127.0.0.1:9000",), "rack-a", "ab" * 16, fenced=True, draining=True), BrokerInfo(2, 0)]
VIEW = m.ClusterView(
    controller_epoch=3,
    version=17,
    since=-1,
    controller=1,
    brokers=BROKERS,
    topics=[m.TopicView("orders", P0.topic_id, CONFIG, (m.PartitionView(0, 7, None, 9, (2,), (3,), (1, 2, 3), 11, True),), end=1)],
    removed_topics=[b"\x01" * 16],
    removed_brokers=[9],
    cluster_id="c-1",
    request=44,
    missing=[("new", 5, "being made")],
    hidden=["dim"],
)
PLAIN: dict[str, Any] = {
    "name": "orders",
    "n": -1,
    "yes": True,
    "none": None,
    "raw": b"\x00",
    "map": {"0": [1, 2], 5: {}},
    "list": [[], "x"],
}


def batches() -> dict[str, bytes]:
    """Stored batches of each shape."""
    bodies = {
        "plain": encode_values([b"one", "zwei", None], now_ms=1_700_000_000_000),
        "keyed": encode_values([b"a", b"b"], keys=["k", None], now_ms=5),
        "full": encode_records(
            [Record(b"v", key="k", headers=[("h", b"1"), ("h", "2")], timestamp_ms=10), Record(None, timestamp_ms=20), Record("x")],
            now_ms=15,
            producer_id=2**62,
            producer_epoch=3,
            base_sequence=40,
            attributes=1 << 7,
            extension=b"key:1",
        ),
        "lz4": encode_values([b"abcd" * 100] * 3, now_ms=0, compression="lz4"),
    }
    stored = {}
    for number, (name, body) in enumerate(bodies.items()):
        batch = RecordBatch(body)
        batch.stamp(P0, number * 100, number)
        stored[name] = batch.to_bytes()
    return stored


def messages() -> dict[str, Any]:
    """A sample of every message class, by its name."""
    stored = batches()
    body = stored["full"][48:]
    slices = [MemorySlice(0, 3, stored["plain"]), MemorySlice(100, 102, stored["keyed"])]
    listed: list[Any] = [
        m.Produce(-1, 30_000, [m.ProduceEntry(1, P0, body), m.ProduceEntry(2, P1, body)]),
        m.Produced([m.ProducedEntry(1, 6, 5, 4, 3, 2)]),
        m.Fetch(7, 2, 2**40, 99, 3, 500, 1, 2**23, [m.FetchEntry(P0, 4, 2**62, 3, 2**20, True)], [P1], True, True),
        m.Fetched(7, 99, 3, 70, [m.FetchedEntry(P0, 4, 100, 1, 90, 10, 110, 2, 80, slices, 3), m.FetchedEntry(P1, 0, 0)], True),
        m.Flushed(2, 2**40, [m.FlushedEntry(P0, 4, 100)]),
        m.ListOffsets(8, [m.ListOffsetsEntry(P0, 4, -2)]),
        m.ListedOffsets(8, [m.ListedOffset(P0, 1, 2, 3, 4, 5, 6)]),
        m.OffsetsForLeaderEpoch(9, [m.EpochsEntry(P0, 4, 3)]),
        m.Epochs(9, [m.EpochsResult(P0, 1, 3, 55)]),
        m.Metadata(10, 3, 16, ["new"]),
        VIEW,
        m.UpdateMetadata(1, 3, 2**40, VIEW),
        m.LeaderAndIsr(1, 3, 2**40, 12, True, 3_000, [m.PartitionNotice(P0, "orders", STATE, ASSIGNMENT, CONFIG)], True, as_of=40),
        m.LeaderAndIsrAnswer(2, 2**40, 3, 12, 11, [(P0, 56)], [P1]),
        m.StopReplica(1, 3, 2**40, 13, [m.StopEntry(P0, -2, True)], as_of=41),
        m.StopReplicaAnswer(2, 2**40, 3, 13, 11, [(P0, 6)]),
        m.Heartbeat(2, 2**40, 3, 12),
        m.AlterIsr(14, 2, 2**40, [m.AlterIsrEntry(P0, 9, 11, [(2, 2**40), (3, -1)], True, 33)], 3),
        m.AlterIsrAnswer(14, 77, [m.AlterIsrResult(P0, 95, STATE), m.AlterIsrResult(P1, 3), m.AlterIsrResult(P1, 0, IDLE)]),
        m.ReplicasFailed(2, 2**40, "I/O error", [P0]),
        m.ReplicaStates(1, 3, 2**40, 15, [P0, P1]),
        m.ReplicaStatesAnswer(2, 2**40, 15, [m.ReplicaState(P0, 4, 100, 90)]),
        m.Admin(16, "create_topic", PLAIN, 5),
        m.AdminAnswer(16, 36, "exists", PLAIN, "client-1"),
        m.ControlledShutdown(2, 2**40),
        m.ControlledShutdownAnswer(2, 2**40, 3, 11, 12, [P0], 7),
        m.Stage("job-1", 7, "attempt-3", 2, m.ProduceEntry(9, P0, b"the body of a batch")),
        m.Publish(9, P0, "job-1", 7, 30_000, [m.StagedAttempt("attempt-3", 2), m.StagedAttempt("attempt-5", 1)], 1_000),
        m.Published(9, P0, 6, 40, 50),
        m.Handshake("c1", m.BROKER, 2, 3, 1, 1, 2, b"nonce", b"proof"),
        m.HandshakeAnswer(11, "another cluster", "c1", 3, 1, b"nonce", b"proof"),
    ]
    return {type(message).__name__: message for message in listed}
