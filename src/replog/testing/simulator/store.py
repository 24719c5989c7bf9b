"""A node's line to the metadata store: calls and results are apart in time, outcomes get lost, sessions end unheard."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from replog.errors import ReplogError
from replog.metadata.memory import MemoryStore
from replog.model import Address
from replog.ports import StoreCall, StoreResult, UnknownOutcome, WatchFired
from replog.testing.simulator.refusals import Refusals

__all__ = ["StoreLine", "Timing"]

_WATCH_LOST = 0.01


class Timing(Protocol):
    """What a line needs of its world."""

    now_ms: int
    refusals: Refusals

    def at(self, delay_ms: int, what: Callable[..., None], *args: Any) -> None:
        """Call `what(*args)` after a delay."""

    def applied(self, ops: list[Any]) -> None:
        """A transaction was committed."""

    def note(self, text: str) -> None:
        """A line for the trace."""


class StoreLine:
    """One session of one life of one node. Calls keep their order, as over one connection."""

    def __init__(
        self,
        timing: Timing,
        label: str,
        session: MemoryStore,
        deliver: Callable[[Address, Any], None],
        *,
        chance: random.Random,
    ) -> None:
        self._timing = timing
        self._label = label
        self.session = session
        self._deliver = deliver
        self._chance = chance
        self.unsure = 0.0
        """Share of calls whose outcome is not heard."""
        self.slow_ms = 0
        """Answers take up to this much longer."""
        self.reachable = True
        self.ended = False
        self._calls: deque[tuple[Address, StoreCall]] = deque()
        """On their way to the store, in order: what happens next happens to the first."""
        self._results: deque[tuple[Address, StoreResult]] = deque()
        """On their way back, in order."""
        self._stalled: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """What was to happen while the store was not reached."""
        self._performed_ms = 0
        self._answered_ms = 0

    def call(self, address: Address, call: StoreCall) -> None:
        """An actor wants something done."""
        self._calls.append((address, call))
        self._performed_ms = max(self._timing.now_ms + self._chance.randint(0, 15), self._performed_ms)
        self._timing.at(self._performed_ms - self._timing.now_ms, self._perform)

    def mend(self) -> None:
        """The store is reached again: what waited goes on."""
        self.reachable = True
        stalled, self._stalled = self._stalled, []
        for what, args in stalled:
            self._timing.at(self._chance.randint(0, 15), what, *args)

    def expire(self) -> None:
        """The store ends the session; whoever holds it hears of it later."""
        if not self.ended:
            self.ended = True
            self._timing.note(f"session of {self._label} ends")
            self.session.expire()

    def _perform(self) -> None:
        if not self.reachable and self._chance.random() < 0.5:
            self._stalled.append((self._perform, ()))
            return
        address, call = self._calls.popleft()
        result = StoreResult(call.call)
        if self.reachable:
            self._carry_out(address, call, result)
        else:
            result.error = UnknownOutcome("the store is not reached")
        name = "" if result.error is None else f" {type(result.error).__name__}"
        self._timing.note(f"store {self._label} {call.verb}{name}")
        self._answered_ms = max(self._timing.now_ms + self._chance.randint(0, 15 + self.slow_ms), self._answered_ms)
        self._results.append((address, result))
        self._timing.at(self._answered_ms - self._timing.now_ms, self._answer)

    def _answer(self) -> None:
        if self.reachable:
            self._deliver(*self._results.popleft())
        else:
            self._stalled.append((self._answer, ()))

    def _carry_out(self, address: Address, call: StoreCall, result: StoreResult) -> None:
        unsure = self._chance.random() < self.unsure
        try:
            self._timing.refusals.check(call.verb, call.argument)
            if call.verb == "watch":
                self.session.watch(call.argument, lambda path: self._fired(address, path))
            elif call.verb == "commit_each":
                self._commit_each(call.argument, result, unsure)
            elif call.verb == "commit":
                if unsure and self._chance.random() < 0.5:
                    raise UnknownOutcome("the connection broke before the commit arrived")
                result.value = self.session.commit(call.argument)
                self._timing.applied(list(call.argument))
                if unsure:
                    raise UnknownOutcome("the connection broke before the outcome came back")
            elif unsure:
                raise UnknownOutcome("the connection broke")
            else:
                result.value = getattr(self.session, call.verb)(call.argument)
        except ReplogError as error:
            result.value, result.error = None, error

    def _commit_each(self, batches: Any, result: StoreResult, unsure: bool) -> None:
        """Pipelined: when the connection breaks, some first transactions were applied, and of some of them the outcome was heard."""
        applied = self._chance.randint(0, len(batches)) if unsure else len(batches)
        heard = self._chance.randint(0, applied) if unsure else applied
        results: list[Any] = []
        for ops in batches[:applied]:
            refused = self._timing.refusals.error(op.path for op in ops)
            one = self.session.commit_each([ops])[0] if refused is None else refused
            results.append(one)
            if isinstance(one, list):
                self._timing.applied(list(ops))
        lost = UnknownOutcome("the connection broke")
        result.value = results[:heard] + [lost] * (len(batches) - heard)

    def _fired(self, address: Address, path: str) -> None:
        if self._chance.random() >= _WATCH_LOST:
            self._timing.at(self._chance.randint(0, 30), self._tell_fired, address, path)

    def _tell_fired(self, address: Address, path: str) -> None:
        if not self.reachable:
            self._stalled.append((self._tell_fired, (address, path)))
        elif not self.ended:
            self._deliver(address, WatchFired(path))
