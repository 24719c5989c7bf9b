"""What every log must do with its flushes, as tests: part of `LogContract`."""

from __future__ import annotations

from errno import EIO, EMFILE

import pytest

from replog.errors import LogDamaged, LogFull
from replog.ports import FlushToken, Log
from replog.testing.log_samples import FIRST, append, flush

__all__ = ["LogFlushContract"]


class LogFlushContract:
    """The part of the contract of `Log` that is about what is known to be on disk. Its `log` is that of `LogDirectoryContract`."""

    def test_a_flush_covers_what_was_appended_before_it(self, log: Log) -> None:
        append(log, 2)
        token = _begun(log)
        assert (token.end, token.identity) == (2, FIRST)
        append(log, 2)
        token.run()
        assert log.flushed_end == 0
        log.flushed(token)
        assert log.flushed_end == 2
        flush(log)
        assert log.flushed_end == 4
        assert log.flush() is None

    def test_a_flush_that_finds_no_descriptors_is_done_later(self, log: Log) -> None:
        append(log, 2)
        token = _begun(log)
        token.run()
        token.error = OSError(EMFILE, "Too many open files")
        assert not token.failed
        with pytest.raises(LogFull):
            log.flushed(token)
        assert log.flushed_end == 0
        append(log, 2)
        flush(log)
        assert log.flushed_end == 4

    def test_a_flush_from_before_a_truncation_proves_nothing(self, log: Log) -> None:
        append(log, 2)
        append(log, 2)
        token = _begun(log)
        log.truncate_to(2)
        append(log, 2, epoch=1)
        log.flushed(token.run())
        assert log.flushed_end == 0
        assert log.flush() is not None

    def test_a_flush_from_before_a_reset_proves_nothing(self, log: Log) -> None:
        for offset in (0, 4):
            for _ in range(5):
                append(log, 2)
            token = _begun(log)
            log.reset_to(offset)
            for _ in range(5):
                append(log, 2)
            log.flushed(token.run())
            assert log.flushed_end == offset
            flush(log)
            assert log.flushed_end == offset + 10

    def test_a_flush_that_failed_is_final(self, log: Log) -> None:
        """The system says once that an fsync has failed, and takes the pages for written: no later one proves anything."""
        append(log, 2)
        flush(log)
        append(log, 2)
        token = _begun(log)
        append(log, 2)
        later = _begun(log)
        token.run()
        token.error = OSError(EIO, "Input/output error")
        assert token.failed
        with pytest.raises(LogDamaged):
            log.flushed(token)
        assert log.flushed_end == 2
        for call in (lambda: append(log, 2), lambda: flush(log), lambda: log.flushed(later.run())):
            with pytest.raises(LogDamaged):
                call()
            assert (log.flushed_end, log.end_offset) == (2, 6)

    def test_older_flushes_never_move_the_flushed_end_back(self, log: Log) -> None:
        append(log, 2)
        older = _begun(log)
        append(log, 2)
        newer = _begun(log)
        log.flushed(newer.run())
        log.flushed(older.run())
        assert log.flushed_end == 4


def _begun(log: Log) -> FlushToken:
    """A flush of what has not been flushed."""
    token = log.flush()
    assert token is not None
    return token
