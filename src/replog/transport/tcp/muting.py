"""Who is over its quota is answered, and then not heard until that is paid for (KIP-219): TCP has it wait, and nothing is refused.

A client fetches on connections of its own (`lanes`), so each connection is about one of the two limits, and says nothing else. What is sent
is read in small portions, each paid for before the next; the connections of one client take turns. Questions for records that come too
early are answered without records, as they are when too much waits for the client (`output_bytes_max`): so none of them times out.
However much is owed, no connection waits for longer than `MUTED_MS_MAX` at a time: then a little of it is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from replog.messages import CLIENT
from replog.transport.tcp.connection import Connection
from replog.transport.tcp.lanes import BULK, lane_of
from replog.transport.tcp.quotas import Budget
from replog.transport.tcp.telling import Seldom

if TYPE_CHECKING:
    from replog.security.quotas import Quotas

__all__ = ["FETCH", "MUTED_MS_MAX", "PORTION_BYTES_MAX", "PRODUCE", "Limited", "Muting", "Portion", "muting_of"]

PRODUCE: Final = "produce"
FETCH: Final = "fetch_consumer"
"""The two limits, as the label `request` of metrics has them."""
MUTED_MS_MAX: Final = 1_000
"""Every connection is heard this often: a third of the time after which a client begins to doubt a silent broker (`unanswered_ms`)."""
PORTION_MS: Final = 250
"""Read at a time of one who sends: what takes it so long to pay for, divided by its connections and within the bounds below."""
PORTION_BYTES_MIN: Final = 1 << 10
"""Also read of a stranger at a time, and of one that has waited for `MUTED_MS_MAX` and still owes."""
PORTION_BYTES_MAX: Final = 512 << 10


class Portion:
    """At most so many bytes of a socket."""

    __slots__ = ("_left", "_source", "taken")

    def __init__(self, source: Any, size: int) -> None:
        self._source = source
        self._left = size
        self.taken = 0

    def recv_into(self, buffer: Any) -> int:
        """As the socket's; BlockingIOError after the last byte."""
        if not self._left:
            raise BlockingIOError
        size: int = self._source.recv_into(memoryview(buffer)[: self._left])
        self._left -= size
        self.taken += size
        return size


class Limited:
    """One connection under a quota, or one of which nobody knows yet who is there (`name` is "")."""

    __slots__ = ("_budget", "_fetches", "_muting", "_rate", "_sparing", "_until_ms", "broker_id", "name")

    def __init__(self, muting: Muting, name: str, connection: Connection | None = None) -> None:
        self.name = name
        self._muting = muting
        self._fetches = connection is not None and connection.lane == BULK
        self._rate = 0 if self._fetches or not name else muting.quotas.of(name).produce_bytes_per_s
        self.broker_id: Any = connection.local if connection is not None else -1
        self._budget = muting.budgets[FETCH if self._fetches else PRODUCE] if name else None
        self._until_ms = 0
        self._sparing = not name
        """The least is read: nobody knows who it is, or it is heard although its client owes."""
        if self._rate:
            muting.senders[name] += 1

    def ended(self) -> None:
        """Its connection is closed: the others of its client have its share."""
        if self._rate:
            self._muting.senders[self.name] -= 1
            if not self._muting.senders[self.name]:
                del self._muting.senders[self.name]

    @property
    def portion_bytes(self) -> int:
        """So much of it is read now; of one who may send as much as it likes what is read of everybody."""
        if self._sparing and not self._fetches:
            return PORTION_BYTES_MIN
        if not self._rate:
            return PORTION_BYTES_MAX
        share_ms = max(PORTION_MS // self._muting.senders[self.name], 1)
        return min(max(self._rate * share_ms // 1_000, PORTION_BYTES_MIN), PORTION_BYTES_MAX)

    def refusal(self, message: Any) -> str | None:
        """Why this message may not come on this connection; None: it may. On another one it would be nobody's."""
        if (lane_of(message, CLIENT) == BULK) is self._fetches:
            return None
        return f"{type(message).__name__} on a connection for {'fetches' if self._fetches else 'all but fetches'}"

    @property
    def owes(self) -> bool:
        """Whether its client has fetched more than it may."""
        now_ms = self._muting.now_ms()
        return self._fetches and self._budget is not None and self._budget.charge(self.name, 0, now_ms) > now_ms

    def received(self, size: int) -> int:
        """Until when it is to be silent, after so many bytes have come from it; -1: it is not."""
        return self._charge(0 if self._fetches else size)

    def sent(self, size: int) -> int:
        """The same after so many bytes were queued for it."""
        return self._charge(size) if self._fetches else -1

    def _charge(self, size: int) -> int:
        if self._budget is None:
            return -1
        now_ms = self._muting.now_ms()
        paid_ms = self._budget.charge(self.name, size, now_ms)
        until_ms = min(paid_ms, now_ms + MUTED_MS_MAX)
        self._sparing = paid_ms > until_ms
        if until_ms <= now_ms:
            return -1
        if until_ms > self._until_ms:
            self._muting.tell(self, FETCH if self._fetches else PRODUCE, until_ms - max(now_ms, self._until_ms), now_ms)
            self._until_ms = until_ms
        return self._until_ms


class Muting:
    """Of one transport. `throttled(broker, request, ms)` is told for how much longer a connection of a client is not heard."""

    def __init__(
        self,
        quotas: Quotas,
        *,
        now_ms: Callable[[], int],
        throttled: Callable[[Any, str, int], None],
        on_event: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.quotas = quotas
        self.now_ms = now_ms
        self.budgets = {
            PRODUCE: Budget(lambda name: quotas.of(name).produce_bytes_per_s, quotas.burst_ms),
            FETCH: Budget(lambda name: quotas.of(name).fetch_bytes_per_s, quotas.burst_ms),
        }
        self._throttled = throttled
        self._on_event = on_event
        self._seldom = Seldom()
        self.senders: Counter[str] = Counter()
        """Connections that send under a limit, by name."""
        self.stranger = Limited(self, "")
        """What everybody is that has connected and not said who it is."""

    def of(self, connection: Connection) -> Limited | None:
        """What a connection that is open now is; None: a broker, or a client without limits."""
        who = connection.identity
        if connection.peer_id >= 0 or (who is not None and who.is_broker):  # the latter: calls of a broker's own process
            return None
        name = self.quotas.name_of(connection.name.rpartition(":")[0], connection.origin) if who is None else str(who)
        quota = self.quotas.of(name)
        return Limited(self, name, connection) if quota.produce_bytes_per_s or quota.fetch_bytes_per_s else None

    def tell(self, limited: Limited, request: str, ms: int, now_ms: int) -> None:
        """A connection is not heard for so much longer: counted, and told once a minute for each client."""
        self._throttled(limited.broker_id, request, ms)
        more = self._seldom.tell(limited.name, now_ms)
        if more is not None:
            fields = {"client": limited.name, "broker": limited.broker_id, "request": request, "ms": ms, "more": more}
            self._on_event("client_throttled", fields)


def muting_of(
    quotas: Quotas | None,
    now_ms: Callable[[], int],
    throttled: Callable[[Any, str, int], None],
    on_event: Callable[[str, dict[str, Any]], None],
) -> Muting | None:
    """What keeps to these limits; None without any."""
    return None if quotas is None else Muting(quotas, now_ms=now_ms, throttled=throttled, on_event=on_event)
