"""What a run leaves behind, in one hash: the store, and every copy of every partition, byte by byte."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from replog.errors import ReplogError
from replog.ports import Log

if TYPE_CHECKING:
    from replog.testing.simulator.world import World

__all__ = ["state_hash"]


def state_hash(world: World) -> str:
    """A hash of the state at this moment; equal for equal runs, whatever PYTHONHASHSEED."""
    digest = hashlib.sha256()
    _add_store(digest, world, "/")
    for broker_id, node in sorted(world.nodes.items()):
        digest.update(f"broker {broker_id} life {node.life}\n".encode())
        partitions = {} if node.broker is None else node.broker.partitions
        for identity, partition in sorted(partitions.items()):
            epochs = partition.leader_epoch, partition.partition_epoch, partition.high_watermark
            digest.update(f"{identity} {epochs}\n".encode())
            _add_log(digest, partition.log)
    return digest.hexdigest()[:16]


def _add_store(digest: Any, world: World, path: str) -> None:
    node = None if path == "/" else world.root.read(path)
    if node is not None:
        digest.update(f"{path} {node.value!r} {node.version}\n".encode())
    for name in sorted(world.root.list(path)):
        _add_store(digest, world, f"{path.rstrip('/')}/{name}")


def _add_log(digest: Any, log: Log) -> None:
    digest.update(f"{log.start_offset} {log.end_offset} {log.flushed_end}\n".encode())
    try:
        for piece in log.read(log.start_offset, log.end_offset, 1 << 40):
            digest.update(piece.view())
    except ReplogError as problem:  # a copy that the run has damaged
        digest.update(type(problem).__name__.encode())
