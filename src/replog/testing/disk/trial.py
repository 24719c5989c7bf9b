"""Crash a workload at every moment, in every way a power cut allows, and judge what is recovered from each.

What is demanded of every state: it opens; what it holds is a part of one content the log has had, without a gap and
up to some batch; everything that was reported as flushed is there; the epoch table is that of the records; nothing is called
corrupt, because nothing is; the log takes another batch. Opening a second time finds and leaves the same bytes. And
for a share of the states, a crash at each operation of recovery itself, followed by another, changes none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from attrs import define, field

from replog.log.directory import FileLogDirectory
from replog.log.files import Fs
from replog.log.log import FileLog
from replog.model import PartitionId
from replog.ports import LossReport
from replog.records import RecordBatch
from replog.testing.disk.choices import CrashedError, keep_all, keep_none, some
from replog.testing.disk.crashes import DiskState, crash_states
from replog.testing.disk.layer import FaultyFs
from replog.testing.disk.ledger import Content, Known, Ledger, Stored
from replog.testing.disk.memory import MemoryFs
from replog.testing.disk.session import FOLDER, LIMITS, Session, batch_of_length
from replog.testing.disk.workloads import Workload

__all__ = ["Broken", "Outcome", "Trial", "content_of", "try_workload"]


_GO_ON_STATES = 24


class Broken(AssertionError):
    """A state from which recovery does what it must not."""


@define
class Outcome:
    """What one trial came to."""

    name: str
    moments: int = 0
    """Moments at which power was cut."""
    possible: int = 0
    """Combinations of choices at all moments together; many give equal states."""
    sampled: int = 0
    """Moments whose states were sampled, because there are too many."""
    recovered: int = 0
    """States that were recovered and judged."""
    second_crashes: int = 0
    """Crashes inside recovery."""
    states: set[bytes] = field(factory=set)
    """Fingerprints of the distinct states."""

    def __str__(self) -> str:
        return (
            f"{self.name}: {len(self.states):,} distinct states of {self.possible:,} combinations at {self.moments} moments "
            f"({self.sampled} sampled), {self.second_crashes:,} crashes in recovery"
        )


def content_of(log: FileLog) -> Content:
    """Everything a log serves, verified. Raises what reading it raises."""
    batches: list[Stored] = []
    offset = log.start_offset
    while offset < log.end_offset:
        slices = log.read(offset, log.end_offset, 1 << 20)
        if not slices:
            raise Broken(f"nothing is served at offset {offset}")
        for part in slices:
            data, at = bytes(part.view()), 0
            part.release()
            while at < len(data):
                batch = RecordBatch.parse(data, at, identity=log.identity)
                if batch.base_offset != offset:
                    raise Broken(f"offset {batch.base_offset} is served for {offset}")
                batches.append(Stored(offset, batch.end_offset, batch.to_bytes()))
                offset, at = batch.end_offset, at + batch.length
    return Content(log.start_offset, tuple(batches))


class Trial:
    """One workload with one flush policy.

    `limit` bounds the states of one moment; of so many states one, `second`, is crashed again. `wrap(disk, begun)` puts
    something between the library and the disk: a lie that starts when `begun()`, to see that this is noticed.
    """

    def __init__(
        self,
        workload: Workload,
        flush: str,
        *,
        limit: int,
        second: int = 50,
        wrap: Callable[[MemoryFs, Callable[[], bool]], Fs] | None = None,
    ) -> None:
        self.workload, self.flush, self.limit, self.second = workload, flush, limit, second
        self.outcome = Outcome(f"{workload.name}, flush={flush}")
        self._wrap = wrap or (lambda disk, begun: disk)
        self._begun = False
        self._judged: dict[bytes, None] = {}
        self._books: dict[PartitionId, Known] = {}

    def run(self) -> Outcome:
        """Raises Broken with the workload, the moment and the reason."""
        disk = MemoryFs()
        layer = FaultyFs(self._wrap(disk, lambda: self._begun))
        session = Session(layer, self.workload, self.flush)
        where = ""

        def before(operation: str, path: str) -> None:
            self._cut(disk, session.ledger, f"{where}, before {operation} of {path}")

        layer.before = before
        self._begun = True
        for step in self.workload.steps:
            where = f"in {step!r}"
            session.do(step)
            self._cut(disk, session.ledger, f"after {step!r}")
        with suppress(Exception):
            session.directory.close(clean=False)
        return self.outcome

    def _cut(self, disk: MemoryFs, ledger: Ledger, moment: str) -> None:
        outcome, books = self.outcome, ledger.known()
        if books != self._books:  # other things are demanded now: what was judged before is judged again
            self._books = books
            self._judged.clear()
        states = crash_states(disk, limit=self.limit)
        outcome.moments += 1
        outcome.possible += states.possible
        outcome.sampled += not states.exhaustive
        for state in states:
            fingerprint = state.fingerprint
            key = fingerprint + bytes((ledger.must_be_clean, ledger.may_be_clean))
            if key in self._judged:
                continue
            self._judged[key] = None
            outcome.states.add(fingerprint)
            outcome.recovered += 1
            try:
                operations = self._recover(state, ledger, books)
                if int.from_bytes(fingerprint[:4], "big") % self.second == 0:
                    self._crash_in_recovery(state, ledger, books, operations)
                    self._go_on_and_crash(state)
            except Exception as problem:
                files = ", ".join(f"{path} {len(data)}" for path, data in state.files.items())
                raise Broken(f"{outcome.name}: power cut {moment}: {problem!r}; on the disk: {files}") from problem

    def _recover(self, state: DiskState, ledger: Ledger, books: dict[PartitionId, Known]) -> int:
        """Recover from one state, twice; returns how many operations the first time took."""
        disk = state.disk()
        layer = FaultyFs(disk)
        found, loss = _open_and_judge(layer, ledger, books)
        count = len(layer.operations)
        bytes_left = disk.snapshot(f"{FOLDER}/logs")
        disk.kill()
        directory = FileLogDirectory(FOLDER, fs=disk, limits=LIMITS)
        if disk.snapshot(f"{FOLDER}/logs") != bytes_left:
            raise Broken("a second recovery leaves other bytes")
        if directory.loss.lossy != loss.lossy:
            raise Broken(f"{directory.loss} was reported the second time, {loss} the first")
        for identity in directory.identities():
            log = directory.get(identity)
            assert log is not None
            if content_of(log) != found[identity]:
                raise Broken(f"a second recovery finds {log!r}, the first found {found[identity]}")
            _append_one(log, found[identity])
        directory.close(clean=False)
        return count

    def _crash_in_recovery(self, state: DiskState, ledger: Ledger, books: dict[PartitionId, Known], operations: int) -> None:
        for crash_after in range(operations):
            for choose in (keep_none, keep_all, some(crash_after)):
                disk = state.disk()
                with suppress(CrashedError):
                    FileLogDirectory(FOLDER, fs=FaultyFs(disk, crash_after=crash_after), limits=LIMITS)
                disk.cut_power(choose)
                self.outcome.second_crashes += 1
                _open_and_judge(disk, ledger, books, crashed_again=True)

    def _go_on_and_crash(self, state: DiskState) -> None:
        """What recovery has cut must not come back behind what is appended then, not even in the same epoch."""
        disk = state.disk()
        directory = FileLogDirectory(FOLDER, fs=disk, limits=LIMITS)
        wholes: dict[PartitionId, Content] = {}
        for identity in directory.identities():
            log = directory.get(identity)
            assert log is not None
            whole = content_of(log)
            for length in (512, 300):
                batch = batch_of_length(length, f"later {length}")
                batch.stamp(identity, log.end_offset, max(log.last_epoch, 0))
                log.append(batch)
                whole = Content(whole.start, (*whole.batches, Stored(batch.base_offset, batch.end_offset, batch.to_bytes())))
            wholes[identity] = whole
        for later in crash_states(disk, limit=_GO_ON_STATES):
            self.outcome.second_crashes += 1
            found = FileLogDirectory(FOLDER, fs=later.disk(), limits=LIMITS)
            for identity, whole in wholes.items():
                again = found.get(identity)
                if again is None:
                    raise Broken(f"log {identity!r} is not there after another crash")
                if not _is_part(content := content_of(again), whole):
                    raise Broken(f"appended to after recovery and crashed again, it holds {_shape(content)}, no part of {_shape(whole)}")
            found.close(clean=False)
        directory.close(clean=False)


def _open_and_judge(
    fs: Fs, ledger: Ledger, books: dict[PartitionId, Known], *, crashed_again: bool = False
) -> tuple[dict[PartitionId, Content], LossReport]:
    """Open a directory, judge all of it, and leave it as a killed process does."""
    directory = FileLogDirectory(FOLDER, fs=fs, limits=LIMITS)
    loss = directory.loss
    if loss.kind == "corrupt" or any(one.corrupt for one in directory.recovered.values()):
        raise Broken(f"called corrupt, and nothing is: {directory.recovered}")
    if ledger.must_be_clean and not crashed_again and loss.kind != "none":
        raise Broken(f"a clean stop was reported as {loss}")
    if not ledger.may_be_clean and loss.kind != "power":
        raise Broken(f"a power cut was reported as {loss}")
    found: dict[PartitionId, Content] = {}
    for identity, known in books.items():
        log = directory.get(identity)
        if log is None:
            if known.must_exist:
                raise Broken(f"log {identity!r} is not there")
            continue
        if not known.may_exist:
            raise Broken(f"log {identity!r} was deleted and is there")
        content = found[identity] = content_of(log)
        _judge(log, content, known)
        if loss.kind == "none" and content.end != known.end:
            raise Broken(f"nothing was lost, it is said, and {_shape(content)} is there, not all up to {known.end}")
        if content.end < known.counted_end and identity not in loss.lossy:
            raise Broken(f"{identity!r} ends at {content.end}, {known.counted_end} has counted, and that is not reported: {loss}")
        if loss.kind == "power" and log.config.flush != "ack" and identity not in loss.lossy:
            raise Broken(f"{identity!r} may have lost its unflushed end, and is not reported: {loss}")
    directory.close(clean=False)
    return found, loss


def _judge(log: FileLog, content: Content, known: Known) -> None:
    """What one recovered log holds, against what it may and must."""
    if not any(_is_part(content, one) for one in known.contents):
        raise Broken(f"{log!r} holds what it never held: {_shape(content)}, but not a part of {[_shape(c) for c in known.contents]}")
    if log.end_offset != content.end or content.start > known.starts_max:
        raise Broken(f"{log!r} holds {_shape(content)}; nobody asked for a start beyond {known.starts_max}")
    there = set(content.batches)
    missing = [batch.base for batch in known.promised if batch not in there]
    if missing:
        raise Broken(f"{log!r} has lost what was flushed, at offsets {missing}")
    if not content.start <= log.flushed_end <= log.end_offset:
        raise Broken(f"{log!r} is flushed to {log.flushed_end}")
    if log.end_offset < known.flushed_end:
        raise Broken(f"{log!r} ends below {known.flushed_end}, up to where it was flushed, as it said")
    epochs: list[tuple[int, int]] = []
    for batch in content.batches:
        epoch = RecordBatch.parse(batch.data).leader_epoch
        if not epochs or epochs[-1][0] != epoch:
            epochs.append((epoch, batch.base))
    table = [tuple(entry) for entry in log.epochs.entries()]
    if table != epochs and (content.batches or len(table) != 1 or table[0][1] != content.start):  # all was trimmed: its epoch stays
        raise Broken(f"{log!r} has the epochs {log.epochs!r}, its records {epochs}")


def _is_part(content: Content, whole: Content) -> bool:
    """Whether this is `whole` up to some batch, perhaps without its first ones."""
    if not content.batches:
        return True
    return content.batches == tuple(b for b in whole.batches if content.start <= b.base and b.end <= content.end)


def _shape(content: Content) -> str:
    """A content in few words: (epoch, base offset, bytes) of each batch."""
    parts = [RecordBatch.parse(batch.data) for batch in content.batches]
    return f"[{content.start}: " + ", ".join(f"e{part.leader_epoch} at {part.base_offset}, {part.length} B" for part in parts) + "]"


def _append_one(log: FileLog, before: Content) -> None:
    """It is a log like any other."""
    batch = batch_of_length(300, "after the crash")
    batch.stamp(log.identity, log.end_offset, 90)
    log.append(batch)
    after = content_of(log)
    if after.batches[:-1] != before.batches or after.end != before.end + 1:
        raise Broken(f"{log!r} took a batch and is now {_shape(after)}")


def try_workload(workload: Workload, *, limit: int, second: int = 50) -> Iterator[Outcome]:
    """With flush="os" and with flush="ack". Raises Broken."""
    for flush in ("os", "ack"):
        yield Trial(workload, flush, limit=limit, second=second).run()
