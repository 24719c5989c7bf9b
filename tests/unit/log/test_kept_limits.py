"""A directory made when larger batches were allowed opens, with all that is in it."""

from __future__ import annotations

import sys

import pytest
from tests.unit.log.lives import IDENTITY, open_log, reopened

from replog import payload
from replog.config import BATCH_BYTES_MAX, RECORD_HEADERS_MAX, TopicConfig
from replog.errors import UsageError
from replog.records import BatchReader, Record
from replog.testing.disk import MemoryFs
from replog.testing.disk.trial import content_of
from replog.testing.log_contract import append


def test_a_log_of_a_time_when_larger_batches_were_allowed() -> None:
    config = TopicConfig(flush="ack")
    object.__setattr__(config, "max_batch_bytes", 512 << 20)
    disk = MemoryFs()
    directory, log = open_log(disk, config)
    append(log, "a")
    append(log, "b")
    held = content_of(log).batches
    directory.close(clean=True)
    directory, log = reopened(disk)
    assert log.identity == IDENTITY
    assert content_of(log).batches == held
    assert len(held) == 2
    assert log.config == TopicConfig(flush="ack", max_batch_bytes=BATCH_BYTES_MAX)
    directory.close(clean=True)


def test_a_batch_of_a_time_when_more_records_were_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    directory, log = open_log(MemoryFs(), TopicConfig())
    log.append_records([None] * 1_001, compression="lz4")
    for module in [module for name, module in sys.modules.items() if name.startswith("replog.") and hasattr(module, "BATCH_RECORDS_MAX")]:
        monkeypatch.setattr(module, "BATCH_RECORDS_MAX", 1_000)  # whoever judges what is read as well
    monkeypatch.setitem(vars(BatchReader)["__init__"].__kwdefaults__, "records_max", 1_000)
    assert sum(1 for _ in log.records()) == 1_001
    with pytest.raises(UsageError, match="allowed are 1 to 1000"):
        log.append_records([None] * 1_001)
    directory.close(clean=True)


def test_a_record_of_a_time_when_more_headers_were_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    directory, log = open_log(MemoryFs(), TopicConfig())
    count = RECORD_HEADERS_MAX + 1
    monkeypatch.setattr(payload, "RECORD_HEADERS_MAX", count)
    log.append_records([Record("a", headers=[("h", b"1")] * count)])
    monkeypatch.undo()
    assert [len(record.headers) for record in log.records()] == [count]
    with pytest.raises(UsageError, match="a record with 10001 headers; allowed are 10000"):
        log.append_records([Record("a", headers=[("h", b"1")] * count)])
    directory.close(clean=True)
