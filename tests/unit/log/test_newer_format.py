"""Batches of a format that a later version has made: no damage, and nothing of them is cut or moved."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from tests.unit.log.lives import kill, open_directory, open_log, segments

from replog.config import TopicConfig
from replog.errors import UsageError
from replog.log.repair import plan_of
from replog.records import FRONT, VERSION
from replog.testing.disk import MemoryFs
from replog.testing.log_contract import append, flush


def with_a_newer_batch(version: int, *, number: int = 2, flushed: bool = False, power: bool = False, sealed: bool = True) -> MemoryFs:
    """Five batches, one of them of that version; its broker was killed, or has lost power."""
    disk = MemoryFs()
    directory, log = open_log(disk, TopicConfig())
    lengths = [append(log, 2).length for _ in range(5)]
    if flushed:
        flush(log)
        directory.checkpoint()
    kill(disk, directory)
    data = disk.content(segments(disk)[0])
    at = sum(lengths[:number])
    data[at + 2] = version
    if sealed:
        front, payload_crc = bytes(data[at : at + FRONT.size]), bytes(data[at + FRONT.size + 4 : at + FRONT.size + 8])
        struct.pack_into("<I", data, at + FRONT.size, crc32c(payload_crc, crc32c(front)))
    if power:
        disk.boots += 1
    return disk


@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize(("flushed", "power"), [(False, False), (True, False), (True, True), (False, True)])
def test_a_newer_batch_is_refused_and_stays(number: int, flushed: bool, power: bool) -> None:
    disk = with_a_newer_batch(VERSION + 1, number=number, flushed=flushed, power=power)
    before = disk.snapshot("d/logs")
    says = rf"has a batch of format {VERSION + 1} at position \d+; this version of the library reads up to {VERSION}"
    for _ in range(2):
        with pytest.raises(UsageError, match=says):
            open_directory(disk)
        disk.kill()
        with pytest.raises(UsageError, match=rf"format {VERSION + 1}"):
            plan_of(disk, "/d")
        assert {path: data for path, data in disk.snapshot("d/logs").items() if path in before} == before


@pytest.mark.parametrize(("version", "sealed"), [(VERSION + 1, False), (0, True)])
def test_what_is_no_newer_batch_is_damage(version: int, sealed: bool) -> None:
    """Its header does not vouch for that version; or no version ever made it."""
    disk = with_a_newer_batch(version, sealed=sealed)
    directory = open_directory(disk)
    (log,) = (directory.get(identity) for identity in directory.identities())
    assert log is not None
    assert log.end_offset == 4
