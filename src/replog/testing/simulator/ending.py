"""The end of a run: whatever clients still wait for is settled, all is read once more, and the history is checked as a whole."""

from __future__ import annotations

from collections import Counter
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from replog.client.fetching import FetchOp
from replog.client.offsets import OffsetOp
from replog.client.operations import AT_EARLIEST, Operation
from replog.client.unpacking import Unpacked, unpack_all
from replog.errors import OffsetOutOfRange
from replog.testing.history.checker import check
from replog.testing.history.events import NEVER, Send, Value
from replog.testing.history.recorder import History
from replog.testing.simulator.clients import TOPIC, SimulatedClient, text_of
from replog.testing.simulator.known import Forgiven
from replog.testing.simulator.ledger import Ledger, Violation
from replog.testing.simulator.lineages import split

if TYPE_CHECKING:
    from replog.testing.simulator.world import World

__all__ = ["finish", "name_repeated"]

SETTLE_MS: Final = 60_000
"""Nothing that a client began takes longer than this, once everything is healed."""
READ_MS: Final = 10_000
_IDLE_MAX: Final = 100
"""So many answers in a row may bring nothing, before the end."""
_PAUSE_MS: Final = 100
"""How long the leader may hold those that follow the first."""


def finish(world: World) -> None:
    """Raise `Violation` if something stays open, is not as it was wished, cannot be read, or contradicts something else."""
    if not world.run_until(world.now_ms + SETTLE_MS, lambda: not world.tasks) and world.tasks:
        raise Violation("L7", f"still open after {SETTLE_MS} ms: {', '.join(task.name for task in world.tasks)}")
    # A move whose request was held up on the way may have begun just now.
    world.run_until(world.now_ms + SETTLE_MS, lambda: world.wishes.are_kept(world))
    world.wishes.check(world)
    reader = next(iter(world.clients.values()))
    for ledger in world.checks.expected():
        committed = ledger.end  # a request that was given up on long ago may still arrive while all is read
        try:
            start, values = _read_all(world, reader, ledger.topic, ledger.identity.partition, committed)
            _compare(world, ledger, start, values, committed)
        except Violation:
            if not world.wishes.is_gone(ledger.identity):  # by such a request
                raise
    for ledger in world.checks.expected():
        if ledger.topic == TOPIC:
            key, checks = f"{TOPIC}/{ledger.identity.partition}", world.checks
            split(world.history, key, ledger, checks.lost(ledger.identity), checks.left(ledger.identity))
    name_repeated(world.history)
    report = check(world.history)
    if not report.ok:
        raise Violation("history", str(report))
    world.note("the history is sound")


def name_repeated(history: History) -> None:
    """Tell values that were sent more than once apart, by their offsets: a history needs unique ones, a workload may repeat its own.

    Where a batch was confirmed its values keep their place, and must be found there. A repeated value that is read elsewhere may
    come from a batch of which nobody knows what became of it; it is then sent, as far as the history knows, by itself.
    """
    counts = Counter((send.key, value) for send in history.sends for value in send.values)
    unknown = [send for send in history.sends if any(counts[send.key, value] > 1 for value in send.values)]
    if not unknown:
        return
    first: dict[tuple[str, Value], Send] = {}  # of each value that gets a name: the first send
    for send in unknown:
        for value in send.values:
            if counts[send.key, value] > 1 or send.base_offset is None:
                first.setdefault((send.key, value), send)
    named: set[tuple[str, Value]] = set()
    for number, send in enumerate(unknown):
        base = send.base_offset
        values = [
            _name(value, f"?{number}.{n}" if base is None else base + n) if (send.key, value) in first else value
            for n, value in enumerate(send.values)
        ]
        named.update((send.key, value) for value in values)
        send.values = values
    for poll in history.polls:
        records: list[tuple[int, Value]] = []
        for offset, value in poll.records:
            sent = first.get((poll.key, value))
            name = value if sent is None else _name(value, offset)
            if sent is not None and (poll.key, name) not in named:
                named.add((poll.key, name))
                alone = copy(sent)
                alone.process, alone.values, alone.acks = f"{sent.process} {name}", [name], 0
                alone.outcome, alone.base_offset, alone.completed, alone.ended = "info", None, NEVER, NEVER
                history.sends.append(alone)
            records.append((offset, name))
        poll.records = records
    history.sends.sort(key=lambda send: send.invoked)


def _name(value: Value, place: int | str) -> str:
    """No text of a value has an arrow: see `text_of`."""
    return f"{value} \N{RIGHTWARDS ARROW} {place}"


def _read_all(world: World, client: SimulatedClient, topic: str, partition: int, committed: int) -> tuple[int, dict[int, bytes | None]]:
    """All that a client can read of a partition: where it starts, and the values by offset. The history is about the topic of every run.

    A new leader does not know yet how far all was `committed`, and one may be new at any time: reading may be what finds damage.
    """
    where, process, key = f"{topic}-{partition}", "last reader", f"{topic}/{partition}"
    values: dict[int, bytes | None] = {}
    start = position = _earliest(world, client, topic, partition)
    idle = 0
    while True:
        poll = world.history.invoke_poll(process, key, position, final=True) if topic == TOPIC else None
        op = FetchOp(topic, partition, position, max_bytes=1 << 20, wait_ms=_PAUSE_MS if idle else 0, deadline_ms=world.now_ms + READ_MS)
        try:
            found = _fetched(world, client, op, f"{where} at {position}")
        except OffsetOutOfRange as error:  # retention was faster
            before, start = position, _earliest(world, client, topic, partition)
            position = start
            if position <= before or not world.is_trimmed(partition, before, topic):
                raise Violation("readable", f"{where} at {before}, the log starts at {position}: {error}") from error
            if poll is not None:
                poll.info()
                world.history.assign(process, key, position)
            continue
        if poll is not None:
            poll.ok([(record.offset, text_of(record.value)) for record in found.records], found.high_watermark)
        values.update((record.offset, record.value) for record in found.records)
        idle = 0 if found.next_offset > position else idle + 1
        position = found.next_offset
        if not found.records and position >= found.high_watermark and (position >= committed or idle >= _IDLE_MAX):
            return start, values  # and has heard, at the end, that there is no more
        if idle >= _IDLE_MAX:
            raise Violation("readable", f"{where} at {position}: {idle} answers without records, committed {found.high_watermark}")


def _compare(world: World, ledger: Ledger, start: int, values: dict[int, bytes | None], committed: int) -> None:
    """Whatever was ever confirmed is read where it was confirmed, unless retention has removed it; so is whatever is committed.

    What retention has removed the ledger knows (S23): not whoever answers, who may start too late.
    """
    where = f"{ledger.topic}-{ledger.identity.partition}"
    if start > ledger.removed:
        raise Violation("readable", f"{where} is said to start at {start}, retention has removed nothing from {ledger.removed} on")
    end = max(start, max(values, default=-1) + 1)  # retention may have removed since what was read first
    while end < committed and ledger.entries[end].is_control:
        end += 1
    if end < committed:
        raise Violation("readable", f"{where} is committed to {committed}, and read from {start} to {end}")
    forgiven = Forgiven(world, ledger.identity)
    for client in world.clients.values():
        for told in client.acknowledged:
            if told.identity != ledger.identity:
                continue
            for at, value in enumerate(told.values, told.base_offset):
                if at >= start and values.get(at) != value and not forgiven.has(at, value):
                    raise Violation("readable", f"confirmed at offset {at} of {where}: {value!r}, read: {values.get(at)!r}")


def _earliest(world: World, client: SimulatedClient, topic: str, partition: int) -> int:
    op = OffsetOp(topic, partition, AT_EARLIEST, world.now_ms + READ_MS)
    return _wait(world, client, op, f"{topic}-{partition}").offset  # type: ignore[no-any-return]


def _fetched(world: World, client: SimulatedClient, op: FetchOp, where: str) -> Unpacked:
    _wait(world, client, op, where)
    return unpack_all(op)


def _wait(world: World, client: SimulatedClient, op: Operation, where: str) -> Any:
    client.submit(op)
    world.run_until(world.now_ms + READ_MS + 1_000, lambda: op.done)
    if isinstance(op.error, OffsetOutOfRange):
        raise op.error
    if not op.done or op.error is not None:
        raise Violation("readable", f"{where}: {op.error or 'no answer'}")
    return op.result
