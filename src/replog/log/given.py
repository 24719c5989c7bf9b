"""What is given to a log by who uses it alone: refusals name the value and what is allowed. No batch of a broker's log passes here."""

from __future__ import annotations

from typing import Final

from replog.config import BrokerConfig, TopicConfig
from replog.errors import UsageError
from replog.errors.texts import number_text
from replog.records import RecordBatch

__all__ = ["OFFSET_MAX", "check_batch", "check_epoch", "check_room", "check_settings", "checked", "whole"]

OFFSET_MAX: Final = (1 << 63) - 1
_EPOCH_MAX: Final = (1 << 31) - 1


def whole(value: int, name: str = "offset") -> int:
    """An int, and no bool."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name} is an int, not {value!r:.120}")
    return value


def checked(offset: int, name: str = "offset") -> int:
    """An offset, or a time, that can be stored."""
    if not 0 <= whole(offset, name) <= OFFSET_MAX:
        raise UsageError(f"{name} is 0 to {OFFSET_MAX}, not {number_text(offset)}")
    return offset


def check_epoch(epoch: int, last_epoch: int) -> None:
    """A leader epoch that a log of `last_epoch` can enter."""
    if not max(last_epoch, 0) <= whole(epoch, "epoch") <= _EPOCH_MAX:
        raise UsageError(f"epoch is {max(last_epoch, 0)} (not below the log's latest) to {_EPOCH_MAX}, not {number_text(epoch)}")


def check_batch(batch: RecordBatch) -> None:
    """A batch, and none that ends beyond the last offset there is."""
    if not isinstance(batch, RecordBatch):
        raise UsageError(f"a log appends RecordBatches, not {batch!r:.120}; append_records makes one of values")
    check_room(batch.base_offset, batch.count)


def check_room(base_offset: int, count: int) -> None:
    """A log can end behind so many records."""
    if base_offset > OFFSET_MAX - count:
        raise UsageError(f"the batch would end at offset {base_offset + count}; the largest one is {OFFSET_MAX}")


def check_settings(config: TopicConfig | None, limits: BrokerConfig | None) -> None:
    """Both are what they are called."""
    if config is not None and not isinstance(config, TopicConfig):
        raise UsageError(f"config is a TopicConfig, or None, not {config!r:.120}; TopicConfig.from_mapping makes one of a mapping")
    if limits is not None and not isinstance(limits, BrokerConfig):
        raise UsageError(f"limits is a BrokerConfig, or None, not {limits!r:.120}; BrokerConfig.from_mapping makes one of a mapping")
