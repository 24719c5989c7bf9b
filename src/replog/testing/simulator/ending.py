"""The end of a run: whatever clients still wait for is settled, all is read once more, and the history is checked as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from replog.client.fetching import FetchOp
from replog.client.operations import AT_EARLIEST, OffsetOp, Operation
from replog.errors import OffsetOutOfRange
from replog.testing.history.checker import check
from replog.testing.simulator.clients import TOPIC, SimulatedClient
from replog.testing.simulator.ledger import Violation

if TYPE_CHECKING:
    from replog.testing.simulator.world import World

__all__ = ["finish"]

SETTLE_MS: Final = 60_000
"""Nothing that a client began takes longer than this, once everything is healed."""
READ_MS: Final = 10_000


def finish(world: World) -> None:
    """Raise `Violation` if something stays open, cannot be read, or contradicts something else."""
    if not world.run_until(world.now_ms + SETTLE_MS, lambda: not world.tasks) and world.tasks:
        raise Violation("L7", f"still open after {SETTLE_MS} ms: {', '.join(task.name for task in world.tasks)}")
    reader = next(iter(world.clients.values()))
    for partition in range(world.plan.shape.partitions):
        _read_all(world, reader, partition)
    report = check(world.history)
    if not report.ok:
        raise Violation("history", str(report))
    world.note("the history is sound")


def _read_all(world: World, client: SimulatedClient, partition: int) -> None:
    where, process, key = f"partition {partition}", "last reader", f"{TOPIC}/{partition}"
    position = _earliest(world, client, partition)
    while True:
        poll = world.history.invoke_poll(process, key, position, final=True)
        op = FetchOp(TOPIC, partition, position, max_bytes=1 << 20, wait_ms=0, deadline_ms=world.now_ms + READ_MS)
        try:
            found = _wait(world, client, op, f"{where} at {position}")
        except OffsetOutOfRange:  # retention was faster
            poll.info()
            position = _earliest(world, client, partition)
            world.history.assign(process, key, position)
            continue
        poll.ok([(record.offset, record.text()) for record in found.records], found.high_watermark)
        position = found.next_offset
        if not found.records and position >= found.high_watermark:  # and has heard, at the end, that there is no more
            return


def _earliest(world: World, client: SimulatedClient, partition: int) -> int:
    op = OffsetOp(TOPIC, partition, AT_EARLIEST, world.now_ms + READ_MS)
    return _wait(world, client, op, f"partition {partition}").offset  # type: ignore[no-any-return]


def _wait(world: World, client: SimulatedClient, op: Operation, where: str) -> Any:
    client.submit(op)
    world.run_until(world.now_ms + READ_MS + 1_000, lambda: op.done)
    if isinstance(op.error, OffsetOutOfRange):
        raise op.error
    if not op.done or op.error is not None:
        raise Violation("readable", f"{where}: {op.error or 'no answer'}")
    return op.result
