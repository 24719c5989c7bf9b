"""Replicas outside the ISR, as a leader looks at them when something has happened that no message about a partition tells: time has
passed, or brokers have come, gone or been fenced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from replog.model import BrokerInfo
from replog.partition.partition import Partition

__all__ = ["forget_lives", "no_longer_held"]


def forget_lives(partitions: Iterable[Partition], known: Mapping[int, BrokerInfo], brokers: Mapping[int, BrokerInfo], now_ms: int) -> None:
    """What a life of a broker has acknowledged counts no more once that is over, or the next one has begun (P-28). `known`: as they were.

    A broker that is gone may be back with the next news, on another disk, and may be heard in between, from whichever life: so what counts
    is the life that has acknowledged something, not the one that was known last.
    """
    begun = [info for b, info in brokers.items() if b not in known or known[b].broker_epoch != info.broker_epoch]
    ended = [info for b, info in known.items() if b not in brokers]
    if begun or ended:
        for leading in [partition.leading for partition in partitions if partition.leading is not None]:
            for info in begun:
                leading.forget_life(info.broker_id, info.broker_epoch, now_ms)
            for info in ended:
                leading.forget_life(info.broker_id, info.broker_epoch, now_ms, ended=True)


def no_longer_held(partitions: Iterable[Partition], now_ms: int) -> Iterator[tuple[Partition, int]]:
    """Those whose high watermark moves, because whoever was about to join and held it will not; each with the one before."""
    for partition in partitions:
        before = partition.high_watermark
        partition.look_again(now_ms)
        if partition.high_watermark != before:
            yield partition, before
