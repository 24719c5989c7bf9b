"""What fits a frame, on its way out and in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replog.codec import HEADER, decode, sized_parts
from replog.messages import CLIENT, Fetched
from replog.model import Address
from replog.transport.tcp.limits import TcpLimits
from replog.transport.tcp.outgoing import guard_unsettled, release

__all__ = ["Fitting"]


class Fitting:
    """Of one transport."""

    def __init__(self, role: str, limits: TcpLimits, on_event: Callable[[str, dict[str, Any]], None]) -> None:
        self._on_event = on_event
        self._frame_bytes_max = limits.frame_bytes_max
        self._head_bytes_max = HEADER.size + limits.client_meta_bytes_max if role == CLIENT else limits.frame_bytes_max
        self._bounds = limits.frame_bytes_max, limits.items_max
        self._client_bounds = limits.client_meta_bytes_max, limits.client_items_max
        self.refused = ""
        """Why the message that was encoded last fits none; empty: it does, or that has been heard."""

    def encode(self, to: Address, message: Any, route: int) -> tuple[list[Any], int] | None:
        """The parts of the frame and their size; None if it is too large (`refused`): what it holds is released then."""
        parts, size = sized = sized_parts(message, route)
        if size <= self._frame_bytes_max and len(parts[0]) <= self._head_bytes_max:  # type: ignore[arg-type]
            if len(parts) > 1 and type(message) is Fetched:
                guard_unsettled(message, parts)
            return sized
        release(parts)
        said = len(parts[0]) - HEADER.size  # type: ignore[arg-type]
        text = f"a message of {said} bytes beside its batches; allowed are {self._head_bytes_max - HEADER.size}"
        if size > self._frame_bytes_max:
            text = f"a frame of {size} bytes; allowed are {self._frame_bytes_max}"
        self.refused = text
        self._on_event("message_dropped", {"to": to, "message": type(message).__name__, "reason": text})
        return None

    def decode(self, frame: memoryview | bytes, *, trusted: bool) -> Any:
        """The message of a whole frame; of a broker (`trusted`), or of a client or whoever has not said who it is. Raises CodecError."""
        meta_max, items_max = self._bounds if trusted else self._client_bounds
        return decode(frame, frame_bytes_max=self._frame_bytes_max, meta_bytes_max=meta_max, items_max=items_max)
