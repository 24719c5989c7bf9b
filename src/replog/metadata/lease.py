"""When a session of a store without a server is over: the rules of leases, on plain numbers.

A lease is (boot id, time of CLOCK_MONOTONIC when it was renewed, its length). Both are the host's, so every process on
it reads the same clock; another boot id means that its process is gone with that boot. A process that could not write
itself (its disk stalled, it was stopped) has no right to judge others: they may have been unable to renew for the same
reason. It first has to have been able to write for a full session time.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, runtime_checkable

from attrs import define

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
]

NS_PER_MS: Final = 1_000_000
SESSION_MS_MIN: Final = 100
SESSION_MS_MAX: Final = 86_400_000
"""A day: whoever was killed is missed before that."""
RENEWALS: Final = 4
"""A lease is renewed this often in its time."""


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
    """Since when this process has been able to write, without a gap longer than `gap_ns`."""

    gap_ns: int
    since_ns: int | None = None
    last_ns: int | None = None

    def wrote(self, now_ns: int) -> None:
        """A write came through."""
        if self.last_ns is None or now_ns - self.last_ns > self.gap_ns:
            self.since_ns = now_ns
        self.last_ns = now_ns

    def failed(self) -> None:
        """A write did not come through: the window starts again with the next one."""
        self.since_ns = self.last_ns = None

    def covers(self, now_ns: int, span_ms: int) -> bool:
        """Could this process write all through the last `span_ms`?"""
        if self.since_ns is None or self.last_ns is None or now_ns - self.last_ns > self.gap_ns:
            return False
        return now_ns - self.since_ns >= span_ms * NS_PER_MS


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
