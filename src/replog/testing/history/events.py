"""What a history consists of: calls that clients made on partitions of a log, and what came back.

One event per line of JSON: `{time, process, type, f, key, value}`, in the order in which things happened.

- `time`: a finite number, never falling. Only shown to people, except by `merge`, which has nothing else to go by.
- `process`: a string, one sequence of calls. For sends it is one producer: a client with two producers is two processes.
- `type`: `invoke` when a call starts; then at most one of `ok`; `info` (the outcome is not known: every timeout, every error that
  leaves the question open); `fail` (the error proves that nothing was written). A call that never ends counts as `info`.
- `key`: a string, one partition of one *incarnation* of a topic. A topic that is created again is another key; `key_of` makes one
  from name, topic identity and partition. Offsets and values of different keys have nothing to do with each other.
- `op` (optional): a number that joins a call's end to its start. Without it a process has one call at a time.

`value` depends on `f`:

- `send` invoke: a string or an integer, or a list of them: the records of one batch. A value is sent once per key in a history.
  `acks` (optional): `"all"` (if absent), 1 or 0. What an `ok` promises depends on it.
  `ok`: the offset of the first record; null if the client does not know it. With acks 0 or 1 the record may be lost all the same.
- `poll` invoke: the offset asked for; null if the client library kept the position to itself.
  `final` (optional): true for the reads of everything at the end, after faults have stopped; `unseen` is judged by these alone.
  `ok`: a list of `[offset, value]`. `high_watermark` (optional): that of the answer. `epoch` (optional): the leader epoch it came
  from. A later poll of an older epoch was answered by a deposed leader: old is allowed there, wrong is not.
- `assign` ok: the process goes on reading `key` from elsewhere; the next poll need not follow on the last. Its value: the offset, or null.
- `crash` ok: the process lost its positions. No key, no value.
- `trim` ok: the log of `key` may start at offset `value` from now on (retention). Written before it can have happened.
- `control` ok: offset `value` of `key` holds no record: a broker has written something of its own there. Before anybody reads past it.

The first line may instead hold the settings: `{"type": "settings", "idempotent": true, "stale_reads": false}` (see `Settings`). Beside
them, `"clock": false` says that times are numbers of events: such a history cannot be merged. Without it they are taken for a clock's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from attrs import frozen

from replog.errors import ReplogError, UsageError

__all__ = ["NEVER", "Acks", "BadHistory", "Mark", "Outcome", "Poll", "Records", "Send", "Settings", "Value", "key_of"]

Value = str | int
Records = Sequence[tuple[int, Value]]
Acks = Literal["all", 0, 1]
Outcome = Literal["open", "ok", "info", "fail"]

NEVER: Final = 1 << 62
"""The rank of an end that did not come."""


class BadHistory(ReplogError):
    """What was given is no history; the message names the line where there is one."""


@frozen
class Settings:
    """What a whole history is judged by."""

    idempotent: bool = True
    """Producers are idempotent: a record that is there twice is an error (else it is counted), and sends that one process had under way
    together keep their order."""
    stale_reads: bool = False
    """A leader may answer with a high watermark that is behind: a deposed one, or a new one that has yet to learn how far its predecessor
    had come. Watermarks are compared within an epoch only; those without an epoch within a process."""


def key_of(topic: str, identity: bytes | str, partition: int) -> str:
    """The key of a partition; `identity` tells one incarnation of the topic from the next."""
    return f"{topic}@{identity.hex() if isinstance(identity, bytes) else identity}/{partition}"


class _Call:
    """A call of one process. `invoked` and `completed` rank its ends: A was over before B began if A.completed < B.invoked."""

    __slots__ = ("_clock", "_rank", "completed", "ended", "invoked", "key", "outcome", "process", "started")

    def __init__(self, rank: Callable[[], int], clock: Callable[[], float] | None, process: str, key: str) -> None:
        self._rank = rank
        self._clock = clock
        self.process = process
        self.key = key
        self.invoked = rank()
        self.started: float = self.invoked if clock is None else clock()
        self.completed = NEVER
        self.ended: float = NEVER
        self.outcome: Outcome = "open"

    def _end(self, outcome: Outcome) -> None:
        if self.outcome != "open":
            raise UsageError(f"a call of {self.process} on {self.key} has ended before: {self.outcome}, then {outcome}")
        self.outcome = outcome
        self.completed = self._rank()
        self.ended = self.completed if self._clock is None else self._clock()

    def info(self) -> None:
        """It ended, and whether it had an effect is not known."""
        self._end("info")

    def fail(self) -> None:
        """It ended with an error that proves that it had no effect, now or later."""
        self._end("fail")

    def span(self) -> str:
        """When it was, for people."""
        return f"at {self.started:g}" + ("" if self.completed == NEVER else f"-{self.ended:g}")


class Send(_Call):
    """An append of one batch."""

    __slots__ = ("acks", "base_offset", "values")

    def __init__(
        self,
        rank: Callable[[], int],
        clock: Callable[[], float] | None,
        process: str,
        key: str,
        values: Sequence[Value],
        acks: Acks,
    ) -> None:
        super().__init__(rank, clock, process, key)
        self.values = values
        self.acks = acks
        self.base_offset: int | None = None

    def ok(self, base_offset: int | None = None) -> None:
        """It was confirmed, with the offset of its first record if the client was told."""
        self._end("ok")
        self.base_offset = base_offset


class Poll(_Call):
    """A read of some records from a position on."""

    __slots__ = ("epoch", "final", "fresh", "high_watermark", "position", "records")

    def __init__(
        self,
        rank: Callable[[], int],
        clock: Callable[[], float] | None,
        process: str,
        key: str,
        position: int | None,
        final: bool,
        fresh: bool,
    ) -> None:
        super().__init__(rank, clock, process, key)
        self.position = position
        self.final = final
        self.fresh = fresh
        """It need not follow on an earlier poll of this process: there is none, or a crash or an assign came between."""
        self.records: Records = ()
        self.high_watermark: int | None = None
        self.epoch: int | None = None

    def ok(self, records: Records, high_watermark: int | None = None, epoch: int | None = None) -> None:
        """It was answered with `records`, pairs of offset and value."""
        self._end("ok")
        self.records = records
        self.high_watermark = high_watermark
        self.epoch = epoch


class Mark:
    """Something that happened to a process or a partition at one moment: assign, crash, trim or control."""

    __slots__ = ("f", "key", "process", "rank", "time", "value")

    def __init__(
        self,
        rank: int,
        time: float,
        process: str,
        f: Literal["assign", "crash", "trim", "control"],
        key: str = "",
        value: int | None = None,
    ) -> None:
        self.rank = rank
        self.time = time
        self.process = process
        self.f = f
        self.key = key
        self.value = value
