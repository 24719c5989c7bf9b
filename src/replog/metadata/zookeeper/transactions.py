"""Transactions on their way to ZooKeeper: many at once, in order, each with a result of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from attrs import define, field

from replog.errors import ReplogError, UsageError
from replog.metadata.zookeeper.connection import Connection, meaning
from replog.metadata.zookeeper.plan import Stale, Step, outcome_of
from replog.ports import Op, UnknownOutcome

__all__ = ["Pipeline", "Requests", "Result", "Steps", "Transaction"]

WINDOW_OPS: Final = 1_000
"""Operations on their way at once."""

Requests = list[Any]
Steps = list[Step]
Result = list[int] | ReplogError


@define
class Transaction:
    """Operations, what they become at ZooKeeper, and what came of it."""

    ops: Sequence[Op]
    steps: Steps
    requests: Requests
    result: Result = field(factory=list)
    stale: bool = False
    """Nothing was applied, because the parents were not as planned with, or because others of the call decide how they are."""


class Pipeline:
    """Sends planned transactions, and takes the answers in the order of sending."""

    def __init__(self, connection: Connection, transactions: list[Transaction]) -> None:
        self._connection = connection
        self.transactions = transactions
        self._waiting: deque[tuple[Transaction, Any]] = deque()
        self.broken: ReplogError | None = None
        """Why the connection or the session was gone, if it was."""

    def stale(self) -> list[Transaction]:
        """Those to plan again."""
        return [transaction for transaction in self.transactions if transaction.stale]

    def run(self) -> None:
        """Send all and wait for all. Once the connection or the session is gone, no more are sent."""
        on_their_way = 0
        for transaction in self.transactions:
            while self._waiting and on_their_way + len(transaction.requests) > WINDOW_OPS:
                on_their_way -= len(self._waiting[0][0].requests)
                self._receive(*self._waiting.popleft())
            if self.broken is not None:
                transaction.result = type(self.broken)(f"{self.broken}; this transaction was not sent")
                transaction.stale = False
            elif not transaction.requests:
                transaction.result = []
            else:
                on_their_way += len(transaction.requests)
                self._send(transaction)
        while self._waiting:
            self._receive(*self._waiting.popleft())

    def _send(self, transaction: Transaction) -> None:
        try:
            result = self._connection.send(partial(_commit, transaction.requests))
        except ReplogError as error:
            transaction.result = self.broken = error
        else:
            self._waiting.append((transaction, result))

    def _receive(self, transaction: Transaction, result: Any) -> None:
        try:
            answers = self._connection.answer(result)
            if isinstance(answers, Exception):
                raise meaning(answers, "a transaction")
        except UsageError as closed:  # by another thread: only a call that has sent nothing is sure of what became of it
            transaction.result = self.broken = UnknownOutcome(f"{closed}; whether it was applied is unknown")
            return
        except ReplogError as error:
            transaction.result = self.broken = error
            return
        try:
            transaction.result = outcome_of(transaction.ops, transaction.steps, answers)
        except Stale:
            transaction.stale = True


def _commit(requests: Requests, client: Any) -> Any:
    transaction = client.transaction()
    transaction.operations.extend(requests)
    return transaction.commit_async()
