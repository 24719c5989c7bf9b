"""What a transport hears from whoever owns it, and tells him: where brokers are, what topics are called, what has happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replog.transport.tcp.reception import unknown
from replog.transport.tcp.telling import quiet, unheeded
from replog.transport.tcp.whereabouts import nobody

__all__ = ["Surroundings"]


class Surroundings:
    """As its maker has said it; a broker that is given a transport says what its maker has not."""

    __slots__ = ("_endpoint_of", "_on_event", "_throttled", "_topic_of")

    def __init__(
        self,
        endpoint_of: Callable[[int], str | None],
        on_event: Callable[[str, dict[str, Any]], None],
        throttled: Callable[[Any, str, int], None],
        topic_of: Callable[[bytes], str | None],
    ) -> None:
        self._endpoint_of = endpoint_of
        self._on_event = on_event
        self._throttled = throttled
        self._topic_of = topic_of

    def lend(self, owner: Surroundings) -> None:
        """From the broker whose transport it is."""
        self._endpoint_of = owner._endpoint_of if self._endpoint_of is nobody else self._endpoint_of
        self._on_event = owner._on_event if self._on_event is quiet else self._on_event
        self._throttled = owner._throttled if self._throttled is unheeded else self._throttled
        self._topic_of = owner._topic_of if self._topic_of is unknown else self._topic_of

    def endpoint_of(self, broker_id: int) -> str | None:
        """Where a broker is reached; None if it is not known."""
        return self._endpoint_of(broker_id)

    def on_event(self, name: str, fields: dict[str, Any]) -> None:
        """Something has happened that an operator may want to know."""
        self._on_event(name, fields)

    def throttled(self, broker: Any, request: str, ms: int) -> None:
        """A client of a broker of this process is not heard for so much longer."""
        self._throttled(broker, request, ms)

    def topic_of(self, topic_id: bytes) -> str | None:
        """The name of a topic; None if it is not known."""
        return self._topic_of(topic_id)
