"""How a run is told: addresses and messages in a few words, what a person follows when reading a trace."""

from __future__ import annotations

from typing import Any

from replog.messages import (
    AlterIsr,
    AlterIsrAnswer,
    Fetch,
    Fetched,
    FetchedEntry,
    LeaderAndIsr,
    Produce,
    Produced,
    Publish,
    Published,
    Stage,
)
from replog.model import Address
from replog.ports import StoreResult, WatchFired

__all__ = ["message_text", "name_of"]


def name_of(address: Address) -> str:
    """An address in a trace: 3, controller3, client1."""
    if isinstance(address, tuple):
        return f"{address[0]}{address[1]}"
    return "-" if address is None else str(address)


def message_text(message: Any) -> str:
    """A message in a few words."""
    name = type(message).__name__
    match message:
        case Fetch():
            asked = [(e.partition.partition, e.leader_epoch, e.offset) for e in message.entries]
            return f"{name} {message.request} s{message.session}.{message.session_epoch} {asked}"
        case Fetched():
            return f"{name} {message.request} s{message.session} {message.error} {[_answered(e) for e in message.entries]}"
        case Produce():
            return f"{name} acks {message.acks} {[(e.request, e.partition.partition, len(e.body)) for e in message.entries]}"
        case Produced():
            return f"{name} {[(e.request, e.error, e.base_offset) for e in message.entries]}"
        case Stage():
            work = f"{message.writer} v{message.version} {message.attempt}.{message.number}"
            return f"{name} {message.entry.request} {message.entry.partition.partition} {work} {len(message.entry.body)}"
        case Publish():
            attempts = [(one.attempt, one.pieces) for one in message.attempts]
            return f"{name} {message.request} {message.partition.partition} {message.writer} v{message.version} {attempts}"
        case Published():
            place = message.base_offset, message.end_offset
            return f"{name} {message.request} {message.partition.partition} {message.error} {place}"
        case LeaderAndIsr():
            states = [(e.partition.partition, e.state.leader, e.state.leader_epoch, e.state.isr) for e in message.entries]
            return f"{name} {message.notice}{' complete' if message.complete else ''} c{message.controller_epoch} {states}"
        case AlterIsr():
            return f"{name} {message.request} {[(e.partition.partition, e.partition_epoch, e.isr) for e in message.entries]}"
        case AlterIsrAnswer():
            return f"{name} {message.request} {message.error} {[(e.partition.partition, e.error) for e in message.entries]}"
        case StoreResult():
            return f"{name} {message.call}{'' if message.error is None else ' ' + type(message.error).__name__}"
        case WatchFired():
            return f"{name} {message.path}"
        case _:
            return name


def _answered(entry: FetchedEntry) -> tuple[int, ...]:
    size = sum(piece.length for piece in entry.slices)
    place = entry.partition.partition, entry.leader_epoch, entry.offset
    return (*place, entry.error, entry.high_watermark, entry.diverging_end, size)
