"""Every step that the rules allow in a state of the model."""

from __future__ import annotations

from replog.testing.exploration.copies import NOTHING, Copies
from replog.testing.exploration.logs import Logs, Table
from replog.testing.exploration.rules import Bounds, Rules
from replog.testing.exploration.state import FOLLOWS, IDLE, LEADS, Layout, State

__all__ = ["Action", "Steps"]

Action = tuple[str, *tuple[int, ...]]
"""A name and its parameters: replicas by number, sets of replicas as bit masks."""

Found = list[tuple[Action, State]]


class Steps:
    """The steps of one world under one set of rules."""

    def __init__(self, bounds: Bounds, rules: Rules, layout: Layout, logs: Logs) -> None:
        self._bounds = bounds
        self._rules = rules
        self._layout = layout
        self._logs = logs
        self._n = layout.n
        self._copies = Copies(layout, logs, rules)
        self._current = 1 << layout.rest_bits
        self._refused = 1 << layout.rest_bits + layout.agreed_at
        # Who does not know the newest state proposes in vain, and is the more careful for it: left out where that can show nothing.
        vain = bounds.proposals and (bounds.idle_steps or not rules.count_leaving)
        self._unbidden = vain or not rules.check_version
        self._forgets_late = bounds.idle_steps and bounds.positions and bounds.restarts > 0
        self._joins: Table[int, list[int]] = Table(self._subsets)
        self._following: Table[int, int] = Table(lambda key: self._become_core(key, FOLLOWS) << layout.rest_bits)
        self._leading: Table[int, int] = Table(lambda key: self._become_core(key, LEADS) << layout.rest_bits)
        self._known: Table[tuple[int, ...], int] = Table(self._still_known)
        # What commands are still good for depends on this much of a replica, and of the store.
        roles = layout.make_core(0, 0, 3, layout.epoch_mask - 1, 0, 0, 0)
        self._beliefs = roles << layout.rest_bits | layout.everyone << layout.n | layout.everyone
        self._epoch_only = layout.epoch_mask << layout.store_epoch_at

    def successors(self, state: State) -> Found:
        """Each possible step as (action, the state after it), always in the same order."""
        n, layout = self._n, self._layout
        found: Found = []
        store, commands = layout.store[state[n]], layout.commands[state[n + 1]]
        self._control(state, store, found)
        shift, epoch = layout.rest_bits, store[4]
        for r in range(n):
            core = state[r] >> shift
            _, _, role, known, _, _, _ = layout.core[core]
            if known < epoch:
                self._hear(state, r, known, epoch, commands, found)
            if role == LEADS:
                self._lead(state, r, store, commands, found)
            elif role == FOLLOWS:
                leader = commands[known][0]
                if leader >= 0:
                    self._follow(state, r, leader, core, found)
            if store[2] < self._bounds.restarts:
                self._restart(state, r, store, found)
        return found

    # ----------------------------------------------------------------------------------------------------- the controller

    def _control(self, state: State, store: tuple[int, ...], found: Found) -> None:
        """Elections from the ISR alone, each at the price of an epoch; a shrink alone costs none (KAFKA-15021)."""
        isr, leader, _, _, epoch, _ = store
        n = self._n
        more = epoch + 1 < self._bounds.epochs
        for r in range(n):
            if not isr >> r & 1:
                continue
            rest = isr & ~(1 << r)
            if r != leader:
                if more:
                    found.append((("elect", r), self._elected(state, r, isr)))
                if rest:
                    found.append((("fence", r), self._stored(state, rest)))
            elif more:
                for other in range(n):
                    if rest >> other & 1:
                        found.append((("fail", r, other), self._elected(state, other, rest)))
                if not rest:
                    found.append((("abandon", r), self._elected(state, n, isr)))

    def _elected(self, state: State, leader: int, isr: int) -> State:
        """The next epoch begins, under `leader`."""
        n, layout = self._n, self._layout
        old_isr, old_leader, restarts, written, epoch, committed = layout.store[state[n]]
        commands = list(layout.commands[state[n + 1]])
        if old_leader < n:
            commands[epoch] = (old_leader, old_isr)
        commands[epoch + 1] = (leader if leader < n else -1, 0)
        replicas = [replica & ~self._current for replica in state[:n]]
        store = layout.make_store(isr, leader, restarts, written, epoch + 1, committed)
        return self.settled((*replicas, store, layout.make_commands(commands)))

    def _stored(self, state: State, isr: int) -> State:
        """The ISR changes in the store, and its leader does not know yet."""
        n, everyone = self._n, self._layout.everyone
        keep = ~self._current
        return (*(replica & keep for replica in state[:n]), state[n] & ~everyone | isr, state[n + 1])

    def settled(self, state: State) -> State:
        """The state without what nobody can need any more: commands of epochs that all have passed, ISRs that none can learn."""
        n, beliefs = self._n, self._beliefs
        known = self._known[(state[n] & self._epoch_only, state[n + 1], *[replica & beliefs for replica in state[:n]])]
        return state if known == state[n + 1] else (*state[: n + 1], known)

    def _still_known(self, key: tuple[int, ...]) -> int:
        layout, n = self._layout, self._n
        store, commands, *beliefs = key
        epoch = layout.store[store][4]
        cores = [layout.core[belief >> layout.rest_bits] for belief in beliefs]
        lowest = min(known + (role == IDLE) for _, _, role, known, _, _, _ in cores)  # whoever is idle only waits for later ones
        kept: list[tuple[int, int]] = []
        for at, (leader, isr) in enumerate(layout.commands[commands]):
            if at < lowest or at > epoch:
                leader, isr = -1, 0
            elif at == epoch or leader < 0:
                isr = 0
            else:
                _, _, role, known, _, _, _ = cores[leader]
                believed, proposed = beliefs[leader] & layout.everyone, beliefs[leader] >> n & layout.everyone
                if known > at or (known == at and (role != LEADS or (believed == isr and not proposed and not self._unbidden))):
                    isr = 0
            kept.append((leader, isr))
        return layout.make_commands(kept)

    # ------------------------------------------------------------------------------------------------------ any replica

    def _hear(self, state: State, r: int, known: int, epoch: int, commands: tuple[tuple[int, int], ...], found: Found) -> None:
        """A command of any later epoch arrives: the newest, or one that was long on its way."""
        core = state[r] >> self._layout.rest_bits
        rest = 0 if self._rules.forget_positions else self._remembered(state[r])
        for at in range(known + 1, epoch + 1):
            leader, isr = commands[at]
            key = core * self._bounds.epochs + at
            if leader == r:
                replica = self._leading[key] | rest
                if at == epoch:
                    replica |= self._current | state[self._n] & self._layout.everyone
                else:
                    replica |= isr
                action: Action = ("lead", r, at)
            else:
                replica = self._following[key] | rest
                action = ("follow", r, at, leader)
            found.append((action, self.settled((*state[:r], replica, *state[r + 1 :]))))

    def _become_core(self, key: int, role: int) -> int:
        """The core of a replica that takes a role in another epoch."""
        layout, logs = self._layout, self._logs
        core, epoch = divmod(key, self._bounds.epochs)
        _, _, _, _, watermark, _, log = layout.core[core]
        if role == LEADS:
            return layout.make_core(0, 0, LEADS, epoch, watermark, logs.length[log], log)
        cut = log if self._rules.truncate_by_epoch else log % logs.powers[watermark]
        return layout.make_core(0, 0, FOLLOWS, epoch, watermark, 0, cut)

    def _remembered(self, replica: int) -> int:
        """What survives a new role of what it knew as leader, against the rules: the positions."""
        return replica & self._layout.rest_mask & ~((1 << 2 * self._n) - 1)

    def _restart(self, state: State, r: int, store: tuple[int, ...], found: Found) -> None:
        """A new life: no role, and any part of the log's end lost - unless nobody else is in sync, which no rule survives.

        What it hears from then on was sent to this life, hence is not older than the store is now (KIP-380).
        """
        n, layout, logs = self._n, self._layout, self._logs
        isr, leader, restarts, written, epoch, committed = store
        _, _, _, _, watermark, _, log = layout.core[state[r] >> layout.rest_bits]
        rest = isr & ~(1 << r)
        end = logs.length[log]
        lowest = end if isr == 1 << r else 0
        for chosen in self._successors_of_leader(r, isr, leader, epoch):
            base = (*state[:n], layout.make_store(isr, leader, restarts + 1, written, epoch, committed), state[n + 1])
            if self._rules.restart_costs_epoch:
                if leader == r:
                    base = self._elected(base, chosen, rest or isr)
                elif isr >> r & 1 and rest:
                    base = self._stored(base, rest)
            if self._rules.check_life:
                base = self._without_proposals_of(base, r)
            if self._bounds.positions and not self._forgets_late:
                base = (*(self._forgets(replica, r) for replica in base[:n]), *base[n:])
            now = layout.store[base[n]][4]
            for keep in range(lowest, end + 1):
                for checkpoint in {0, min(watermark, keep)}:
                    core = layout.make_core(0, 0, IDLE, now - 1, checkpoint, 0, log % logs.powers[keep])
                    after = self.settled((*base[:r], core << layout.rest_bits, *base[r + 1 :]))
                    found.append((("restart", r, keep, checkpoint, chosen), after))

    def _successors_of_leader(self, r: int, isr: int, leader: int, epoch: int) -> list[int]:
        """Who may lead once `r` has restarted; n is nobody."""
        if leader != r or not self._rules.restart_costs_epoch:
            return [leader]
        if epoch + 1 >= self._bounds.epochs:
            return []
        others = [other for other in range(self._n) if other != r and isr >> other & 1]
        return others or [self._n]

    def _without_proposals_of(self, state: State, r: int) -> State:
        """Whoever has proposed to add `r` hears no: it spoke of an earlier life. As if it did not know the newest state."""
        n = self._n
        keep = ~self._current
        replicas = [replica & keep if replica >> n + r & 1 and not replica >> r & 1 else replica for replica in state[:n]]
        return (*replicas, *state[n:])

    def _forgets(self, replica: int, other: int) -> int:
        bits = self._layout.position_bits
        return replica & ~(self._layout.position_mask << 2 * self._n + other * bits)

    # --------------------------------------------------------------------------------------------------------- followers

    def _follow(self, state: State, r: int, leader: int, core: int, found: Found) -> None:
        layout = self._layout
        theirs = state[leader]
        pair = core << layout.core_bits | theirs >> layout.rest_bits
        after = self._copies.fetched[pair]
        if after != NOTHING:
            found.append((("fetch", r, leader), (*state[:r], after << layout.rest_bits, *state[r + 1 :])))
            if self._bounds.idle_steps:
                self._fetch_late(state, r, leader, core, after, found)
        if layout.position_bits:
            position = self._copies.position[pair]
            at = 2 * self._n + r * layout.position_bits
            if position != NOTHING and position + 1 != theirs >> at & layout.position_mask:
                counted = theirs & ~(layout.position_mask << at) | position + 1 << at
                found.append((("acknowledge", r, leader), (*state[:leader], counted, *state[leader + 1 :])))

    def _fetch_late(self, state: State, r: int, leader: int, core: int, after: int, found: Found) -> None:
        """The same record with a high watermark that the leader had earlier, or that alone from before it had the record."""
        layout = self._layout
        _, agreed, role, epoch, reached, start, log = layout.core[after]
        before, shorter = layout.core[core][4], layout.core[core][6]
        if self._logs.length[shorter] < self._logs.length[log]:
            for watermark in range(before + 1, min(reached, self._logs.length[shorter]) + 1):
                late = layout.make_core(0, agreed, role, epoch, watermark, start, shorter)
                found.append((("fetch", r, leader), (*state[:r], late << layout.rest_bits, *state[r + 1 :])))
        for watermark in range(before, reached):
            late = layout.make_core(0, agreed, role, epoch, watermark, start, log)
            if late != core:
                found.append((("fetch", r, leader), (*state[:r], late << layout.rest_bits, *state[r + 1 :])))

    # ----------------------------------------------------------------------------------------------------------- leaders

    def _lead(self, state: State, r: int, store: tuple[int, ...], commands: tuple[tuple[int, int], ...], found: Found) -> None:
        n, layout, logs = self._n, self._layout, self._logs
        stored_isr, true_leader, _, written, epoch, committed = store
        replica = state[r]
        current, refused, _, known, watermark, _, log = layout.core[replica >> layout.rest_bits]
        isr, proposed = replica & layout.everyone, replica >> n & layout.everyone
        end = logs.length[log]
        if written < self._bounds.records:
            digit = known * self._bounds.records + written + 1
            longer = replica + (digit * logs.powers[end] << layout.log_at + layout.rest_bits)
            found.append((("append", r), (*state[:r], longer, *state[r + 1 : n], state[n] + (1 << layout.written_at), state[n + 1])))
        if not current:
            self._learn(state, r, known, epoch, true_leader, stored_isr, commands, found)
        if proposed:
            if current or not self._rules.check_version:
                found.append((("store", r, proposed), self._stored(state, proposed)))
            if current and not refused:
                after = replica & ~(layout.everyone << n) if self._rules.refusal_is_final else replica | self._refused
                found.append((("refuse", r), (*state[:r], after, *state[r + 1 :])))
        if self._forgets_late:
            self._hear_of_lives(state, r, current, proposed & ~isr, found)
        changes = (not proposed or refused) and (current or self._unbidden)
        if changes or watermark < end:
            ends = self._ends(state, r, replica, commands)
            self._advance(state, r, isr, 0 if refused else proposed, ends, watermark, log, committed, found)
            if changes:
                self._change(state, r, isr, ends, found)

    def _ends(self, state: State, r: int, replica: int, commands: tuple[tuple[int, int], ...]) -> list[int]:
        """How far the leader may believe each other replica to be; NOTHING where it knows nothing."""
        n, layout = self._n, self._layout
        if layout.position_bits:
            seen = replica >> 2 * n
            return [(seen >> other * layout.position_bits & layout.position_mask) - 1 for other in range(n)]
        ends = []
        mine, positions, bits = replica >> layout.rest_bits, self._copies.position, layout.core_bits
        for other in range(n):
            core = state[other] >> layout.rest_bits
            theirs = layout.core[core]
            if other == r or theirs[2] != FOLLOWS or commands[theirs[3]][0] != r:
                ends.append(NOTHING)
            else:
                ends.append(positions[core << bits | mine])
        return ends

    def _hear_of_lives(self, state: State, r: int, current: int, joining: int, found: Found) -> None:
        """What is left of a restart that leaders hear of late, or of a registration: a position is forgotten, a proposal void."""
        for other in range(self._n):
            after = self._forgets(state[r], other)
            if after != state[r]:
                found.append((("forget", r, other), (*state[:r], after, *state[r + 1 :])))
        if current and joining:
            found.append((("void", r), (*state[:r], state[r] & ~self._current, *state[r + 1 :])))

    def _advance(
        self, state: State, r: int, isr: int, proposed: int, ends: list[int], watermark: int, log: int, committed: int, found: Found
    ) -> None:
        """The high watermark moves to the end that all of the maximal ISR have (KIP-497)."""
        n, layout, logs = self._n, self._layout, self._logs
        counted = isr
        if proposed:
            if proposed & ~isr:
                counted = isr | proposed if self._rules.count_joining else isr
            elif not self._rules.count_leaving:
                counted = proposed
        target = logs.length[log]
        for other in range(n):
            if other != r and counted >> other & 1 and ends[other] < target:
                target = ends[other]
        lowest = watermark + 1 if self._bounds.idle_steps else target
        for end in range(max(lowest, watermark + 1), target + 1):
            replica = state[r] + (end - watermark << layout.watermark_at + layout.rest_bits)
            store = state[n]
            if end > logs.length[committed] and logs.begins_with(log, committed):
                store += log % logs.powers[end] - committed << layout.committed_at
            found.append((("advance", r, end), (*state[:r], replica, *state[r + 1 : n], store, state[n + 1])))

    def _learn(
        self,
        state: State,
        r: int,
        known: int,
        epoch: int,
        true_leader: int,
        stored_isr: int,
        commands: tuple[tuple[int, int], ...],
        found: Found,
    ) -> None:
        """A command or an answer brings the last ISR of this leader's epoch: whatever it had proposed is decided."""
        if known == epoch and true_leader == r:
            isr, flag = stored_isr, self._current
        else:
            isr, flag = commands[known][1], 0
            if not isr:
                return  # nothing newer was ever stored in this epoch
        replica = state[r] & ~((1 << 2 * self._n) - 1 | self._refused) | flag | isr
        after = (*state[:r], replica, *state[r + 1 :])
        found.append((("learn", r, isr), after if flag else self.settled(after)))

    def _change(self, state: State, r: int, isr: int, ends: list[int], found: Found) -> None:
        """Drop a follower that is behind, or add some that have all they need: the high watermark and the start of the epoch."""
        n, layout, rules = self._n, self._layout, self._rules
        _, _, _, _, watermark, start, log = layout.core[state[r] >> layout.rest_bits]
        end = self._logs.length[log]
        bound = max(watermark if rules.join_at_high_watermark else 0, start if rules.join_at_epoch_start else 0)
        able = behind = 0
        for other in range(n):
            if other == r:
                continue
            if isr >> other & 1:
                if ends[other] != end:
                    behind |= 1 << other
                    self._changed(state, r, isr & ~(1 << other), found)
            elif ends[other] >= bound:
                able |= 1 << other
        if self._bounds.idle_steps and behind & behind - 1:
            self._changed(state, r, isr & ~behind, found)  # all at once, as one by one
        for joining in self._joins[able]:
            self._changed(state, r, isr | joining, found)

    def _changed(self, state: State, r: int, isr: int, found: Found) -> None:
        n = self._n
        if self._bounds.proposals:
            replica = state[r] & ~(self._layout.everyone << n | self._refused) | isr << n
            found.append((("propose", r, isr), (*state[:r], replica, *state[r + 1 :])))
            return
        everyone = self._layout.everyone
        replica = state[r] & ~everyone | isr
        after = (*state[:r], replica, *state[r + 1 : n], state[n] & ~everyone | isr, state[n + 1])
        found.append((("change", r, isr), after))

    @staticmethod
    def _subsets(able: int) -> list[int]:
        """Every set of some of these, smallest number first."""
        return [joining for joining in range(1, able + 1) if not joining & ~able]
