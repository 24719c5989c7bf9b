"""When a session of a store without a server is over: the rules of leases, on plain numbers.

A lease is (boot id, time of CLOCK_MONOTONIC when it was renewed, its length). Both are the host's, so every process on
it reads the same clock; another boot id means that its process is gone with that boot. A process that could not write
itself (its disk stalled, it was stopped) has no right to judge others: they may have been unable to renew for the same
reason, or because it held the file. It first has to have been able to write for a full time of the session that it judges,
without a gap of more than half of that.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, Protocol, runtime_checkable

from attrs import define, field

from replog.errors import UsageError

__all__ = [
    "NS_PER_MS",
    "SESSION_MS_MAX",
    "SESSION_MS_MIN",
    "Lease",
    "Leased",
    "WriteWindow",
    "check_session_ms",
    "has_expired",
    "has_run_out",
    "is_due",
    "wants_write",
]

NS_PER_MS: Final = 1_000_000
SESSION_MS_MIN: Final = 100
SESSION_MS_MAX: Final = 86_400_000
"""A day: whoever was killed is missed before that."""
RENEWALS: Final = 4
"""A lease is renewed this often in its time."""
GAP_MS_MIN: Final = 300
"""Sessions so short that they would need writes more often than this are judged as if they did not."""
GAPS_MAX: Final = 1_000
"""More gaps than this are not remembered each by itself."""


@runtime_checkable
class Leased(Protocol):
    """A store whose driver keeps its session alive: `renew` and `poll`, each at least once per third of `session_ms`.

    Or it calls `keep_alive`, and the store does both by itself.
    """

    session_ms: int

    def renew(self) -> None:
        """Keep the session alive, and end those of others that ran out."""

    def poll(self) -> None:
        """Notice what other processes changed: fire watches, notice a lost session."""


class Lease(NamedTuple):
    """A recorded session."""

    session: str
    boot_id: str
    renewed_ns: int
    session_ms: int | None
    """None: never by time."""


@define
class WriteWindow:
    """Since when this process has been able to write, without a gap longer than `gap_ns`, and which gaps there were since."""

    gap_ns: int
    since_ns: int | None = None
    last_ns: int | None = None
    _gaps: deque[tuple[int, int]] = field(factory=deque, init=False)
    """When a gap ended, and how long it was: none that was followed by a longer one, or is too short to matter."""

    def wrote(self, now_ns: int) -> None:
        """A write came through."""
        if self.last_ns is None or now_ns - self.last_ns > self.gap_ns:
            self.since_ns = now_ns
            self._gaps.clear()
        elif (gap_ns := now_ns - self.last_ns) > GAP_MS_MIN * NS_PER_MS:
            while self._gaps and self._gaps[-1][1] <= gap_ns:
                self._gaps.pop()
            self._gaps.append((now_ns, gap_ns))
            if len(self._gaps) > GAPS_MAX:
                _, oldest_ns = self._gaps.popleft()
                self._gaps[0] = (self._gaps[0][0], oldest_ns)  # which was longer: rather wait than judge too early
        self.last_ns = now_ns

    def failed(self) -> None:
        """A write did not come through: the window starts again with the next one."""
        self.since_ns = self.last_ns = None
        self._gaps.clear()

    def covers(self, now_ns: int, span_ms: int) -> bool:
        """Could this process write all through the last `span_ms`, as whoever has to write that often?"""
        if self.since_ns is None or self.last_ns is None:
            return False
        longest_ns = min(self.gap_ns, _gap_ns(span_ms))
        begin_ns = now_ns - span_ms * NS_PER_MS
        if now_ns - self.last_ns > longest_ns or any(end_ns > begin_ns and gap_ns > longest_ns for end_ns, gap_ns in self._gaps):
            return False
        return self.since_ns <= begin_ns


def _gap_ns(span_ms: int) -> int:
    """How long nobody may have written of whom a session of `span_ms` is ended."""
    return max(span_ms // 2, GAP_MS_MIN) * NS_PER_MS


def check_session_ms(session_ms: object) -> int:
    """UsageError unless this is a session time that can be kept."""
    if isinstance(session_ms, bool) or not isinstance(session_ms, int):
        raise UsageError(f"session_ms is a whole number of milliseconds, not {session_ms!r}")
    if session_ms < SESSION_MS_MIN:
        raise UsageError(f"session_ms is {session_ms}; at least {SESSION_MS_MIN} is needed")
    if session_ms > SESSION_MS_MAX:
        raise UsageError(f"session_ms is {session_ms}; at most {SESSION_MS_MAX} (a day) is allowed")
    return session_ms


def is_due(alive_ns: int, *, recorded_ns: int, now_ns: int, session_ms: int) -> bool:
    """Is it time to write down that an owner was alive at `alive_ns`, when `recorded_ns` is what was written last?

    A lease counts from the last sign of its owner: time that passes without one makes nothing due.
    """
    return alive_ns > recorded_ns and now_ns - recorded_ns >= session_ms * NS_PER_MS // RENEWALS


def has_run_out(lease: Lease, *, boot_id: str, now_ns: int) -> bool:
    """Is the time of this session over, whoever may end it?"""
    if lease.boot_id != boot_id:
        return True
    return lease.session_ms is not None and now_ns - lease.renewed_ns > lease.session_ms * NS_PER_MS


def has_expired(lease: Lease, *, boot_id: str, now_ns: int, window: WriteWindow) -> bool:
    """May a process of `boot_id` end this session now?"""
    if not has_run_out(lease, boot_id=boot_id, now_ns=now_ns):
        return False
    return lease.boot_id != boot_id or lease.session_ms is None or window.covers(now_ns, lease.session_ms)


def wants_write(lease: Lease, *, boot_id: str, now_ns: int, window: WriteWindow) -> bool:
    """Is a write due for the sake of this session: to end it, or, where it was not tried for a while, to have the right to?"""
    if not has_run_out(lease, boot_id=boot_id, now_ns=now_ns):
        return False
    if has_expired(lease, boot_id=boot_id, now_ns=now_ns, window=window) or lease.session_ms is None:
        return True
    return window.last_ns is not None and now_ns - window.last_ns >= lease.session_ms * NS_PER_MS // RENEWALS
