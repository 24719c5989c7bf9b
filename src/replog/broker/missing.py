"""Topics that clients seek and that do not exist: with `auto_create_topics` this broker has the controller make them.

A topic is asked for once, however many clients seek it here, and the controller makes it once, however many brokers ask. Until it is
in this broker's view its clients are told to ask again; a refusal is kept for as long as they need to hear it.
"""

from __future__ import annotations

from collections.abc import Sequence

from replog.broker.commands import Commands
from replog.broker.routing import Routing
from replog.config import MAX_TOPIC_NAME, BrokerConfig, check_topic_name
from replog.errors import Code, UsageError
from replog.messages import Admin, AdminAnswer
from replog.ports import Outbox

__all__ = ["CREATE_MISSING", "MissingTopics"]

CREATE_MISSING = "create_missing_topic"
"""The verb of the wish (`controller.missing`). Broker epoch and name of the topic come back with the answer."""

_NAMES_MAX = 1_000
"""So many are asked for, and refusals remembered, at a time: others have to wait."""
_AGAIN = frozenset({Code.NOT_CONTROLLER, Code.REQUEST_TIMED_OUT, Code.UNKNOWN_SERVER_ERROR})
"""Answers that say nothing about the topic: it is asked for again when it is sought again."""

Verdict = tuple[str, int, str]
"""(topic, code, why)."""


class MissingTopics:
    """What is asked for, and what was refused, both for a while only."""

    def __init__(self, outbox: Outbox, routing: Routing, config: BrokerConfig) -> None:
        self._outbox = outbox
        self._routing = routing
        self._config = config
        self._asked: dict[str, int] = {}
        """Topic -> until when an answer is waited for (ms), oldest first."""
        self._refused: dict[str, tuple[int, int, str]] = {}
        """Topic -> until when this is remembered (ms), code, why; oldest first."""

    def look(self, sought: Sequence[str], commands: Commands, now_ms: int) -> list[Verdict]:
        """What a client is to be told of the topics that it seeks: of those that are not there, if topics are made at all."""
        if not sought or not self._config.auto_create_topics:
            return []
        self._forget(now_ms)
        return [self._verdict(name, commands, now_ms) for name in sought if name not in self._routing.names]

    def _verdict(self, name: str, commands: Commands, now_ms: int) -> Verdict:
        try:
            check_topic_name(name)
        except UsageError as error:
            return name[:MAX_TOPIC_NAME], Code.INVALID_TOPIC, str(error)
        if name in self._refused:
            _, code, why = self._refused[name]
            return name, code, why
        if commands.controller is None:
            return name, Code.LEADER_NOT_AVAILABLE, "no controller is known here yet"
        if name not in self._asked and len(self._asked) < _NAMES_MAX:
            self._asked[name] = now_ms + self._config.ack_timeout_ms
            wish = Admin(-1, CREATE_MISSING, {"name": name}, [commands.broker_epoch, name])
            self._outbox.messages.append((("controller", commands.controller), wish))
        return name, Code.LEADER_NOT_AVAILABLE, "the topic is being made"

    def answered(self, answer: AdminAnswer, broker_epoch: int, now_ms: int) -> bool:
        """Take an answer of the controller; False if it is one to a client's wish. One to an earlier life counts for nothing."""
        match answer.origin:
            case [int() as epoch, str() as name]:
                if epoch != broker_epoch:
                    return True
            case _:
                return False
        if not answer.error:
            self._refused.pop(name, None)
        if self._asked.pop(name, None) is not None and answer.error and answer.error not in _AGAIN:
            self._refused[name] = (now_ms + self._config.ack_timeout_ms, answer.error, answer.message)
            while len(self._refused) > _NAMES_MAX:
                del self._refused[next(iter(self._refused))]
        return True

    def _forget(self, now_ms: int) -> None:
        """What has not been answered for long is asked for again; a refusal may no longer be true."""
        for name in [name for name, until_ms in self._asked.items() if until_ms <= now_ms]:
            del self._asked[name]
        for name in [name for name, (until_ms, _, _) in self._refused.items() if until_ms <= now_ms]:
            del self._refused[name]
