"""One value of every kind that the metadata store holds: no field has its default."""

from __future__ import annotations

from typing import Any

from replog.metadata.judgements import Admission, Candidate, LossRecord
from replog.metadata.layout import ClusterIdentity, ControllerSeat, Registration, Rejection, TopicEntry
from replog.model import Assignment, PartitionId, PartitionState
from replog.ports import LossReport

__all__ = ["samples"]


def samples() -> list[Any]:
    """In the order of the targets' decoders."""
    moving = Assignment((1, 2, 3), 4, (3,), (1,), (1, 2))
    lost = PartitionId(bytes(range(16)), 3, 4)
    return [
        ClusterIdentity("c-1", 1, 2),
        ControllerSeat(3, 17),
        12,
        Registration(("tcp://10.0.0.1:9000", "tcp://[::1]:1"), "rack-ä", "ab" * 16, LossReport("corrupt", 5, (lost,)), "life"),
        2**40,
        TopicEntry(bytes(range(16)), {"min_isr": 2, "flush": "ack"}, {0: moving, 7: Assignment((2,), 5)}, 8, (9,)),
        PartitionState(2, 9, (2, 3), (4,), (2, 3, 4), True, 5, 3),
        bytes(range(16)),
        (1, 2, 3),
        Rejection(b'{"version":1}\xff', 39, "no such topic ü", 1_700_000_000_000),
        Admission(2**40, "life", "ab" * 16),
        LossRecord("orders", "unclean", 2, 9, (Candidate(2, 8, 100), Candidate(3, -1, -1)), (1,)),
    ]
