"""What a broker forgets of copies that are gone: stops that are old, checkpoints that speak of them, and what its catalogue says."""

from __future__ import annotations

import pytest
from tests.unit.log.lives import open_directory
from tests.unit.partition.copies import IDENTITY, notice

from replog.broker.commands import TOPIC_DELETED, Commands
from replog.broker.upkeep import Upkeep
from replog.config import BrokerConfig, TopicConfig
from replog.log import catalogue
from replog.log.memory import MemoryLogDirectory
from replog.messages import LeaderAndIsr, StopEntry, StopReplica
from replog.model import PartitionId
from replog.ports import LogStart
from replog.testing.disk import MemoryFs

KEPT_MS = 60_000
TOPIC = TopicConfig(min_isr=1)


def stopped(number: int = 5) -> Commands:
    """Commands of a broker that has put one copy away."""
    made = Commands(MemoryLogDirectory(directory_id="d"))
    made.registered(3)
    made.on_stop_replica(StopReplica(9, 1, 3, number, [StopEntry(IDENTITY, TOPIC_DELETED, True)], as_of=number), lambda _: 0)
    return made


def reaches(commands: Commands, number: int) -> bool:
    """Whether a notice of this number brings the copy back."""
    reached: list[PartitionId] = []
    message = LeaderAndIsr(9, 1, 3, number, False, 1_000, [notice(1, 0, (1, 2, 3))], as_of=number)
    commands.on_leader_and_isr(message, lambda entry: reached.append(entry.partition) or 0)
    return bool(reached)


def test_a_stop_is_remembered_for_a_minute_at_least_and_two_at_most() -> None:
    for begun in (0, 1, KEPT_MS - 1):
        commands = stopped()
        for now in range(begun, begun + KEPT_MS, 2_000):
            commands.age(now)
        assert not reaches(commands, 4)
        for now in range(begun + KEPT_MS, begun + 2 * KEPT_MS + 4_000, 2_000):
            commands.age(now)
        assert (commands._stopped, commands._aging) == ({}, {})


def test_nothing_is_remembered_of_the_life_before() -> None:
    commands = stopped()
    commands.age(0)
    assert reaches(commands, 6)
    other = StopEntry(IDENTITY._replace(partition=9), TOPIC_DELETED, True)
    commands.on_stop_replica(StopReplica(9, 1, 3, 7, [other], as_of=7), lambda _: 0)
    commands.registered(4)
    assert (commands._stopped, commands._aging, commands._named) == ({}, {}, {})


def test_a_copy_that_is_stopped_again_is_remembered_anew() -> None:
    commands = stopped()
    commands.age(0)
    assert reaches(commands, 6)
    commands.on_stop_replica(StopReplica(9, 1, 3, 7, [StopEntry(IDENTITY, TOPIC_DELETED, True)], as_of=7), lambda _: 0)
    commands.age(KEPT_MS)
    assert not reaches(commands, 6)
    commands.age(2 * KEPT_MS)
    assert commands._stopped == {}


def test_a_checkpoint_does_not_go_on_speaking_of_copies_that_were_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = BrokerConfig(checkpoint_interval_ms=1_000, deletion_delay_ms=0)
    directory = MemoryLogDirectory(limits=limits)
    directory.create([LogStart(IDENTITY, "t", TopicConfig())])
    written: list[int] = []
    monkeypatch.setattr(directory, "checkpoint", lambda: written.append(1))
    upkeep = Upkeep(directory, {}, limits)
    upkeep.run(0)
    upkeep.run(1_000)
    assert written == []
    directory.quarantine_each([IDENTITY], 0)
    upkeep.wall_ms = 10
    upkeep.run(2_000)
    assert written == [1]
    upkeep.run(3_000)
    assert written == [1]


def test_a_catalogue_that_speaks_of_what_is_gone_is_written_anew_while_it_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_COMPACT_AT", 30)
    fs = MemoryFs()
    directory = open_directory(fs)
    kept = PartitionId(b"k" * 16, 0, 0)
    directory.create([LogStart(kept, "kept", TOPIC)])
    sizes = []
    for number in range(100):
        one = PartitionId(number.to_bytes(16, "big"), 0, 0)
        directory.create([LogStart(one, f"t{number}", TOPIC)])
        directory.quarantine_each([one], number)
        directory.purge_each([one])
        sizes.append(len(fs.content("/d/catalogue")))
    assert max(sizes) < 1.2 * max(sizes[:12])
    directory.create([LogStart(PartitionId(b"n" * 16, 0, 0), "new", TOPIC)])
    directory.close(clean=False)
    again = open_directory(fs)
    assert sorted(identity.topic_id[:1] for identity in again.identities()) == [b"k", b"n"]
    assert again.quarantined() == {}
