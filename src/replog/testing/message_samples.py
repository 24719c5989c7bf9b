"""Messages to send over a transport, for its contract suite: every kind that actors send each other, with nothing in it left out.

Each is said by whom it is for: a transport may refuse what a broker would never say to a controller. Broker 1 says it, wherever a broker or
its controller does. Not among them is what never goes from one actor to another process: what a process tells its own actors
(`codec.LOCAL_MESSAGES`), and what two transports tell each other before anything else (`Handshake`, `HandshakeAnswer`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import attrs

from replog import messages as m
from replog.config import TopicConfig
from replog.model import Assignment, BrokerInfo, PartitionId, PartitionState
from replog.slices import MemorySlice

__all__ = ["Sample", "Who", "contents", "message_samples"]

Who = Literal["broker", "controller", "client"]

_P0 = PartitionId(bytes(range(16)), 0, 7)
_P1 = PartitionId(b"\xff" * 16, 2**31 - 1, 2**32 - 1)
_P2 = PartitionId(b"\x00" * 16, 12, 0)
_EPOCH: Final = 2**40
_BYTES: Final = bytes(range(256))
_TEXT: Final = "Größe: 日本語 🙂 \x00 \\ ' \n"
_CONFIG = TopicConfig(
    min_isr=2,
    flush="ack",
    flush_interval_ms=7,
    segment_bytes=4_096,
    segment_ms=8,
    retention_ms=60_000,
    retention_bytes=2**50,
    max_batch_bytes=512,
    unclean_leader_election=True,
)
_STATE = PartitionState(2, 9, (2, 3), (4, 5), (2, 3, 4), True, 5, 11, 2)
_IDLE = PartitionState(None, -1, ())
_ASSIGNMENT = Assignment((1, 2, 3), 7, (4, 5), (1, 2), (1, 2, 3))


class Sample(NamedTuple):
    """A message, and between whom it goes."""

    sender: Who
    to: Who
    message: Any


def message_samples() -> list[Sample]:
    """At least one of each kind, made anew with each call: what a transport does to one of them does not show in another.

    Clients ask first and are answered after that: some transports know no way to a client that has said nothing.
    """
    ways: list[tuple[Who, Who, Iterable[Any]]] = [
        ("broker", "broker", _between_brokers()),
        ("broker", "controller", _to_the_controller()),
        ("controller", "broker", _of_the_controller()),
        ("client", "broker", _of_a_client()),
        ("broker", "client", _to_a_client()),
    ]
    return [Sample(sender, to, message) for sender, to, messages in ways for message in messages]


def contents(message: Any) -> Any:
    """What must arrive of a message: slices count by their offsets and bytes, whatever holds these."""
    if not isinstance(message, m.Fetched):
        return message
    slices = [[(part.base_offset, part.end_offset, part.length, bytes(part.view())) for part in each.slices] for each in message.entries]
    return attrs.evolve(message, entries=[attrs.evolve(each, slices=shown) for each, shown in zip(message.entries, slices, strict=True)])


def _between_brokers() -> list[Any]:
    entries = [m.FetchEntry(_P0, 4, 2**62, 3, 2**20, True), m.FetchEntry(_P1, -1, 0, -1, 1)]
    return [
        m.Fetch(7, 1, _EPOCH, 99, 3, 500, 2, 2**23, entries, [_P2, _P1], True, True),
        _fetched(),
        m.Fetched(8, 0, -1, 0, []),
        m.Flushed(1, _EPOCH, [m.FlushedEntry(_P0, 4, 100), m.FlushedEntry(_P1, 0, 2**62)]),
    ]


def _fetched() -> m.Fetched:
    slices = [MemorySlice(0, 3, _BYTES), MemorySlice(3, 4, b"\x00"), MemorySlice(100, 2**40, _BYTES[::-1] * 40)]
    entries = [
        m.FetchedEntry(_P0, 4, 100, 1, 90, 10, 110, 2, 80, slices, 3),
        m.FetchedEntry(_P1, 0, 0),
        m.FetchedEntry(_P2, 1, 2, slices=[MemorySlice(7, 9, _BYTES * 3), MemorySlice(9, 10, b"last")]),
    ]
    return m.Fetched(7, 99, 3, 70, entries, True)


def _to_the_controller() -> list[Any]:
    wishes = [m.AlterIsrEntry(_P0, 9, 11, [(2, _EPOCH), (3, -1)], True, 33), m.AlterIsrEntry(_P1, 0, 0, [])]
    return [
        m.Metadata(10, 3, 16, ["new", "newer"]),
        m.Admin(16, "create_topic", _plain(), 5),
        m.Heartbeat(1, _EPOCH, 3, 12),
        m.AlterIsr(14, 1, _EPOCH, wishes, 3),
        m.ReplicasFailed(1, _EPOCH, _TEXT, [_P0, _P1]),
        m.ControlledShutdown(1, _EPOCH),
        m.LeaderAndIsrAnswer(1, _EPOCH, 3, 12, 11, [(_P0, 56), (_P1, 6)], [_P1, _P2]),
        m.StopReplicaAnswer(1, _EPOCH, 3, 13, 11, [(_P0, 6), (_P1, 56)]),
        m.ReplicaStatesAnswer(1, _EPOCH, 15, [m.ReplicaState(_P0, 4, 100, 90), m.ReplicaState(_P1, -1, 0)]),
    ]


def _of_the_controller() -> list[Any]:
    notices = [
        m.PartitionNotice(_P0, "orders", _STATE, _ASSIGNMENT, _CONFIG),
        m.PartitionNotice(_P1, "idle", _IDLE, Assignment((1,)), TopicConfig()),
    ]
    results = [m.AlterIsrResult(_P0, 95, _STATE), m.AlterIsrResult(_P1, 3), m.AlterIsrResult(_P2, 0, _IDLE)]
    return [
        m.LeaderAndIsr(1, 3, _EPOCH, 12, True, 3_000, notices, True, as_of=40),
        m.StopReplica(1, 3, _EPOCH, 13, [m.StopEntry(_P0, -2, True), m.StopEntry(_P1, 4, False)], as_of=41),
        m.UpdateMetadata(1, 3, _EPOCH, _view()),
        m.ReplicaStates(1, 3, _EPOCH, 15, [_P0, _P1]),
        m.AlterIsrAnswer(14, 77, results),
        m.ControlledShutdownAnswer(1, _EPOCH, 3, 11, 12, [_P0, _P1], 7),
        m.AdminAnswer(16, 36, _TEXT, _plain(), 5),
    ]


def _of_a_client() -> list[Any]:
    batches = [m.ProduceEntry(1, _P0, _BYTES), m.ProduceEntry(2, _P1, b"\xff" * 3), m.ProduceEntry(3, _P2, _BYTES * 40)]
    return [
        m.Produce(-1, 30_000, batches),
        m.Stage(_TEXT, 7, "attempt-3", 2, m.ProduceEntry(9, _P0, _BYTES)),
        m.Publish(9, _P0, _TEXT, 7, 30_000, [m.StagedAttempt("attempt-3", 2), m.StagedAttempt(_TEXT, 1)], 2**41),
        m.Fetch(8, -1, -1, 0, -1, 0, 1, 1, [m.FetchEntry(_P0, 4, 2**62, 3, 2**20)]),
        m.ListOffsets(8, [m.ListOffsetsEntry(_P0, 4, -2), m.ListOffsetsEntry(_P0, -1, 2**41)]),
        m.OffsetsForLeaderEpoch(9, [m.EpochsEntry(_P0, 4, 3), m.EpochsEntry(_P1, -1, 0)]),
        m.Metadata(11, -1, -1),
        m.Admin(17, "describe", _plain()),
    ]


def _to_a_client() -> list[Any]:
    return [
        m.Produced([m.ProducedEntry(1, 6, 2**62, 4, 3, 2), m.ProducedEntry(2)]),
        m.Published(9, _P0, 6, 40, 50),
        _fetched(),
        m.ListedOffsets(8, [m.ListedOffset(_P0, 1, 2, 3, 4, 5, 6), m.ListedOffset(_P1)]),
        m.Epochs(9, [m.EpochsResult(_P0, 1, 3, 55), m.EpochsResult(_P1)]),
        _view(),
        m.ClusterView(3, 18, 17, 1, [], []),
        m.AdminAnswer(17, 0, "", {"none": None, _TEXT: _TEXT}),
    ]


def _plain() -> dict[str, Any]:
    scalars = {"name": _TEXT, _TEXT: "", "n": -1, "most": 2**63 - 1, "yes": True, "none": None, "raw": _BYTES}
    return {**scalars, "map": {"0": [1, 2], 5: {}}, "list": [[], "x", [None, {"deep": [False]}]]}


def _view() -> m.ClusterView:
    brokers = [
        BrokerInfo(1, _EPOCH, ("tcp://127.0.0.1:9000", "tcp://[::1]:9001"), _TEXT, "ab" * 16, fenced=True, draining=True, overdue=True),
        BrokerInfo(2, 0),
    ]
    partitions = (
        m.PartitionView(0, 7, None, 9, (2, 3), (3, 4), (1, 2, 3), 11, True, (4, 5), (1, 2)),
        m.PartitionView(1, 0, 2, 0, (2,), (), (2,), 0),
    )
    return m.ClusterView(
        controller_epoch=3,
        version=17,
        since=-1,
        controller=1,
        brokers=brokers,
        topics=[m.TopicView("orders", _P0.topic_id, _CONFIG, partitions, end=2), m.TopicView("empty", _P1.topic_id, TopicConfig(), ())],
        removed_topics=[_P2.topic_id, b"\x01" * 16],
        removed_brokers=[9, 8],
        cluster_id="c-1",
        request=44,
        missing=[("new", 5, _TEXT), ("newer", 3, "")],
        hidden=["dim", "dark"],
    )
