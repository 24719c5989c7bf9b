"""What brokers may do to their data directories, and what a failed one may still say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replog.messages import Flushed, Produced, Published
from replog.model import Address
from replog.ports import FlushDone, Log
from replog.testing.simulator.invariants.base import Invariant
from replog.testing.simulator.ledger import Ledger

if TYPE_CHECKING:
    from replog.testing.simulator.node import Node

__all__ = ["FailedDisksConfirmNothing", "FlushesProveWhatTheyWrote", "NothingIsDropped"]


class NothingIsDropped(Invariant):
    """No log is taken away unless the store says that its partition is gone or assigned elsewhere; no file is made outside
    the data directory.
    """

    name = "S19"
    source = "KIP-516, KIP-570; P-69; V3 S19"
    protocol = ("I21", "I22")

    def vanished(self, ledger: Ledger, broker: int) -> None:
        """The deletion is stored before anybody is told of it."""
        stays = broker in ledger.replicas and broker not in ledger.sent_away  # else it was stopped before it was assigned again
        if not ledger.closed and (stays or ledger.state is None):
            self.fail(ledger, f"broker {broker} has dropped its copy, it is one of {ledger.replicas}")

    def outside(self, broker: int, path: str) -> None:
        """A file stands on the simulated disk of a broker where none should."""
        self.broken(f"broker {broker} has made {path}, outside its data directory")


class FailedDisksConfirmNothing(Invariant):
    """Once a flush has failed, the process confirms nothing more: no append, no flushed end."""

    name = "S22"
    source = "ATC'20 on fsync errors; R14, P-54"
    protocol = ("I18",)

    def __init__(self) -> None:
        self._failed: dict[int, int] = {}
        """Broker -> its life in which a flush has failed."""

    def received(self, node: Node, sender: Address, message: Any) -> None:
        """Flushes of logs that were dropped meanwhile do not count: nobody relies on them."""
        if type(message) is FlushDone and message.token.error is not None and node.directory.get(message.token.identity) is not None:
            self._failed[node.broker_id] = node.life

    def said(self, node: Node, to: Address, message: Any) -> None:
        """Look at what confirms something."""
        if not self._failed or self._failed.get(node.broker_id) != node.life:
            return
        if isinstance(message, Produced):
            confirmed = [entry.request for entry in message.entries if not entry.error]
            if confirmed:
                self.broken(f"broker {node.broker_id} confirms requests {confirmed} of {to} after a flush has failed")
        elif isinstance(message, Published):
            if not message.error and message.end_offset >= 0:
                self.broken(f"broker {node.broker_id} calls request {message.request} of {to} done after a flush has failed")
        elif isinstance(message, Flushed):
            ends = [(entry.partition, entry.flushed_end) for entry in message.entries]
            self.broken(f"broker {node.broker_id} reports flushed ends {ends} after a flush has failed")


class FlushesProveWhatTheyWrote(Invariant):
    """A flush that was asked for before a log was cut says nothing of what the log has had since."""

    name = "S22"
    source = "design, section 4: a flush token has a generation"
    protocol = ("I18",)

    def __init__(self) -> None:
        self._old: tuple[Log, int, int] | None = None
        """(log, where it started, how far it was flushed) when the outcome of such a flush came."""

    def received(self, node: Node, sender: Address, message: Any) -> None:
        """Note how far the log is flushed without it."""
        if type(message) is not FlushDone:
            return
        log = node.directory.get(message.token.identity)
        old = log is not None and message.token.generation < log.generation  # type: ignore[attr-defined]  # of every stored log
        self._old = (log, log.start_offset, log.flushed_end) if log is not None and old else None

    def handled(self, node: Node) -> None:
        """Only what is removed from its start can have moved it since."""
        if self._old is None:
            return
        (log, start, flushed_end), self._old = self._old, None
        if log.flushed_end > flushed_end and log.start_offset == start:
            why = f"takes [{flushed_end}, {log.flushed_end}) for flushed, by a flush from before a truncation"
            self.broken(f"broker {node.broker_id}, log {log.identity!r}: it {why}")
