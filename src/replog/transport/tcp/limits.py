"""Every bound of the TCP transport: what one peer, and all of them together, may cost."""

from __future__ import annotations

from typing import Any, Final

from attrs import Attribute, field, frozen

from replog.codec import FRAME_BYTES_MAX, ITEMS_MAX
from replog.config import WISH_ITEMS_MAX, BrokerConfig
from replog.errors import UsageError

__all__ = ["FRAME_STEP_BYTES", "HANDSHAKE_BYTES_MAX", "TcpLimits", "check_own", "limits_of"]

HANDSHAKE_BYTES_MAX: Final = 16 << 10
"""A frame of somebody who has not said yet who it is, or of whoever answers that."""

FRAME_STEP_BYTES: Final = 1 << 20
"""Whoever brings so much of a frame within `frame_timeout_ms` may go on: a slow link is no attack, and 35 kB/s are enough."""
_KEYS: Final = ("connections_max", "connections_per_address_max", "handshake_timeout_ms")
"""Of `BrokerConfig`."""


def _at_least(low: int) -> Any:
    def check(instance: Any, attribute: Attribute[Any], value: Any) -> None:
        if type(value) is not int or value < low:
            raise UsageError(f"TcpLimits.{attribute.name} is {value!r}; it must be a whole number of at least {low}")

    return check


@frozen(kw_only=True)
class TcpLimits:
    """Bounds of one `TcpTransport`; times in milliseconds. Raises UsageError for a value that cannot work."""

    frame_bytes_max: int = field(default=FRAME_BYTES_MAX, validator=_at_least(HANDSHAKE_BYTES_MAX))
    """A longer frame is refused by its first four bytes, and never sent."""
    items_max: int = field(default=ITEMS_MAX, validator=_at_least(1))
    """Items of all lists and dicts of one message; between brokers, and from a broker to a client."""
    client_meta_bytes_max: int = field(default=1 << 20, validator=_at_least(HANDSHAKE_BYTES_MAX))
    """One message of a client without the batches in it; decoding takes some hundred times as long as receiving it."""
    client_items_max: int = field(default=WISH_ITEMS_MAX, validator=_at_least(1))
    """... and the items of all its lists and dicts. The largest wish that can be granted has 180,000: the replicas of a topic."""
    client_turn_requests_max: int = field(default=100, validator=_at_least(1))
    """Messages of one connection of a client that are taken in before the others have their turn: the rest is kept, and nothing more
    is read from it meanwhile."""
    connections_max: int = field(default=10_000, validator=_at_least(1))
    """Open connections, accepted and dialed. Beyond it, whoever has not said yet who it is has to go, else the newcomer. Never more
    than three quarters of the descriptors that the process may have: the others are for files. An eighth of them is kept free of
    clients, so that brokers find a place."""
    connections_per_address_max: int = field(default=0, validator=_at_least(0))
    """... that were accepted from one address; 0: as many as there are."""
    receive_bytes_max: int = field(default=512 << 20, validator=_at_least(HANDSHAKE_BYTES_MAX))
    """Memory for all frames of which a part has arrived, or that wait for the next turn. Beyond it, the client that holds most has to go,
    else the broker that does."""
    output_bytes_max: int = field(default=16 << 20, validator=_at_least(1))
    """Waiting to be taken by one peer. Above it nothing is read from that peer if it is a client, and its fetches are answered
    without records, so that it asks again; a broker closes a connection for which four times as much waits when yet another frame
    comes (what a client sends, its configuration bounds). Also four times as much may wait for a peer while it is dialed; the
    messages beyond are dropped."""
    output_files_max: int = field(default=128, validator=_at_least(1))
    """Regions of files waiting to be taken by one client, each of which keeps its file open, whatever its size; never more than a 32nd of
    the descriptors that the process may have. From there on it is as above `output_bytes_max`; for a client that has any, also once four
    times as many wait for all."""
    output_bytes_total_max: int = field(default=512 << 20, validator=_at_least(1))
    """The same of all peers of a broker together, without records that lie in a log: the client for which most waits has to go beyond it,
    else the broker for which most does."""
    connect_timeout_ms: int = field(default=2_500, validator=_at_least(1))
    """Until the other end's kernel has answered. Below a client's `unanswered_ms`: it is told that nobody was reached before it goes
    elsewhere, in doubt of what it has asked there."""
    handshake_timeout_ms: int = field(default=5_000, validator=_at_least(1))
    """Until both ends have said who they are; and until one that was refused has taken the reason."""
    frame_timeout_ms: int = field(default=30_000, validator=_at_least(1))
    """A frame that began must be whole by then, or have got `FRAME_STEP_BYTES` longer: so long for each of these."""
    stalled_timeout_ms: int = field(default=30_000, validator=_at_least(1))
    """A peer that takes nothing of what waits for it, or whose kernel does not answer, is gone."""
    idle_timeout_ms: int = field(default=600_000, validator=_at_least(1))
    """A connection on which nothing moves either way is closed by whoever dialed it, and after twice as long by the other end;
    the next message opens another."""
    backoff_ms: int = field(default=50, validator=_at_least(1))
    """Pause after a failed attempt to reach a peer; it doubles with each further one, and up to half of it is left to chance."""
    backoff_ms_max: int = field(default=2_000, validator=_at_least(1))
    """The longest such pause. A connection that lasted for so long, or brought a message, begins anew."""
    accept_pause_ms: int = field(default=1_000, validator=_at_least(1))
    """No further connection is accepted for so long when the process is out of descriptors or memory."""


def limits_of(config: BrokerConfig) -> TcpLimits:
    """As a broker's configuration has them."""
    return TcpLimits(**{key: getattr(config, key) for key in _KEYS})


def check_own(config: BrokerConfig, *, security: object, quotas: object, insecure: bool) -> None:
    """What is said of a transport goes to one that the application has made itself. Raises UsageError naming what was said elsewhere."""
    for name, value in (("security", security), ("quotas", quotas), ("insecure", insecure or None)):
        if value is not None:
            raise UsageError(f"{name} belongs to the transport that is given here: say it to TcpTransport({name}=...)")
    default = BrokerConfig()
    for key in _KEYS:
        if (value := getattr(config, key)) != getattr(default, key):
            raise UsageError(f"{key} is {value}, and the transport that is given here has its own limits: give it TcpLimits({key}={value})")
