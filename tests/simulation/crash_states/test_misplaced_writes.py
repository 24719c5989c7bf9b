"""Writes that land elsewhere or nowhere, and nobody is told: each is detected, because a batch says where it belongs."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Literal

import pytest

from replog.config import BrokerConfig, TopicConfig
from replog.errors import LogCorrupt
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.model import PartitionId
from replog.ports import LogStart
from replog.records import RecordBatch, decode_records
from replog.testing.disk import SimulatedDisk, keep_all
from replog.testing.disk.ledger import Stored
from replog.testing.disk.session import batch_of_length

Kind = Literal["misdirected_write", "stale_write"]
LOGS = [PartitionId(bytes(range(16)), partition, 0) for partition in range(3)]
LIMITS = BrokerConfig(index_interval_bytes=300)
RUNS = 200
WRITES = 6


def opened(disk: SimulatedDisk) -> tuple[FileLogDirectory, list[FileLog]]:
    directory = FileLogDirectory("/d", fs=disk, limits=LIMITS)
    config = TopicConfig(segment_bytes=1_000)
    logs = directory.create([LogStart(identity, "t", config) for identity in LOGS])
    return directory, [log for log in logs if isinstance(log, FileLog)]


def put(log: FileLog, chance: random.Random) -> Stored:
    """A batch of one of a few lengths: batches of equal length, one over the other, are the hard case."""
    text = f"{log.identity.partition} at {log.end_offset}"
    batch = batch_of_length(chance.choice([200, 200, 300]), text, producer=(3, 0, log.end_offset))
    batch.stamp(log.identity, log.end_offset, 0)
    log.append(batch)
    return Stored(batch.base_offset, batch.end_offset, batch.to_bytes())


def value_of(batch: Stored) -> bytes | None:
    return decode_records(RecordBatch.parse(batch.data))[0].value


def served(log: FileLog, written: list[Stored]) -> int:
    """Read batch by batch, then as a whole; how many are not served. What is served is what was written there."""
    missing = 0
    log.forget_tail()
    for batch in written:
        try:
            assert [record.value for record in log.records(batch.base, batch.end)] == [value_of(batch)]
        except LogCorrupt:
            missing += 1
    try:
        assert [record.value for record in log.records()] == [value_of(batch) for batch in written]
        assert missing == 0
    except LogCorrupt:
        assert missing > 0
    return missing


@pytest.mark.parametrize("kind", ["misdirected_write", "stale_write"])
def test_each_is_detected(kind: Kind) -> None:
    """More than a thousand of each kind: while the log runs, and after a kill, a power cut or a clean stop."""
    injected = undetected = 0
    endings = {"clean": 0, "kill": 0, "power": 0}
    for seed in range(RUNS):
        chance = random.Random(f"{kind} {seed}")
        disk = SimulatedDisk(chance)
        directory, logs = opened(disk)
        written: dict[PartitionId, list[Stored]] = {identity: [] for identity in LOGS}
        for log in logs:
            for _ in range(3):
                written[log.identity].append(put(log, chance))
        for _ in range(WRITES):
            victim = chance.choice(logs)
            disk.arm(kind, paths=".log", times=1)
            written[victim.identity].append(put(victim, chance))
            disk.disarm()
            written[victim.identity] += [put(victim, chance) for _ in range(chance.randrange(3))]
            bystander = chance.choice(logs)
            written[bystander.identity].append(put(bystander, chance))
        happened = disk.injected.get(kind, 0)
        injected += happened
        missing = sum(served(log, written[log.identity]) for log in logs)
        assert missing >= happened, "each leaves a place where its batch is not"
        undetected += missing == 0
        ending = chance.choice(sorted(endings))
        endings[ending] += 1
        check_next_life(disk, directory, ending, written)
    assert injected >= 1_000
    assert undetected == 0
    assert min(endings.values()) > RUNS // 5


def check_next_life(disk: SimulatedDisk, directory: FileLogDirectory, ending: str, written: dict[PartitionId, list[Stored]]) -> None:
    """What is opened next serves right batches from the beginning on, or says what is wrong: in its report, or when read."""
    with suppress(LogCorrupt):
        directory.close(clean=ending == "clean")
    if ending == "power":
        disk.cut_power(keep_all)
    else:
        disk.kill()
    directory, logs = opened(disk)
    for log in logs:
        whole = written[log.identity]
        told = log.identity in directory.loss.lossy or log.identity in directory.recovered
        values: list[bytes | None] = []
        try:
            for record in log.records():
                values.append(record.value)
        except LogCorrupt:
            told = True
        assert values == [value_of(batch) for batch in whole[: len(values)]], "what is served was written there"
        assert told or len(values) == len(whole) or ending != "clean", "after a clean stop nothing is missing unnoticed"
    directory.close(clean=False)
