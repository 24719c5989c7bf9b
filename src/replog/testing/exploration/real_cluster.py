"""A tiny cluster of the real code as a space of states: what can happen next, in every order, within a few budgets.

A state is a tuple: brokers, controller, stored states that brokers may still be told, messages under way, the ledger, and what
is left of the budgets. Brokers, controllers and messages are numbers of interned snapshots: a step of one of them depends
on nothing but its snapshot and its event, so the real code runs once for each such pair, and all else is a look-up.

What can happen, in any order:

- a message under way arrives, or never does; within `copies` it arrives and stays under way as well;
- a broker is told any state that was stored while it was registered, and is let in once it has heard of its registration;
- a leader appends, hears who is registered, proposes a larger ISR, or (`shrinks`), maybe after a long time, a smaller one;
- a process is killed, or is back before its session has ended, or only the session ends and the process goes on until it
  registers again (all from `crashes`); the power fails, and what was not flushed is lost (`powers`);
- the controller does not hear whether a proposal was stored, reads, and decides once more (`unknown`).

What is left out because it leads nowhere else:

- a follower always has one question under way, and a leader its proposal: a message that never arrives is as good as one that was
  never sent. What they asked in an earlier epoch or life stays under way. An answer that changes nothing is not sent: the same
  question follows. (The broker drops answers to any but its last question; it knows them by their numbers.)
- leaders alone hear who is registered: nobody else looks at it.
- to a follower all stored states of a leader epoch say the same; what is older than what a broker has, it refuses first
  of all (`stale_notices` has it told all the same).
- between a change of the registrations and the election that follows, only a proposal can make a difference: without one under
  way the election is part of the step. A killed process is back at once: until it is told it does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from attrs import evolve

from replog.errors import UsageError
from replog.model import PartitionState
from replog.testing.exploration.real_broker import (
    ANSWER,
    APPEND,
    ASK,
    DECISION,
    FETCH,
    HEAR,
    LAG,
    NOTICE,
    PROPOSAL,
    PROPOSE,
    Brokers,
    BrokerState,
    proposal_of,
)
from replog.testing.exploration.real_budgets import Budgets
from replog.testing.exploration.real_check import judge_broker, judge_state, judge_store
from replog.testing.exploration.real_controller import Controllers, ControllerState
from replog.testing.exploration.real_fingerprint import Table, fingerprint
from replog.testing.exploration.real_snapshot import SHRINK, Frozen, Setting, freeze_log, freeze_state, thaw_log
from replog.testing.exploration.real_text import View, text, view_state

__all__ = ["RealCluster", "State"]

State = tuple[Any, ...]
"""(brokers, controller, untold, messages, ledger, leaders, budgets, what is wrong)."""

_UNANNOUNCED: Final = (-1,)
"""Registered, and to be told everything as soon as the controller has decided what there is to tell."""
_RECORDS, _CRASHES, _POWERS, _UNKNOWN, _COPIES, _SHRINKS = range(6)


class RealCluster:
    """The space of one setting and its budgets: `initial`, `successors`, `wrong`, `fingerprint`."""

    def __init__(self, budgets: Budgets) -> None:
        self.budgets = budgets
        self.setting = Setting(budgets.replicas, budgets.min_isr, piecemeal=budgets.piecemeal)
        self.ids = self.setting.assignment.replicas
        self.brokers, self.controllers, self.messages = Table(), Table(), Table()
        self.wrongs = [""]
        self.steps_run = 0
        """How often the code of a broker or the controller really ran."""
        self._brokers = Brokers(self.setting)
        self._controllers = Controllers(self.setting)
        self._memo: dict[Frozen, Any] = {}
        self.initial = self._initial()

    def _initial(self) -> State:
        """Everybody has heard the first state, and the followers have asked."""
        isr = self.budgets.isr or self.ids
        stored = freeze_state(PartitionState(isr[0], 0, isr))
        view = tuple((0, 0) for _ in self.ids)
        brokers = []
        for n in self.ids:
            log = freeze_log(thaw_log(((), (), -1, 0), self.setting.config))
            started = self._brokers.started(n, log, incarnation=0, broker_epoch=0, lossy=0)
            broker, _, why = self._brokers.step(n, evolve(started, view=view), (NOTICE, stored))
            assert not why, why
            brokers.append(self.brokers.number(broker))
        controller = ControllerState(stored, tuple((0, 0, 0) for _ in self.ids), tuple((0, 0) for _ in self.ids), 0)
        b = self.budgets
        left = (b.records, len(b.plan) or b.crashes, b.powers, b.unknown, b.copies, b.shrinks)
        untold: Frozen = tuple(() for _ in self.ids)
        state = (tuple(brokers), self.controllers.number(controller), untold, (), (), ((0, isr[0], 0),), left, 0)
        for n in self.ids:
            state = self._goes_on(state, n)
        return state

    def begin(self, *names: str) -> None:
        """Begin the exploration where these steps lead: each takes the first successor whose text begins like this."""
        for name in names:
            found = [after for what, after in self.successors(self.initial) if text(what).startswith(name)]
            if not found:
                possible = ", ".join(text(what) for what, _ in self.successors(self.initial))
                raise UsageError(f"{name!r} cannot happen next; possible are {possible}")
            self.initial = found[0]

    # ------------------------------------------------------------------------------------------------------ for the search

    def wrong(self, state: State) -> str | None:
        """What is wrong with a state."""
        return self.wrongs[state[7]] or None

    def marked(self, state: State, why: str) -> State:
        """The state with something wrong about it."""
        return (*state[:7], self._why(why))

    def fingerprint(self, state: State) -> int:
        """64 bits that stand for a state."""
        return fingerprint(self.brokers, self.controllers, self.messages, state)

    def view(self, state: State) -> View:
        """A state as data: what a refinement check compares with a model."""
        brokers = tuple([self.brokers.values[b] for b in state[0]])
        messages = tuple([self.messages.values[m] for m in state[3]])
        return view_state(brokers, self.controllers.values[state[1]], messages, state[4])

    def successors(self, state: State) -> Iterator[tuple[Frozen, State]]:
        """Everything that can happen next, as (what, the state after it)."""
        if state[7]:
            return
        controller: ControllerState = self.controllers.values[state[1]]
        if controller.due:
            yield from self._elects(state)
            return
        brokers = [self.brokers.values[b] for b in state[0]]
        for message in state[3]:
            yield from self._arrives(state, message)
        for n, broker in enumerate(brokers, 1):
            yield from self._told(state, controller, n, broker)
            if broker.copy[6]:
                yield from self._leads(state, controller, n, broker)
            if controller.registered[n - 1]:
                yield from self._ends(state, controller, n)
            elif (after := self._settles(self._registered(state, n))) is not None:
                yield ("register", n), after

    # ---------------------------------------------------------------------------------------------------------- the steps

    def _step(self, number: int, n: int, event: Frozen) -> tuple[int, tuple[int, ...], int]:
        """The memory of `Brokers.step`: (broker afterwards, messages, what is wrong)."""
        key = (number, n, event)
        found = self._memo.get(key)
        if found is None:
            self.steps_run += 1
            broker, sent, why = self._brokers.step(n, self.brokers.values[number], event)
            found = self._memo[key] = (self.brokers.number(broker), tuple(map(self.messages.number, sent)), self._why(why))
        return found

    def _why(self, why: str) -> int:
        if why not in self.wrongs:
            self.wrongs.append(why)
        return self.wrongs.index(why)

    def _moved(self, state: State, n: int, event: Frozen, *, without: int = -1, spent: int = -1) -> State | None:
        """A broker takes an event, maybe a message that is no longer under way then. None if nothing at all has changed."""
        brokers, controller, untold, messages, ledger, leaders, left, _ = state
        before = brokers[n - 1]
        after, sent, why = self._step(before, n, event)
        if sent and event[0] == FETCH and self._means_nothing(brokers, sent[0]):
            sent, without = (), -1  # the follower will ask the same again
        if after == before and not sent and not why and event[0] != DECISION:
            return None
        if without >= 0:
            messages = tuple([m for m in messages if m != without])
        if after != before:
            brokers = (*brokers[: n - 1], after, *brokers[n:])
            messages = self._settled(messages, n, before, after)
            if not why:
                ledger, leaders, why = self._judged(brokers, n, before, controller, ledger, leaders)
            untold = (*untold[: n - 1], self._useful(n, self.brokers.values[after], untold[n - 1]), *untold[n:])
        if sent:
            messages = tuple(sorted({*messages, *sent}))
        if spent >= 0:
            left = _spend(left, spent)
        return self._goes_on((brokers, controller, untold, messages, ledger, leaders, left, why), n)

    def _means_nothing(self, brokers: Frozen, answer: int) -> bool:
        """Whether an answer changes nothing at the broker it is for; then it never will, as long as that broker waits for it."""
        n = self.messages.values[answer][1]
        after, _, why = self._step(brokers[n - 1], n, self.messages.values[answer])
        return not why and after == brokers[n - 1]

    def _judged(self, brokers: Frozen, n: int, before: int, controller: int, ledger: Frozen, leaders: Frozen) -> tuple[Frozen, Frozen, int]:
        values = self.brokers.values
        stored = self.controllers.values[controller].state
        now = [values[b] for b in brokers]
        ledger, leaders, text = judge_broker(now, n, values[before], stored, self.setting.min_isr, ledger, leaders)
        return ledger, leaders, self._why(text) if text else 0

    def _goes_on(self, state: State, n: int) -> State:
        """What a broker does by itself: a follower always has a question, and a proposal is repeated until it is decided."""
        broker: BrokerState = self.brokers.values[state[0][n - 1]]
        if not broker.alive or state[7]:
            return state
        if broker.wish:
            if not any(self._is(m, DECISION, n) or self._is(m, PROPOSAL, n) for m in state[3]):
                again = self.messages.number(proposal_of(n, broker.broker_epoch, broker.wish))
                return (*state[:3], tuple(sorted((*state[3], again))), *state[4:])
        elif broker.copy[5] and broker.copy[5][0] and not self._has_asked(state[3], n, broker):
            messages = self._outdated(state[3], n, FETCH, ANSWER)
            _, sent, _ = self._step(state[0][n - 1], n, (ASK,))
            return (*state[:3], tuple(sorted({*messages, *sent})), *state[4:])
        return state

    def _has_asked(self, messages: Frozen, n: int, broker: BrokerState) -> bool:
        epoch = broker.copy[1]
        for number in messages:
            message = self.messages.values[number]
            if message[0] == FETCH:
                if message[2] == n and message[-1] and message[4] == epoch:
                    return True
            elif message[0] == ANSWER and message[1] == n and message[2] == epoch:
                return True
        return False

    def _is(self, number: int, kind: int, n: int) -> bool:
        """Whether this is a message of a kind that broker n waits for, or waits with."""
        message = self.messages.values[number]
        return bool(message[0] == kind and message[1] == n and (kind != PROPOSAL or message[-1]))

    def _settled(self, messages: Frozen, n: int, before: int, after: int) -> Frozen:
        """A proposal that was decided, or given up with its leadership, is answered to nobody."""
        was, now = self.brokers.values[before], self.brokers.values[after]
        if not was.wish or was.wish == now.wish:
            return messages
        return self._outdated(messages, n, PROPOSAL, DECISION)

    def _outdated(self, messages: Frozen, n: int, *kinds: int) -> Frozen:
        """Broker n no longer waits: what it asked is answered to nobody, what it was answered is dropped."""
        kept = []
        for number in messages:
            message = self.messages.values[number]
            if message[0] not in kinds or message[2 if message[0] == FETCH else 1] != n:
                kept.append(number)
            elif message[0] in (FETCH, PROPOSAL):
                kept.append(self.messages.number((*message[:-1], 0)))
        return tuple(sorted(set(kept)))

    # ------------------------------------------------------------------------------------------------------------ notices

    def _useful(self, n: int, broker: BrokerState, untold: Frozen) -> Frozen:
        """Of what a broker may be told, what can make a difference to it.

        To a follower all states of one leader epoch say the same; a leader minds each. The newest stays until a complete
        notice has been applied.
        """
        if not untold or self.budgets.stale_notices or untold == _UNANNOUNCED:
            return untold
        _, epoch, version, *_ = broker.copy
        kept = []
        for at, stored in enumerate(untold):
            last = at + 1 == len(untold)
            if stored[0] == n:
                useful = stored[6] > version and stored[1] >= epoch
            else:
                useful = stored[1] > epoch and (last or untold[at + 1][1] > stored[1])
            if useful or (last and not broker.welcome):
                kept.append(stored)
        return tuple(kept)

    def _told(self, state: State, controller: ControllerState, n: int, broker: BrokerState) -> Iterator[tuple[Frozen, State]]:
        """Any state that it may be told; and that it is let in."""
        for stored in state[2][n - 1]:
            after = self._moved(state, n, (NOTICE, stored))
            if after is not None:
                yield ("told", n, stored), after
        registered = controller.registered[n - 1]
        if broker.welcome and registered and controller.view[n - 1][1]:
            forgiven = self._replaced(state, n, evolve(broker, lossy=0)) if broker.lossy else state
            admitted = self._settles(self._stored(forgiven, self._controller_step("acknowledged", state[1], n, broker.broker_epoch)))
            if admitted is not None:
                yield ("let in", n), admitted

    # ----------------------------------------------------------------------------------------------------------- messages

    def _arrives(self, state: State, number: int) -> Iterator[tuple[Frozen, State]]:
        message = self.messages.values[number]
        if message[0] == PROPOSAL:
            yield from self._proposed(state, number, message)
            return
        after = self._moved(state, message[1], message, without=number)
        if after is not None:
            yield (message,), after
        if state[6][_COPIES]:
            again = self._moved(state, message[1], message, spent=_COPIES)
            if again is not None:
                yield (message, "and again"), again

    def _proposed(self, state: State, number: int, message: Frozen) -> Iterator[tuple[Frozen, State]]:
        left = state[6]
        gone = (*state[:3], tuple([m for m in state[3] if m != number]), *state[4:])
        yield from self._decided((message,), gone, message, unknown=False)
        if left[_UNKNOWN]:
            unsure = (*gone[:6], _spend(left, _UNKNOWN), gone[7])
            yield from self._decided((message, "outcome unknown"), unsure, message, unknown=True)
        if left[_COPIES]:
            kept = (*state[:6], _spend(left, _COPIES), state[7])
            yield from self._decided((message, "and again"), kept, message, unknown=False)

    def _decided(self, what: Frozen, state: State, message: Frozen, *, unknown: bool) -> Iterator[tuple[Frozen, State]]:
        key = (state[1], message, unknown)
        found = self._memo.get(key)
        if found is None:
            self.steps_run += 1
            found = self._memo[key] = self._controllers.proposed(self.controllers.values[state[1]], message, unknown=unknown)
        controller, answer = found
        if controller == self.controllers.values[state[1]] and not (answer and message[-1]):
            return
        after = self._stored(state, controller)
        if after is None:
            return
        if answer and message[-1]:
            decision = self.messages.number((DECISION, message[1], *answer))
            after = (*after[:3], tuple(sorted({*after[3], decision})), *after[4:])
        yield what, self._goes_on(after, message[1])

    # --------------------------------------------------------------------------------------------------------- controller

    def _stored(self, state: State, controller: ControllerState) -> State | None:
        """The controller has stored something, or seen something; None if that is beyond the last epoch."""
        brokers, number, untold, messages, ledger, leaders, left, _ = state
        before, now = self.controllers.values[number].state, controller.state
        if now[1] >= self.budgets.epochs:
            return None
        why = ""
        if now != before or _UNANNOUNCED in untold:
            why = judge_state(before, now) if now != before else ""
            untold = tuple(
                [
                    self._untold(n, self.brokers.values[b], one, now, controller, grown=now != before)
                    for n, b, one in zip(self.ids, brokers, untold, strict=True)
                ]
            )
        why = why or judge_store([self.brokers.values[b] for b in brokers], now, ledger)
        return brokers, self.controllers.number(controller), untold, messages, ledger, leaders, left, self._why(why)

    def _untold(self, n: int, broker: BrokerState, untold: Frozen, now: Frozen, controller: ControllerState, *, grown: bool) -> Frozen:
        """A broker that has registered is told everything once its partition is decided, and from then on what is new."""
        if untold == _UNANNOUNCED:
            return untold if controller.due else self._useful(n, broker, (now,))
        if not grown or not controller.registered[n - 1]:
            return untold
        return self._useful(n, broker, (*untold, now))

    def _controller_step(self, name: str, number: int, *given: Any) -> ControllerState:
        key = (name, number, *given)
        found: ControllerState | None = self._memo.get(key)
        if found is None:
            self.steps_run += 1
            found = self._memo[key] = getattr(self._controllers, name)(self.controllers.values[number], *given)
        return found

    def _elects(self, state: State) -> Iterator[tuple[Frozen, State]]:
        after = self._settles(self._stored(state, self._controller_step("rechecked", state[1])))
        if after is not None:
            yield ("elect",), after
        for number in state[3]:
            message = self.messages.values[number]
            if message[0] == PROPOSAL:
                yield from self._proposed(state, number, message)

    def _settles(self, state: State | None) -> State | None:
        """What follows without a choice: the election, unless a proposal may come before it; then whoever was killed is back.

        A process that has just begun does nothing and is believed nothing until it is told and let in, so it may as well be there.
        """
        while state is not None and not state[7]:
            controller = self.controllers.values[state[1]]
            if controller.due:
                if any(self.messages.values[m][0] == PROPOSAL for m in state[3]):
                    return state
                state = self._stored(state, self._controller_step("rechecked", state[1]))
                continue
            dead = [n for n, b in zip(self.ids, state[0], strict=True) if not self.brokers.values[b].alive]
            if not dead:
                return state
            state = self._registered(state, dead[0])
        return state

    # ------------------------------------------------------------------------------------------------------------ brokers

    def _leads(self, state: State, controller: ControllerState, n: int, broker: BrokerState) -> Iterator[tuple[Frozen, State]]:
        left = state[6]
        if left[_RECORDS]:
            appended = self._moved(state, n, (APPEND, self.budgets.records - left[_RECORDS]), spent=_RECORDS)
            if appended is not None:
                yield ("append", n), appended
        if controller.registered[n - 1] and broker.view != controller.view:
            heard = self._moved(state, n, (HEAR, controller.view))
            if heard is not None:
                yield ("hear", n), heard
        may_lag = left[_SHRINKS] and any(not one[4] and one[2] < len(broker.log[0]) for one in broker.copy[6][7])
        if broker.wish:
            waited = self._moved(state, n, (LAG,), spent=_SHRINKS) if may_lag else None
            if waited is not None:
                yield ("lag", n), waited
            return
        yield from self._wishes(state, n, ("propose", n))
        if may_lag:
            lagged = self._moved(state, n, (LAG,))
            if lagged is not None:
                yield from self._wishes(lagged, n, ("lag and propose", n))

    def _wishes(self, state: State, n: int, what: Frozen) -> Iterator[tuple[Frozen, State]]:
        """The leader wants another ISR. A smaller one costs: a follower that joins behind the leader's end may leave and join for ever."""
        proposed = self._moved(state, n, (PROPOSE,))
        if proposed is None:
            return
        if self.brokers.values[proposed[0][n - 1]].copy[6][6][0] == SHRINK:
            if not proposed[6][_SHRINKS]:
                return
            proposed = (*proposed[:6], _spend(proposed[6], _SHRINKS), proposed[7])
        yield what, proposed

    def _ends(self, state: State, controller: ControllerState, n: int) -> Iterator[tuple[Frozen, State]]:
        """The process is killed, or loses power, or only its session ends."""
        left, plan = state[6], self.budgets.plan
        without = (*controller.registered[: n - 1], (), *controller.registered[n:])
        for what in ("kill", "restart", "expire", "power"):
            budget = _POWERS if what == "power" else _CRASHES
            if not left[budget] or (budget == _CRASHES and plan and plan[-left[_CRASHES]] != (what, n)):
                continue
            spent = (*state[:6], _spend(left, budget), state[7])
            stopped = spent if what == "expire" else self._stopped(spent, n, power=what == "power")
            after = self._registered(stopped, n) if what == "restart" else self._seen(stopped, without)
            if (after := self._settles(after)) is not None:
                yield (what, n), after

    def _stopped(self, state: State, n: int, *, power: bool) -> State:
        stopped = self._brokers.stopped(self.brokers.values[state[0][n - 1]], power=power)
        messages = self._outdated(state[3], n, FETCH, ANSWER, PROPOSAL, DECISION)
        untold = (*state[2][: n - 1], (), *state[2][n:])
        return self._replaced((*state[:2], untold, messages, *state[4:]), n, stopped)

    def _registered(self, state: State, n: int) -> State | None:
        """Another process of a broker, or the same one under another broker epoch."""
        broker: BrokerState = self.brokers.values[state[0][n - 1]]
        broker_epoch = broker.broker_epoch + 1
        if broker.alive:
            begun = evolve(broker, broker_epoch=broker_epoch, welcome=0)
        else:
            life = broker.incarnation + 1
            begun = self._brokers.started(n, broker.log, incarnation=life, broker_epoch=broker_epoch, lossy=broker.lossy)
        untold = (*state[2][: n - 1], _UNANNOUNCED, *state[2][n:])
        messages = self._outdated(state[3], n, FETCH, ANSWER)
        present = (broker_epoch, begun.incarnation, broker.lossy)
        registered = self.controllers.values[state[1]].registered
        after = self._goes_on(self._replaced((*state[:2], untold, messages, *state[4:]), n, begun), n)
        return self._seen(after, (*registered[: n - 1], present, *registered[n:]))

    def _replaced(self, state: State, n: int, broker: BrokerState) -> State:
        return ((*state[0][: n - 1], self.brokers.number(broker), *state[0][n:]), *state[1:])

    def _seen(self, state: State, registered: Frozen) -> State | None:
        return self._stored(state, self._controller_step("brokers_seen", state[1], registered))


def _spend(left: Frozen, which: int) -> Frozen:
    return (*left[:which], left[which] - 1, *left[which + 1 :])
