"""Whether each step of the real code is one that the abstract model allows: its states in the model's words, before and after.

What the model has and a state of `RealCluster` does not is chosen so that both ends of a step agree: who led an epoch that nobody
is in any more, and from which epoch on a process is told that has heard of nothing yet. The model acts on the present alone, since
what comes late there has happened early; here a message comes late. So it is compared with its time: a state of the store
that its leader is told with the store as it was then, an outdated fetch with the follower that sent it, and an answer with the leader
that gave it, if that does not lead its epoch any more.

The model knows no ELR: with fewer in sync than `min_isr` a partition is beyond it. `Compared` says how many steps that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import define, evolve

from replog.testing.exploration.model import Action, Model
from replog.testing.exploration.real_broker import ANSWER, DECISION, FETCH, BrokerState
from replog.testing.exploration.real_cluster import RealCluster, State
from replog.testing.exploration.real_snapshot import COMMITTED, EXPAND, SHRINK, Frozen
from replog.testing.exploration.real_text import text
from replog.testing.exploration.rules import Bounds, Rules
from replog.testing.exploration.state import FOLLOWS, IDLE, LEADS, ModelState, ReplicaView, StoreView

__all__ = ["Compared", "StepCheck"]


@define
class Compared:
    """How many steps were compared."""

    steps: int = 0
    """That the model allows, or that change nothing it knows."""
    beyond: int = 0
    """Of which it cannot speak: there is an ELR, or nobody is left who has everything."""

    def __str__(self) -> str:
        beyond = f", {self.beyond:,} more of which it cannot speak" if self.beyond else ""
        return f"steps checked against the model: {self.steps:,}{beyond}"


class StepCheck:
    """Compares every so many-th step of one cluster with the model; equal ones are looked for once.

    UsageError if the cluster is too large for the model.
    """

    def __init__(self, cluster: RealCluster, *, every: int = 1) -> None:
        budgets = cluster.budgets
        restarts = (len(budgets.plan) or budgets.crashes) + budgets.powers
        bounds = Bounds(
            budgets.replicas, max(1, budgets.records), budgets.epochs, restarts, proposals=True, positions=True, idle_steps=True
        )
        self.compared = Compared()
        self.kinds: set[str] = set()
        """The steps of the model that were taken."""
        self._cluster = cluster
        self._every = every
        self._model = Model(bounds)
        self._undecided = Model(bounds, Rules(restart_costs_epoch=False))
        """Its steps while the controller has yet to decide about a restart."""
        self._steps_max = max(bounds.records, bounds.replicas) + 1
        self._known: dict[tuple[bool, Any, Any], tuple[Action, ...] | None] = {}

    def successors(self, state: State) -> Iterator[tuple[Frozen, State]]:
        """The steps of the cluster; the state after one that the model does not allow is wrong."""
        at = self._cluster.fingerprint(state)
        for number, (what, after) in enumerate(self._cluster.successors(state), at):
            if number % self._every == 0 and not after[7] and (why := self.wrong(state, what, after)):
                after = self._cluster.marked(after, why)
            yield what, after

    def wrong(self, before: State, what: Frozen, after: State) -> str:
        """What is wrong with a step; empty if nothing is."""
        if self._is_beyond(before) or self._is_beyond(after):
            self.compared.beyond += 1
            return ""
        first, second = _Views(self._cluster, before, after, what).both()
        self.compared.steps += 1
        due = bool(self._cluster.controllers.values[after[1]].due)
        key = (due, first, second)
        if key not in self._known:
            model = self._undecided if due else self._model
            self._known[key] = model.explain(first, second, steps_max=self._steps_max)
        taken = self._known[key]
        if taken is None:
            return f"model: no steps from\n      {first}\n   to {second}\n   are those of: {text(what)}"
        self.kinds.update(action[0] for action in taken)
        return ""

    def _is_beyond(self, state: State) -> bool:
        _, _, isr, elr, _, recovering, _ = self._cluster.controllers.values[state[1]].state
        return bool(recovering or (elr and self._cluster.setting.min_isr > 1) or not (isr or elr))


class _Views:
    """Two states, one step apart, as states of the model."""

    def __init__(self, cluster: RealCluster, before: State, after: State, what: Frozen) -> None:
        self._cluster = cluster
        self._states = (before, after)
        self._what = what
        self._brokers = [[cluster.brokers.values[b] for b in state[0]] for state in self._states]
        self._controllers = [cluster.controllers.values[state[1]] for state in self._states]
        self._leaders = self._known_leaders()
        self._told = self._told_to_leader()

    def both(self) -> tuple[ModelState, ModelState]:
        """What was before, and what is after."""
        first, second = (self._view(at) for at in (0, 1))
        for n, (one, other) in enumerate(zip(first.replicas, second.replicas, strict=True)):
            if one.role == other.role == IDLE and _deaths(self._brokers[0][n]) == _deaths(self._brokers[1][n]):
                first = _with(first, n, evolve(one, epoch=other.epoch))
        message = self._what[0]
        if message[0] == FETCH and not self._is_asking(first.replicas[message[2] - 1], message):
            return self._asked_then(first, message), self._asked_then(second, message)
        if message[0] == ANSWER:
            n = self._brokers[0][message[1] - 1].copy[5][0] - 1
            leader = first.replicas[n]
            if (leader.role, leader.epoch) != (LEADS, message[2]):
                return self._answered_then(first, first, n, message), self._answered_then(second, first, n, message)
        return first, second

    # ----------------------------------------------------------------------------------------------------- what came late

    @staticmethod
    def _is_asking(follower: ReplicaView, message: Frozen) -> bool:
        return (follower.role, follower.epoch, len(follower.log)) == (FOLLOWS, message[4], message[5])

    def _asked_then(self, view: ModelState, message: Frozen) -> ModelState:
        """With the follower as it was when it asked, if the leader's log goes on from there; else the question counts for nothing."""
        _, to, source, _, epoch, offset, last_epoch, _ = message
        log = view.replicas[to - 1].log
        if offset > len(log) or (offset and log[offset - 1][0] != last_epoch):
            return view
        return _with(view, source - 1, ReplicaView(log[:offset], 0, epoch, FOLLOWS, positions=(-1,) * len(view.replicas)))

    def _answered_then(self, view: ModelState, first: ModelState, leader: int, message: Frozen) -> ModelState:
        """With the leader as it was when it answered."""
        _, to, epoch, offset, _, watermark, _, _, diverging_epoch, _, entries = message
        log = first.replicas[leader].log if diverging_epoch >= 0 else (*first.replicas[to - 1].log[:offset], *entries)
        start = next((at for at, (written, _) in enumerate(log) if written >= epoch), len(log))
        then = evolve(view.replicas[leader], log=log, high_watermark=min(watermark, len(log)), epoch=epoch, role=LEADS, epoch_start=start)
        return _with(view, leader, then)

    def _told_to_leader(self) -> Frozen:
        """The stored state that a leader hears of itself in this step, maybe not the newest; else ()."""
        first = self._what[0]
        if first == "told":
            _, n, stored = self._what
        elif first[0] == DECISION:
            _, n, _, stored = first
        else:
            return ()
        return stored if stored and stored[0] == n else ()

    # --------------------------------------------------------------------------------------------------------- one state

    def _view(self, at: int) -> ModelState:
        stored = self._controllers[at].state
        budgets = self._cluster.budgets
        isr = stored[2] or stored[3]  # whoever was the last stays in the model's ISR, without a leader
        if self._told and self._told[1] == stored[1]:
            isr = self._told[2]
        deaths = sum(map(_deaths, self._brokers[at]))
        written = budgets.records - self._states[at][6][0]
        store = StoreView(_name(stored[0]), stored[1], _names(isr), self._states[at][4], written, deaths)
        commands = tuple((self._leaders.get(epoch), _names(self._last_isr(epoch))) for epoch in range(stored[1] + 1))
        commands = tuple((leader, isr if leader is not None else ()) for leader, isr in commands)
        return ModelState(tuple(self._replica(at, n) for n in self._cluster.ids), store, commands)

    def _replica(self, at: int, n: int) -> ReplicaView:
        broker: BrokerState = self._brokers[at][n - 1]
        unknown = (-1,) * len(self._cluster.ids)
        if not broker.alive:
            return ReplicaView(broker.log[0], 0, self._unheard(at, n), IDLE, positions=unknown)
        _, epoch, _, _, watermark, following, leading, (entries, *_), _ = broker.copy
        if not leading:
            role = FOLLOWS if following else IDLE
            return ReplicaView(entries, watermark, epoch if role == FOLLOWS else self._unheard(at, n), role, positions=unknown)
        kind, isr, *rest = leading[6]
        proposed: Frozen = ()
        if kind == EXPAND:
            proposed = (*isr, *rest[0])
        elif kind == SHRINK:
            proposed = tuple(member for member in isr if member not in rest[0])
        assert kind in (COMMITTED, EXPAND, SHRINK)
        positions = {replica[0]: replica[3] for replica in leading[7]}
        return ReplicaView(
            entries,
            watermark,
            epoch,
            LEADS,
            epoch_start=leading[2],
            isr=_names(isr),
            proposed=_names(proposed),
            current=self._current(at, n, broker, rest[0] if kind == EXPAND else ()),
            positions=tuple(positions.get(other, -1) for other in self._cluster.ids),
        )

    def _current(self, at: int, n: int, broker: BrokerState, joining: Frozen) -> bool:
        """Whether the controller would take a proposal: made on the present state, of brokers as they are registered."""
        controller = self._controllers[at]
        leader, epoch, *_, version = controller.state
        knows = self._told[6] if at and self._told and self._told[1] == epoch else version
        if (leader, epoch, knows) != (n, broker.copy[1], broker.copy[6][1]):
            return False
        lives = dict(broker.wish[2]) if broker.wish else {}
        return all((controller.registered[b - 1] or (-1,))[0] == lives.get(b, -1) for b in joining)

    def _unheard(self, at: int, n: int) -> int:
        """The epoch before the first that a process may be told which has heard of none."""
        epochs = [stored[1] for stored in self._states[at][2][n - 1] if isinstance(stored, tuple)]
        epoch: int = min(epochs, default=self._controllers[at].state[1])
        return epoch - 1

    # -------------------------------------------------------------------------------------------------- what was commanded

    def _known_leaders(self) -> dict[int, int | None]:
        """Who leads each epoch, as far as anybody knows or may be told."""
        found: dict[int, int | None] = {}
        for state, brokers, controller in zip(self._states, self._brokers, self._controllers, strict=True):
            found |= {epoch: n - 1 for epoch, n, _ in state[5]}
            for broker in brokers:
                if broker.alive and broker.copy[1] >= 0:
                    found[broker.copy[1]] = _name(broker.copy[0])
            for stored in (*self._all_untold(state), controller.state):
                found[stored[1]] = _name(stored[0])
        return found

    def _all_untold(self, state: State) -> list[Frozen]:
        return [stored for untold in state[2] for stored in untold if isinstance(stored, tuple)]

    def _last_isr(self, epoch: int) -> Frozen:
        """The last ISR that was stored in an epoch which is over, for its leader to learn."""
        found: Frozen = ()
        first, leader = self._controllers[0].state, self._leaders.get(epoch)
        if self._told and self._told[1] == epoch:
            found = self._told[2]
        elif epoch == first[1]:
            found = first[2] or first[3]
        elif untold := [one for state in self._states for one in self._all_untold(state) if one[1] == epoch and _name(one[0]) == leader]:
            found = max(untold, key=lambda one: one[6])[2]
        elif leader is not None:
            believes = (self._brokers[at][leader] for at in (1, 0))
            for broker in believes:
                if broker.alive and broker.copy[6] and broker.copy[1] == epoch:
                    found = broker.copy[6][6][1]
        return found


def _with(view: ModelState, n: int, replica: ReplicaView) -> ModelState:
    return evolve(view, replicas=(*view.replicas[:n], replica, *view.replicas[n + 1 :]))


def _deaths(broker: BrokerState) -> int:
    """How many processes of a broker have ended."""
    return broker.incarnation + (not broker.alive)


def _name(n: int) -> int | None:
    """A broker's number in the model, which counts from 0."""
    return n - 1 if n else None


def _names(members: Frozen) -> tuple[int, ...]:
    return tuple(sorted(n - 1 for n in members))
