"""The interfaces that backends implement, and the values that pass through them.

Each contract here has a public suite in `replog.testing` that every built-in backend passes and a third party can
subclass.
"""

from __future__ import annotations

from replog.ports.actors import (
    Actor,
    Event,
    FlushDone,
    Ids,
    Outbox,
    SessionChanged,
    StoreCall,
    StoreResult,
    Transport,
    WatchFired,
)
from replog.ports.logs import (
    EpochEnd,
    EpochStart,
    EpochTable,
    FlushToken,
    Location,
    Log,
    LogDirectory,
    LogStart,
    LossKind,
    LossReport,
    MemorySlice,
    ProducerState,
    ProducerTable,
    Slice,
    Writer,
)
from replog.ports.stores import (
    Check,
    Conflict,
    Create,
    Delete,
    MetadataStore,
    Op,
    Put,
    SessionLost,
    SessionState,
    UnknownOutcome,
    Versioned,
)

__all__ = [
    "Actor",
    "Check",
    "Conflict",
    "Create",
    "Delete",
    "EpochEnd",
    "EpochStart",
    "EpochTable",
    "Event",
    "FlushDone",
    "FlushToken",
    "Ids",
    "Location",
    "Log",
    "LogDirectory",
    "LogStart",
    "LossKind",
    "LossReport",
    "MemorySlice",
    "MetadataStore",
    "Op",
    "Outbox",
    "ProducerState",
    "ProducerTable",
    "Put",
    "SessionChanged",
    "SessionLost",
    "SessionState",
    "Slice",
    "StoreCall",
    "StoreResult",
    "Transport",
    "UnknownOutcome",
    "Versioned",
    "WatchFired",
    "Writer",
]
