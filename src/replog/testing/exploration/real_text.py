"""The steps and states of the exploration in words, and as data for whoever wants to compare them with a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from attrs import frozen

from replog.testing.exploration.real_broker import ANSWER, DECISION, FETCH, BrokerState
from replog.testing.exploration.real_controller import ControllerState
from replog.testing.exploration.real_snapshot import COMMITTED, EXPAND, Frozen

__all__ = ["CopyView", "View", "show", "text", "view_state"]


def text(what: Frozen) -> str:
    """One step."""
    first = what[0]
    if first == "told":
        _, n, (leader, epoch, isr, *_, version) = what
        return f"told {n} version {version}: leader {leader}, epoch {epoch}, ISR {_set(isr)}"
    if isinstance(first, str):
        return " ".join(map(str, what))
    return " ".join([_MESSAGES.get(first[0], _proposal)(first), *(f"({more})" for more in what[1:])])


def _fetch(message: Frozen) -> str:
    _, to, source, broker_epoch, epoch, offset, last_epoch, current = message
    late = "" if current else " (outdated)"
    return f"fetch {source} to {to}: offset {offset} of epoch {last_epoch}, leader epoch {epoch}, broker epoch {broker_epoch}{late}"


def _answer(message: Frozen) -> str:
    _, to, epoch, offset, error, watermark, _, end, diverging_epoch, diverging_end, entries = message
    what = f"holds {entries}" if not error else f"error {error}"
    if diverging_epoch >= 0:
        what = f"the logs part: epoch {diverging_epoch} ends at {diverging_end}"
    return f"answer {to}: offset {offset}, leader epoch {epoch}, HW {watermark}, end {end}: {what}"


def _proposal(message: Frozen) -> str:
    _, source, broker_epoch, epoch, version, members, _, current = message
    late = "" if current else " (outdated)"
    return f"proposal {source}: ISR {members} in epoch {epoch} on version {version}, broker epoch {broker_epoch}{late}"


def _decision(message: Frozen) -> str:
    _, to, error, state = message
    stored = f", leader {state[0]}, epoch {state[1]}, ISR {_set(state[2])}" if state else ""
    return f"decision {to}: error {error}{stored}"


_MESSAGES: Final[Mapping[int, Callable[[Frozen], str]]] = {FETCH: _fetch, ANSWER: _answer, DECISION: _decision}


def _set(members: Frozen) -> str:
    return "{" + ", ".join(map(str, members)) + "}"


@frozen
class CopyView:
    """One copy."""

    role: str
    """"leader", "follower", "idle" or "gone"."""
    leader: int
    """0 is nobody."""
    leader_epoch: int
    partition_epoch: int
    high_watermark: int
    log: tuple[tuple[int, int], ...]
    """(leader epoch, record) by offset."""
    isr: tuple[int, ...] = ()
    """Of a leader, as it knows it."""
    maximal_isr: tuple[int, ...] = ()
    """Of a leader, with whoever it has asked to add."""
    pending: str = ""
    """"expand", "shrink" or nothing."""


@frozen
class View:
    """A state as data."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    partition_epoch: int
    copies: tuple[CopyView, ...]
    committed: tuple[tuple[int, int], ...]
    messages: tuple[Frozen, ...]


def view_state(brokers: tuple[BrokerState, ...], controller: ControllerState, messages: tuple[Frozen, ...], ledger: Frozen) -> View:
    """A state of `RealCluster`, its numbers resolved."""
    leader, leader_epoch, isr, elr, _, _, version = controller.state
    return View(leader, leader_epoch, isr, elr, version, tuple(map(_copy, brokers)), ledger, messages)


def _copy(broker: BrokerState) -> CopyView:
    if not broker.alive:
        return CopyView("gone", 0, -1, -1, 0, broker.log[0])
    leader, epoch, version, _, watermark, following, leading, (entries, *_), _ = broker.copy
    if not leading:
        return CopyView("follower" if following else "idle", leader, epoch, version, watermark, entries)
    kind, isr, *rest = leading[6]
    maximal = (*isr, *rest[0]) if kind == EXPAND else isr
    pending = "" if kind == COMMITTED else "expand" if kind == EXPAND else "shrink"
    return CopyView("leader", leader, epoch, version, watermark, entries, isr, maximal, pending)


def show(view: View) -> str:
    """A state in one line per broker."""
    stored = f"leader {view.leader}, epoch {view.leader_epoch}, ISR {_set(view.isr)}, ELR {_set(view.elr)}"
    lines = [f"stored: {stored}; committed {view.committed}"]
    for n, copy in enumerate(view.copies, 1):
        led = f", ISR {_set(copy.isr)} {copy.pending}".rstrip() if copy.role == "leader" else ""
        lines.append(f"   broker {n}: {copy.role} in epoch {copy.leader_epoch}, HW {copy.high_watermark}, log {copy.log}{led}")
    return "\n".join(lines)
