"""What a log that is used alone refuses: every error is a UsageError that names the value, and nothing has happened."""

from __future__ import annotations

from typing import Any

import pytest

from replog.errors import UsageError
from replog.log.log import FileLog
from replog.log.memory import MemoryLog
from replog.model import PartitionId
from replog.records import Record
from replog.testing.disk import MemoryFs


@pytest.fixture(params=["files", "memory"])
def log(request: pytest.FixtureRequest) -> Any:
    return FileLog.open("/log", fs=MemoryFs()) if request.param == "files" else MemoryLog(PartitionId(bytes(16), 0, 0))


@pytest.mark.parametrize(
    "records", ["abc", b"abc", bytearray(b"abc"), memoryview(b"abc"), {"k": "v"}, {"k"}, frozenset("k"), None, 5, Record("x")]
)
def test_what_is_no_list_of_records(log: Any, records: Any) -> None:
    with pytest.raises(UsageError, match="records is a list of values or Records, not ") as refused:
        log.append_records(records)
    assert repr(records) in str(refused.value)
    assert log.end_offset == 0
    assert log.append_records(iter({"k": "v"}.keys())) == (0, 0)
    assert log.append_records({"k": "v"}.values()) == (1, 1)
    assert [record.text() for record in log.records()] == ["k", "v"]
