"""How a run is told: addresses and messages in a few words, what a person follows when reading a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

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
from replog.model import Address, PartitionState
from replog.ports import StoreResult, WatchFired

__all__ = ["message_text", "name_of", "state_text"]


def name_of(address: Address) -> str:
    """An address in a trace: 3, controller3, client1."""
    if isinstance(address, tuple):
        return f"{address[0]}{address[1]}"
    return "-" if address is None else str(address)


def state_text(state: PartitionState) -> str:
    """The state of a partition in a few words."""
    return f"leader {state.leader} epoch {state.leader_epoch} isr {list(state.isr)} elr {list(state.elr)} v{state.partition_epoch}"


def message_text(message: Any) -> str:
    """A message in a few words."""
    kind = type(message)
    say = _TEXTS.get(kind)
    return kind.__name__ if say is None else f"{kind.__name__} {say(message)}"


def _fetch(message: Fetch) -> str:
    asked = [(e.partition.partition, e.leader_epoch, e.offset) for e in message.entries]
    return f"{message.request} s{message.session}.{message.session_epoch} {asked}"


def _fetched(message: Fetched) -> str:
    return f"{message.request} s{message.session} {message.error} {[_answered(e) for e in message.entries]}"


def _answered(entry: FetchedEntry) -> tuple[int, ...]:
    size = sum(piece.length for piece in entry.slices)
    place = entry.partition.partition, entry.leader_epoch, entry.offset
    return (*place, entry.error, entry.high_watermark, entry.diverging_end, size)


def _produce(message: Produce) -> str:
    return f"acks {message.acks} {[(e.request, e.partition.partition, len(e.body)) for e in message.entries]}"


def _produced(message: Produced) -> str:
    return f"{[(e.request, e.error, e.base_offset) for e in message.entries]}"


def _stage(message: Stage) -> str:
    work = f"{message.writer} v{message.version} {message.attempt}.{message.number}"
    return f"{message.entry.request} {message.entry.partition.partition} {work} {len(message.entry.body)}"


def _publish(message: Publish) -> str:
    attempts = [(one.attempt, one.pieces) for one in message.attempts]
    return f"{message.request} {message.partition.partition} {message.writer} v{message.version} {attempts}"


def _published(message: Published) -> str:
    return f"{message.request} {message.partition.partition} {message.error} {(message.base_offset, message.end_offset)}"


def _leader_and_isr(message: LeaderAndIsr) -> str:
    states = [(e.partition.partition, e.state.leader, e.state.leader_epoch, e.state.isr) for e in message.entries]
    return f"{message.notice}{' complete' if message.complete else ''} c{message.controller_epoch} {states}"


def _alter_isr(message: AlterIsr) -> str:
    return f"{message.request} {[(e.partition.partition, e.partition_epoch, e.isr) for e in message.entries]}"


def _alter_isr_answer(message: AlterIsrAnswer) -> str:
    return f"{message.request} {message.error} {[(e.partition.partition, e.error) for e in message.entries]}"


def _store_result(message: StoreResult) -> str:
    return f"{message.call}{'' if message.error is None else ' ' + type(message.error).__name__}"


_TEXTS: Final[dict[type, Callable[[Any], str]]] = {
    Fetch: _fetch,
    Fetched: _fetched,
    Produce: _produce,
    Produced: _produced,
    Stage: _stage,
    Publish: _publish,
    Published: _published,
    LeaderAndIsr: _leader_and_isr,
    AlterIsr: _alter_isr,
    AlterIsrAnswer: _alter_isr_answer,
    StoreResult: _store_result,
    WatchFired: lambda message: message.path,
}
