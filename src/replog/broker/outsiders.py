"""Replicas outside the ISR, as a leader looks at them when something has happened that no message about a partition tells: time has
passed, or brokers have come, gone or been fenced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from replog.model import BrokerInfo
from replog.partition.partition import Partition

__all__ = ["forget_lives", "no_longer_held"]


def forget_lives(partitions: Iterable[Partition], known: Mapping[int, BrokerInfo], brokers: Iterable[BrokerInfo]) -> None:
    """What an earlier life of these brokers has acknowledged counts no more (P-28). `known`: as they were."""
    restarted = [b for b in brokers if b.broker_id in known and known[b.broker_id].broker_epoch != b.broker_epoch]
    if restarted:
        for leading in [partition.leading for partition in partitions if partition.leading is not None]:
            for info in restarted:
                leading.forget_life(info.broker_id, info.broker_epoch)


def no_longer_held(partitions: Iterable[Partition], now_ms: int) -> Iterator[tuple[Partition, int]]:
    """Those whose high watermark moves, because whoever was about to join and held it will not; each with the one before."""
    for partition in partitions:
        before = partition.high_watermark
        partition.look_again(now_ms)
        if partition.high_watermark != before:
            yield partition, before
