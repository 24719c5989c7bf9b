"""The nemesis: lets the faults of a plan befall a world, and takes them back when they are over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from replog.errors import ReplogError
from replog.metadata import layout
from replog.ports import Delete
from replog.testing.simulator.kinds import BEYOND, DISK, LOSSY
from replog.testing.simulator.node import Node
from replog.testing.simulator.plan import Fault, stream
from replog.testing.simulator.refusals import draw

if TYPE_CHECKING:
    from replog.testing.simulator.ledger import Ledger
    from replog.testing.simulator.world import World

__all__ = ["Nemesis"]


class Nemesis:
    """Faults nest: something works again when every fault on it is over. None befalls a world that has been healed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = stream(world.plan.seed, "targets")
        self.befallen: dict[str, int] = {}
        """How many faults of each kind happened."""
        self._outages = 0

    @property
    def outage(self) -> bool:
        """Whether nobody reaches the store."""
        return self._outages > 0

    def begin(self) -> None:
        """The plan begins now."""
        for fault in self._world.plan.faults:
            self._world.at(fault.at_ms, self._befall, fault)

    def heal(self) -> None:
        """Every fault is over."""
        self._outages = 0
        self._world.network.heal()
        self._world.refusals.clear()

    def target(self, role: str, partition: int = 0) -> Node | None:
        """The node that a fault means: by number, or by what it is now."""
        world = self._world
        if role.isdecimal():
            return world.nodes[int(role)]
        if role == "controller":
            return next((node for node in world.nodes.values() if node.controller is not None and node.controller.is_controller), None)
        for identity in sorted(world.checks.ledgers):
            ledger = world.checks.ledgers[identity]
            if identity.partition == partition and ledger.state is not None and ledger.replicas:
                if role == "leader":
                    return None if ledger.state.leader is None else world.nodes[ledger.state.leader]
                others = [b for b in ledger.replicas if b != ledger.state.leader]
                return world.nodes[self._chance.choice(others)] if others else None
        return None

    def _befall(self, fault: Fault) -> None:
        world = self._world
        if world.calm:
            return
        partition = self._chance.randrange(world.plan.shape.partitions)
        if fault.target == "all":
            if not self._strike_all(fault):
                return
            world.note(f"fault {fault.kind} for {fault.length_ms}")
        else:
            node = self.target(fault.target, partition)
            for other in world.nodes.values():
                other.doubt()
            if node is None or (fault.kind in LOSSY and not self._may_lose(fault.kind, node)):
                return
            if not self._strike(fault, node, partition):
                return
            world.note(f"fault {fault.kind} at {node.broker_id} for {fault.length_ms}")
        self.befallen[fault.kind] = self.befallen.get(fault.kind, 0) + 1
        world.marks.hit(f"fault {fault.kind}")

    def _may_lose(self, kind: str, node: Node) -> bool:
        """As much as acks=all survives; more where elections may lose something, if whoever loses something will know it."""
        checks = self._world.checks
        if kind in BEYOND and self._world.plan.shape.unclean:
            return not checks.spoiled().difference({node.broker_id})
        return checks.may_lose(node.broker_id, power=kind == "power")

    # ------------------------------------------------------------------------------------------------------- everybody

    def _strike_all(self, fault: Fault) -> bool:
        world, length = self._world, fault.length_ms
        nodes = list(world.nodes.values())
        match fault.kind:
            case "outage":
                self._outages += 1
                for node in nodes:
                    node.outage(over=False)
                self._later(length, self._end_outage)
            case "power_all" if self._world.plan.shape.flush != "ack" and self._world.checks.spoiled():
                return False
            case "kill_all" | "power_all":
                for node in nodes:
                    node.end("power" if fault.kind == "power_all" else "kill")
                    world.at(self._chance.randint(1, max(length, 1)), node.start)
            case "power_some":
                return self._cut_power_of_some(nodes, length)
            case "rolling":
                for turn, node in enumerate(nodes):
                    world.at(turn * (length // 2 + 200), self._stop, node)
                    world.at(turn * (length // 2 + 200) + 150, node.start)
            case "unseat":
                return self._unseat()
            case "refuse":
                refusal = draw(self._chance, world.root)
                world.refusals.add(refusal, 1)
                self._later(length, lambda: world.refusals.add(refusal, -1))
                world.note(f"the store refuses {refusal[0]}")
            case "ring":
                self._cut_ring(length)
            case "strand":
                return self._strand(length)
            case "swizzle":
                self._chance.shuffle(nodes)
                back = list(nodes)
                self._chance.shuffle(back)
                for turn, node in enumerate(nodes):
                    world.at(turn * 60, self._isolate, node.broker_id, 1)
                    self._later(len(nodes) * 60 + length + back.index(node) * 60, self._isolator(node.broker_id, -1))
        return True

    def _cut_power_of_some(self, nodes: list[Node], length: int) -> bool:
        """As many at once as may lose what they have not flushed; False if that is none now."""
        self._chance.shuffle(nodes)
        struck = False
        for node in nodes:
            if node.alive and self._world.checks.may_lose(node.broker_id, power=True):
                node.end("power")
                self._world.at(self._chance.randint(1, max(length, 1)), node.start)
                struck = True
        return struck

    def _strand(self, length: int) -> bool:
        """False if no partition has a follower in sync now."""
        world = self._world
        ledgers = [one for _, one in sorted(world.checks.ledgers.items()) if one.state is not None and one.state.leader is not None]
        found = [(one, broker) for one in ledgers for broker in _followers(one) if world.nodes[broker].alive]
        if not found:
            return False
        ledger, left = self._chance.choice(found)
        world.network.isolate(left, 1)
        world.at(2 * world.plan.shape.lag_ms, self._bereave, ledger, left, length)
        return True

    def _bereave(self, ledger: Ledger, left: int, length: int) -> None:
        """Of its replicas one is left."""
        world = self._world
        if world.calm:
            return
        for broker in ledger.replicas:
            node = world.nodes[broker]
            if broker != left and node.alive:
                node.end("kill")
                world.at(self._chance.randint(length // 2, length), node.start)
        world.network.isolate(left, -1)

    def _unseat(self) -> bool:
        try:
            self._world.root.commit([Delete(layout.CONTROLLER)])
        except ReplogError:
            return False
        self._world.applied([Delete(layout.CONTROLLER)])
        return True

    def _stop(self, node: Node) -> None:
        if not self._world.calm:
            node.stop()

    def _isolate(self, broker_id: int, step: int) -> None:
        if not self._world.calm:
            self._world.network.isolate(broker_id, step)

    def _isolator(self, broker_id: int, step: int) -> Callable[[], None]:
        return lambda: self._isolate(broker_id, step)

    def _cut_ring(self, length: int) -> None:
        network, count = self._world.network, self._world.plan.shape.brokers
        pairs = [(one, other) for one in range(1, count + 1) for other in range(one + 2, count + 1) if (one, other) != (1, count)]

        def mend() -> None:
            for one, other in pairs:
                network.cut(one, other, -1, both=True)

        for one, other in pairs:
            network.cut(one, other, 1, both=True)
        self._later(length, mend)

    def _end_outage(self) -> None:
        self._outages -= 1
        if not self._outages:
            for node in self._world.nodes.values():
                node.outage(over=True)

    # ------------------------------------------------------------------------------------------------------ one broker

    def _strike(self, fault: Fault, node: Node, partition: int) -> bool:
        kind, length, world = fault.kind, fault.length_ms, self._world
        if kind in ("kill", "power", "wipe", "restore"):
            if not node.alive or (kind == "restore" and not node.storage.has_image):
                return False
            node.end(kind)
            world.at(length, node.start)
        elif kind == "churn":
            for start in range(0, length, 700):
                world.at(start, self._expire_leader, partition)
        elif kind == "expire":
            return node.expire()
        elif kind == "reset" and not node.alive:
            return False
        elif kind in DISK:
            return node.damage(kind, length)
        elif kind in ("cut", "cut_one_way", "slow_link", "isolate", "lag", "reset"):
            self._disconnect(fault, node)
        else:
            self._hinder(kind, node, length)
        return True

    def _disconnect(self, fault: Fault, node: Node) -> None:
        kind, length, network, here = fault.kind, fault.length_ms, self._world.network, node.broker_id
        count = self._world.plan.shape.brokers
        other = fault.other if fault.other != here and fault.other <= count else here % count + 1
        if kind in ("cut", "cut_one_way"):
            network.cut(here, other, 1, both=kind == "cut")
            self._later(length, lambda: network.cut(here, other, -1, both=kind == "cut"))
        elif kind == "slow_link":
            network.slow(here, other, 1)
            self._later(length, lambda: network.slow(here, other, -1))
        elif kind == "isolate":
            network.isolate(here, 1)
            self._later(length, lambda: network.isolate(here, -1))
        elif kind == "lag":
            network.lag(here, 1)
            self._later(length, lambda: network.lag(here, -1))
        else:
            network.reset(here)
            node.disconnect_all()

    def _hinder(self, kind: str, node: Node, length: int) -> None:
        """Faults that leave the process where it is, and make something slow or silent for it, or for those that come after it."""
        if kind == "pause":
            node.pause(1)
            self._later(length, lambda: node.pause(-1))
            self._watch_session(node, lambda: node.paused > 0)
        elif kind == "store":
            node.cut_store(1)
            self._later(length, lambda: node.cut_store(-1))
            self._watch_session(node, lambda: node.store_cuts > 0)
        elif kind in ("unsure", "slow_store"):
            node.trouble(kind, 1)
            self._later(length, lambda: node.trouble(kind, -1))
        elif kind in ("flush", "starve"):
            node.slow[kind] += 1
            self._later(length, lambda: node.slow.update({kind: node.slow[kind] - 1}))
        elif kind == "clock":
            jump = self._chance.randint(-3_600_000, 3_600_000)
            node.wall_offset_ms += jump
            self._later(length, lambda: setattr(node, "wall_offset_ms", node.wall_offset_ms - jump))

    def _later(self, length_ms: int, undo: Callable[[], None]) -> None:
        """End a fault, unless everything has been healed before."""
        self._world.at(length_ms, lambda: None if self._world.calm else undo())

    def _watch_session(self, node: Node, still: Callable[[], bool]) -> None:
        """A session ends when its process was not heard of for its whole time."""
        line = node.line

        def check() -> None:
            if line is not None and node.line is line and still():
                node.expire()

        self._world.at(self._world.plan.shape.session_ms, check)

    def _expire_leader(self, partition: int) -> None:
        node = self.target("leader", partition)
        if node is not None and not self._world.calm:
            node.expire()


def _followers(ledger: Ledger) -> tuple[int, ...]:
    """Those in sync."""
    return () if ledger.state is None else tuple(broker for broker in ledger.state.isr if broker != ledger.state.leader)
