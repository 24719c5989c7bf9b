"""Where the temporary files of a lane lie: in memory where there is room, and gone when the lane has passed.

A test of a cluster waits for a disk nine tenths of its time, for each thing that must be durable before the next; in memory that costs
nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MEMORY = Path("/dev/shm")
"""Where Linux has a file system in memory."""
PREFIX = "replog-lanes-"
ROOM_MIN = 4 << 30
"""Bytes that must be free there and in memory; no more than 150 MiB have been seen to lie there."""
PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")
CGROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
)
"""Of both versions: what a container may take, what it has, and what of that could go at once."""


class Place(NamedTuple):
    """Where a lane's temporary files lie."""

    folder: Path
    held: int
    """A descriptor with a lock: whoever has it may still write there."""


def place() -> Place | None:
    """A folder in memory for a lane's temporary files; None where there is no room, or where whoever starts lanes says another place."""
    if "TMPDIR" in os.environ or not has_room():
        return None
    made = Path(tempfile.mkdtemp(prefix="replog-making-", dir=MEMORY))
    held = os.open(made, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    folder = made.with_name(PREFIX + made.name)  # only now: what has no lock is removed
    made.rename(folder)
    return Place(folder, held)


def forget_dead() -> None:
    """Remove what lanes that failed or were killed have left in memory. Whoever still runs holds a lock."""
    for folder in MEMORY.glob(f"{PREFIX}*"):
        with suppress(OSError):  # somebody else's
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)


def has_room() -> bool:
    """Whether temporary files may lie in memory. Tests also execute some of theirs."""
    try:
        disk = os.statvfs(MEMORY)
        usable = os.access(MEMORY, os.W_OK) and not disk.f_flag & os.ST_NOEXEC
        return usable and min(disk.f_bavail * disk.f_frsize, free_memory()) >= ROOM_MIN
    except (OSError, StopIteration):
        return False


def free_memory() -> int:
    """Bytes that programs can still take: of the machine, and of a container that has a limit. Raises OSError or StopIteration where nobody
    says."""
    lines = (PROC / "meminfo").read_text().splitlines()
    free = [next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))]
    for limit, used, cached in CGROUP_FILES:
        with suppress(OSError, ValueError):  # no such file, or "max"
            most, taken = (int((CGROUP / name).read_text()) for name in (limit, used))
            counted = dict(line.split() for line in (CGROUP / limit).with_name("memory.stat").read_text().splitlines())
            free.append(most - taken + int(counted.get(cached, 0)))
    return min(free)
