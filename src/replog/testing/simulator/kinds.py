"""The kinds of faults, what each does to whom, and how long it lasts: everything that a plan can hold."""

from __future__ import annotations

import random
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from replog.errors import UsageError

if TYPE_CHECKING:
    from replog.testing.simulator.plan import Shape

__all__ = ["BEYOND", "DISK", "FILES", "KINDS", "LOSSY", "MEMORY", "ROLES", "check_kinds", "check_names", "length_of", "roles_of"]

KINDS: Final[dict[str, str]] = {
    "kill": "a process ends, its files stay as written; it starts again after the length of the fault",
    "kill_all": "every process ends at once; they start again within the length of the fault, in any order",
    "strand": "a follower is cut off until it has left the ISR; then everybody else of its partition ends, and it is back alone",
    "rolling": "one broker after the other is stopped cleanly and started again",
    "power": "as kill, but what was not flushed may be gone",
    "power_all": "the power fails everywhere at once",
    "power_some": "the power fails at once for as many brokers as acks=all promises to survive, min_isr - 1",
    "wipe": "the data directory is gone",
    "restore": "a machine is put back to an image of it: the data directory is what the process before left",
    "pause": "a process stands still",
    "starve": "a process handles messages, but its timers are late",
    "clock": "the wall clock of a broker jumps, by up to an hour, and back after the length of the fault",
    "expire": "a store session ends while its process lives",
    "churn": "the leader's session expires, several times in a row",
    "unseat": "somebody removes the controller's seat from the store while it lives",
    "cut": "two brokers do not reach each other",
    "cut_one_way": "one of two brokers does not reach the other",
    "isolate": "a broker reaches nobody, and nobody reaches it; the store does",
    "ring": "each broker reaches its neighbours only",
    "swizzle": "brokers are isolated one by one, and come back in another order",
    "reset": "connections of a broker break: what was on the way is lost, both ends hear of it",
    "slow_link": "messages between two brokers take long",
    "store": "a broker does not reach the store",
    "outage": "nobody reaches the store",
    "slow_store": "the store answers a broker late",
    "refuse": "the store does not give out one of its nodes, or of its levels, nor takes anything for it",
    "unsure": "outcomes of a broker's store calls get lost, applied or not",
    "lag": "a follower does not get its fetch answers",
    "flush": "flushes of a broker take seconds",
    "read_error": "reads of a broker's disk fail",
    "write_error": "writes of a broker's disk fail",
    "flush_error": "a flush of a broker's disk fails",
    "short_write": "writes of a broker's disk stop half way",
    "full": "a broker's disk is full",
    "read_only": "a broker's disk takes no changes",
    "flip": "a bit of what a broker has stored is turned over",
    "stale_write": "a write of a broker's disk is lost, though it said otherwise",
    "misdirect": "a write of a broker's disk lands in another place",
}
"""Kind -> what happens."""

LOSSY: Final = (
    "power", "power_all", "power_some", "wipe", "restore", "flip", "stale_write", "misdirect",
    "write_error", "flush_error", "short_write", "read_error", "read_only",
)
"""Kinds that may cost a copy its records: only so many at a time, and none where a topic does not promise to survive one."""

BEYOND: Final = ("power", "power_all", "wipe")
"""Those of them of which there may be more where elections may lose something: who has lost records by them knows it."""

DISK: Final = ("read_error", "write_error", "flush_error", "short_write", "full", "read_only", "flip", "stale_write", "misdirect")
"""Kinds that befall the simulated disk: for runs over files."""

FILES: Final = (*DISK, "restore")
"""Kinds that take files."""

MEMORY: Final = ("full", "flush_error")
"""Those of the disk's that memory can have as well."""

ROLES: Final = ("leader", "leader", "leader", "follower", "controller")
_ALL: Final = frozenset({"outage", "kill_all", "power_all", "power_some", "rolling", "ring", "strand", "swizzle", "unseat", "refuse"})


def check_kinds(kinds: Iterable[str]) -> None:
    """Raise UsageError for a kind that there is not, naming the one that was perhaps meant."""
    check_names("fault of kind", kinds, KINDS)


def check_names(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise UsageError for a name that is none of those that are known, naming the one that was perhaps meant."""
    known = list(known)
    for name in names:
        if name not in known:
            meant = get_close_matches(name, known, n=1, cutoff=0.0)
            raise UsageError(f"there is no {what} {name!r}; is {meant[0]!r} meant?")


def roles_of(kind: str) -> tuple[str, ...]:
    """Whom a kind may befall, besides a broker by its number; for kinds that befall everybody ("all",)."""
    if kind in _ALL:
        return ("all",)
    return ("leader",) if kind == "churn" else ROLES


def length_of(chance: random.Random, kind: str, shape: Shape) -> int:
    """Half of the faults end before a session would, so that nobody else ever hears of them."""
    if kind in ("cut", "cut_one_way", "isolate", "lag", "ring", "swizzle", "slow_link"):
        return chance.randint(50, 3 * shape.lag_ms)
    if kind == "strand":
        return chance.randint(shape.session_ms, shape.session_ms * 3)
    if kind == "churn":
        return chance.randint(2, 4) * 700
    if kind in ("reset", "unseat", "expire"):
        return 0
    if kind in ("stale_write", "misdirect", "flush_error"):
        return chance.randint(5, 500)
    short = chance.random() < 0.5
    return chance.randint(5, shape.session_ms * 3 // 4) if short else chance.randint(shape.session_ms, shape.session_ms * 3)
