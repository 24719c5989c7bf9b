"""An actor in its place in a pump."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from attrs import define, field

from replog.metrics.watching import BrokerWatch
from replog.model import Address
from replog.ports import Actor, FlushDone, FlushToken, MetadataStore, StoreCall
from replog.runtime.flight import Flight

__all__ = ["Seat"]


@define(eq=False)
class Seat:
    """An actor in its place: reached at `address`, using `store`. `died` is told what killed it, before that continues.

    A store that may block is not called here: `calls` takes the calls instead, and posts what becomes of them. `watch` counts.
    """

    address: Address
    actor: Actor
    store: MetadataStore | None = None
    died: Callable[[BaseException], None] | None = None
    calls: Callable[[Address, StoreCall], None] | None = None
    watch: BrokerWatch | None = None
    alive: bool = field(default=True)
    due_ms: int | None = field(default=None)
    """When the actor needs a tick next, as it said after its last one."""
    flights: dict[int, Flight] = field(init=False, factory=dict)
    """Flushes that the actor has asked for and has not heard of, by the identity of their tokens."""
    hears: Mapping[type, Callable[[Address, Any, int], None]] = field(init=False)
    """Messages that do not go to the actor at once: those that the watch hands on, ..."""
    hears_brokers: Mapping[type, Callable[[Address, Any, int], None]] = field(init=False)
    """... and those of other brokers: their addresses are numbers."""
    tells: Mapping[type, Callable[[Address, Any], object]] = field(init=False)
    """Messages of the actor that the watch hears of."""
    hands_on: Mapping[type, Callable[[Any], object]] = field(init=False)
    """... and those for clients elsewhere, as they were handed on."""

    def __attrs_post_init__(self) -> None:
        watch_hears = {} if self.watch is None else self.watch.hears
        self.hears = {**watch_hears, FlushDone: self._hear_flush}
        self.hears_brokers = {} if self.watch is None else self.watch.hears_brokers
        self.tells = {} if self.watch is None else self.watch.tells
        self.hands_on = {} if self.watch is None else self.watch.hands_on

    def take_off(self, token: FlushToken) -> Flight:
        """A flush that the actor has asked for, to be run here or elsewhere."""
        flight = Flight(token, token.run if self.watch is None else partial(self.watch.flush, token))
        self.flights[id(token)] = flight
        return flight

    def _hear_flush(self, sender: Address, message: FlushDone, now_ms: int) -> None:
        self.actor.receive(sender, message, now_ms)
        self.flights.pop(id(message.token), None)
