"""Disks that misbehave: one in memory that loses what was not synced, layers that count, fail and stop any disk, and
the systematic ways to try every crash and every damaged byte.

* `memory`: `MemoryFs` keeps two images of everything. `kill` ends the processes (the page cache survives), `cut_power`
  ends everything: of what was not synced, any part may be there afterwards, sector by sector, size by size and name by
  name, as a `choose` function decides.
* `layer`: `FaultyFs` stands in front of any `Fs` and asks a function before each operation that changes something.
* `faults`: `SimulatedDisk` is a `MemoryFs` whose faults are armed and disarmed; `atlas` says which copies may be damaged.
* `crashes`: every legal state of a disk after a power cut. `workloads`, `ledger`, `session` and `trial` recover a real
  log directory from each of them.
* `sweep`: every byte of a log's files turned over, every file cut at every length.

`python -m replog.testing.disk` runs the last two as far as one likes.
"""

from __future__ import annotations

from replog.testing.disk.atlas import Atlas
from replog.testing.disk.choices import Choose, CrashedError, keep_all, keep_none, some
from replog.testing.disk.crashes import CrashStates, DiskState, crash_states
from replog.testing.disk.faults import Damage, FaultKind, SimulatedDisk
from replog.testing.disk.images import SECTOR
from replog.testing.disk.layer import Before, FaultyFs
from replog.testing.disk.memory import MemoryFs

__all__ = [
    "SECTOR",
    "Atlas",
    "Before",
    "Choose",
    "CrashStates",
    "CrashedError",
    "Damage",
    "DiskState",
    "FaultKind",
    "FaultyFs",
    "MemoryFs",
    "SimulatedDisk",
    "crash_states",
    "keep_all",
    "keep_none",
    "some",
]
