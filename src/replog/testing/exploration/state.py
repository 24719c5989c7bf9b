"""A state of the abstract model: what it says, and the same as a few small numbers.

A state is a tuple of `replicas` + 2 numbers: one per replica, one for the store, one for the commands ever sent. Each number
holds several fields as bits; `Layout` says where. `ModelState` is the same to read and to write.
"""

from __future__ import annotations

from attrs import Factory, frozen

from replog.testing.exploration.logs import Logs, Record, Table
from replog.testing.exploration.rules import Bounds

__all__ = ["FOLLOWS", "IDLE", "LEADS", "Layout", "ModelState", "ReplicaView", "State", "StoreView"]

State = tuple[int, ...]
"""(replica 0, replica 1, ..., store, commands)."""

IDLE, FOLLOWS, LEADS = 0, 1, 2
ROLES = ("idle", "follows", "leads")


@frozen
class ReplicaView:
    """One copy of the partition and what its broker believes. The last five fields mean something only while it leads."""

    log: tuple[Record, ...] = ()
    high_watermark: int = 0
    epoch: int = -1
    """The leader epoch it has last heard of; whom it follows is who leads that epoch. -1 before the first command."""
    role: int = IDLE
    agreed: bool = False
    """A follower has compared its log with its leader's in this epoch; kept only where the rules compare once per epoch.

    Of a leader: its proposal was refused; kept only where the rules let it be stored all the same."""
    epoch_start: int = 0
    isr: tuple[int, ...] = ()
    """The ISR it knows to be stored."""
    proposed: tuple[int, ...] = ()
    """The ISR it has asked for and has no answer about; () for none."""
    current: bool = False
    """It leads the epoch that the store is at and knows the store's partition epoch: a proposal of it would be taken."""
    positions: tuple[int, ...] = ()
    """The end of each replica's log as acknowledged in this epoch, -1 for unknown; () in worlds without `positions`."""


@frozen
class StoreView:
    """The partition in the store, and what the world has spent."""

    leader: int | None
    epoch: int
    isr: tuple[int, ...]
    committed: tuple[Record, ...] = ()
    """Not in any store: every record that was ever below a leader's high watermark."""
    written: int = 0
    restarts: int = 0


@frozen
class ModelState:
    """A whole state, in words."""

    replicas: tuple[ReplicaView, ...]
    store: StoreView
    commands: tuple[tuple[int | None, tuple[int, ...]], ...] = Factory(tuple)
    """(leader, last stored ISR) for each leader epoch. What nobody can need any more is (None, ()); so is the ISR of the store's epoch."""

    def __str__(self) -> str:
        store = self.store
        words = [f"store: leader {store.leader}, epoch {store.epoch}, ISR {_braces(store.isr)}, committed {_log(store.committed)}"]
        for number, replica in enumerate(self.replicas):
            text = f"{number}: {_log(replica.log)} HW {replica.high_watermark}, {ROLES[replica.role]} in epoch {replica.epoch}"
            if replica.role == LEADS:
                text += f" from {replica.epoch_start} with ISR {_braces(replica.isr)}"
                text += f", proposes {_braces(replica.proposed)}" if replica.proposed else ""
            words.append(text)
        return "; ".join(words)


def _log(records: tuple[Record, ...]) -> str:
    return "[" + " ".join(f"{'abcdefgh'[number]}@{epoch}" for epoch, number in records) + "]"


def _braces(members: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, members)) + "}"


class Layout:
    """Where each field is.

    Replica, from the lowest bit: isr, proposed (n bits each, as sets), positions (each + 1), and above `rest_bits` the part without
    names, its *core*: current, agreed, role, epoch + 1, high watermark, epoch start, log. Store: isr, leader (n for none), restarts,
    written, epoch, committed. Commands, for each epoch from 0: isr, leader + 1 (0 for none).
    """

    def __init__(self, bounds: Bounds, logs: Logs) -> None:
        self.bounds = bounds
        self.logs = logs
        n = self.n = bounds.replicas
        self.everyone = (1 << n) - 1
        offsets = bounds.records.bit_length()
        self.position_bits = (bounds.records + 1).bit_length() if bounds.positions else 0
        self.position_mask = (1 << self.position_bits) - 1
        self.rest_bits = 2 * n + n * self.position_bits
        self.rest_mask = (1 << self.rest_bits) - 1
        self.agreed_at, self.role_at, self.epoch_at = 1, 2, 4
        self.watermark_at = self.epoch_at + bounds.epochs.bit_length()
        self.start_at = self.watermark_at + offsets
        self.log_at = self.start_at + offsets
        self.epoch_mask = (1 << bounds.epochs.bit_length()) - 1
        self.offset_mask = (1 << offsets) - 1
        log_bits = (logs.count - 1).bit_length()
        self.core_bits = self.log_at + log_bits
        self.replica_bits = self.core_bits + self.rest_bits
        self.leader_at = n
        self.leader_mask = (1 << n.bit_length()) - 1
        self.restarts_at = n + n.bit_length()
        self.restarts_mask = (1 << bounds.restarts.bit_length()) - 1
        self.written_at = self.restarts_at + bounds.restarts.bit_length()
        self.store_epoch_at = self.written_at + offsets
        self.committed_at = self.store_epoch_at + bounds.epochs.bit_length()
        self.store_bits = self.committed_at + log_bits
        self.command_bits = n + n.bit_length()
        self.commands_bits = self.command_bits * bounds.epochs
        self.core: Table[int, tuple[int, int, int, int, int, int, int]] = Table(self._core)
        self.store: Table[int, tuple[int, int, int, int, int, int]] = Table(self._store)
        self.commands: Table[int, tuple[tuple[int, int], ...]] = Table(self._commands)

    def _core(self, core: int) -> tuple[int, int, int, int, int, int, int]:
        """(current, agreed, role, epoch, high watermark, epoch start, log)."""
        return (
            core & 1,
            core >> self.agreed_at & 1,
            core >> self.role_at & 3,
            (core >> self.epoch_at & self.epoch_mask) - 1,
            core >> self.watermark_at & self.offset_mask,
            core >> self.start_at & self.offset_mask,
            core >> self.log_at,
        )

    def make_core(self, current: int, agreed: int, role: int, epoch: int, watermark: int, start: int, log: int) -> int:
        """The reverse of `core`."""
        return (
            current
            | agreed << self.agreed_at
            | role << self.role_at
            | epoch + 1 << self.epoch_at
            | watermark << self.watermark_at
            | start << self.start_at
            | log << self.log_at
        )

    def _store(self, store: int) -> tuple[int, int, int, int, int, int]:
        """(isr, leader or n, restarts, written, epoch, committed)."""
        return (
            store & self.everyone,
            store >> self.leader_at & self.leader_mask,
            store >> self.restarts_at & self.restarts_mask,
            store >> self.written_at & self.offset_mask,
            store >> self.store_epoch_at & self.epoch_mask,
            store >> self.committed_at,
        )

    def make_store(self, isr: int, leader: int, restarts: int, written: int, epoch: int, committed: int) -> int:
        """The reverse of `store`."""
        return (
            isr
            | leader << self.leader_at
            | restarts << self.restarts_at
            | written << self.written_at
            | epoch << self.store_epoch_at
            | committed << self.committed_at
        )

    def _commands(self, commands: int) -> tuple[tuple[int, int], ...]:
        """(leader or -1, isr) for each epoch."""
        found = []
        for _ in range(self.bounds.epochs):
            found.append(((commands >> self.n & self.leader_mask) - 1, commands & self.everyone))
            commands >>= self.command_bits
        return tuple(found)

    def make_commands(self, commands: list[tuple[int, int]]) -> int:
        """The reverse of `commands`."""
        return sum((isr | leader + 1 << self.n) << epoch * self.command_bits for epoch, (leader, isr) in enumerate(commands))

    def fingerprint(self, state: State) -> int:
        """The whole state as one number: two states never share it."""
        if self.n == 3:  # as below, where a search spends its time
            a, b, c, store, commands = state
            bits = self.replica_bits
            return (((a << bits | b) << bits | c) << self.store_bits | store) << self.commands_bits | commands
        number = 0
        for replica in state[: self.n]:
            number = number << self.replica_bits | replica
        return (number << self.store_bits | state[-2]) << self.commands_bits | state[-1]

    # ---------------------------------------------------------------------------------------------------------- in words

    def members(self, mask: int) -> tuple[int, ...]:
        """A set of replicas, sorted."""
        return tuple(r for r in range(self.n) if mask >> r & 1)

    def view(self, state: State) -> ModelState:
        """A state to read."""
        isr, leader, restarts, written, epoch, committed = self.store[state[-2]]
        records = self.logs.records
        store = StoreView(leader if leader < self.n else None, epoch, self.members(isr), records[committed], written, restarts)
        commands = tuple((None if by < 0 else by, self.members(isr)) for by, isr in self.commands[state[-1]])
        return ModelState(tuple(self._replica_view(replica) for replica in state[: self.n]), store, commands)

    def _replica_view(self, replica: int) -> ReplicaView:
        current, agreed, role, epoch, watermark, start, log = self.core[replica >> self.rest_bits]
        seen = replica >> 2 * self.n
        positions = tuple((seen >> r * self.position_bits & self.position_mask) - 1 for r in range(self.n)) if self.position_bits else ()
        isr, proposed = self.members(replica & self.everyone), self.members(replica >> self.n & self.everyone)
        return ReplicaView(self.logs.records[log], watermark, epoch, role, bool(agreed), start, isr, proposed, bool(current), positions)

    def pack(self, view: ModelState) -> State:
        """The reverse of `view`."""
        store = view.store
        leader = self.n if store.leader is None else store.leader
        committed = self.logs.number(store.committed)
        packed = self.make_store(self.mask(store.isr), leader, store.restarts, store.written, store.epoch, committed)
        commands = [(-1 if by is None else by, self.mask(isr)) for by, isr in view.commands]
        return (*(self._pack_replica(replica) for replica in view.replicas), packed, self.make_commands(commands))

    def _pack_replica(self, view: ReplicaView) -> int:
        log = self.logs.number(view.log)
        core = self.make_core(view.current, view.agreed, view.role, view.epoch, view.high_watermark, view.epoch_start, log)
        seen = sum(position + 1 << r * self.position_bits for r, position in enumerate(view.positions))
        return core << self.rest_bits | seen << 2 * self.n | self.mask(view.proposed) << self.n | self.mask(view.isr)

    @staticmethod
    def mask(members: tuple[int, ...]) -> int:
        """The reverse of `members`."""
        return sum(1 << r for r in members)
