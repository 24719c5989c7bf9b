"""A batch on its way: first a growing list of records, then a body that never changes, in the end an outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Literal

from replog.client.view import Place, View
from replog.model import Address
from replog.payload import Headers
from replog.records import encode_values, with_producer

__all__ = ["Batch", "afresh"]

Cell = bytes | str | None


class Batch:
    """Records for one partition that are stored together or not at all, and what became of them.

    `sequence` is -1 until the batch is first sent. From then on it is bound to its epoch and sequence: a second copy under
    other numbers could be stored beside the first (KIP-98). `uncertain` says that some copy went out and nobody knows
    what became of it.
    """

    is_read = False
    """See `Operation.is_read`."""
    __slots__ = (
        "at_large",
        "base_offset",
        "body",
        "callbacks",
        "count",
        "deadline_ms",
        "done",
        "epoch",
        "error",
        "flying",
        "forgotten",
        "keys",
        "last_code",
        "led",
        "linger_at",
        "opened_ms",
        "ordinal",
        "queue",
        "rare",
        "request",
        "sent_ms",
        "sequence",
        "size",
        "uncertain",
        "values",
        "wall_ms",
        "went_to",
    )

    def __init__(self, queue: Any, now_ms: int, wall_ms: int, linger_ms: int, timeout_ms: int) -> None:
        self.queue = queue
        self.values: list[Cell] = []
        self.keys: list[Cell] | None = None
        """None while no record has a key."""
        self.rare: tuple[list[Headers | None], list[int | None]] | None = None
        """Headers and timestamps, by index; None while no record has any."""
        self.count = 0
        """Set when the batch is sealed."""
        self.size = 0
        self.opened_ms = now_ms
        self.wall_ms = wall_ms
        self.linger_at = now_ms + linger_ms
        self.deadline_ms = now_ms + timeout_ms
        self.body: bytes | None = None
        self.epoch = -1
        self.sequence = -1
        self.ordinal = -1
        """Counts the batches of a queue that were given a sequence."""
        self.request = -1
        self.flying: Place | None = None
        """Where the partition was led by the broker that has the batch now; None: it is not under way."""
        self.sent_ms = -1
        self.went_to: Address | None = None
        """Under acks=0: the broker that it was sent to, which was its outcome."""
        self.led = False
        """Whether everything before it was settled when it was last sent."""
        self.uncertain = False
        self.at_large = False
        """Whether such a copy was sent with nothing unsettled before it. Any other copy is stored only if what was before it is."""
        self.last_code = 0
        self.done = False
        self.base_offset: int | None = None
        self.error: BaseException | None = None
        """Never raised itself: see `afresh`."""
        self.forgotten = -1
        """Among which of its writer's failures it was counted instead of kept; -1: among none."""
        self.callbacks: list[Callable[[], object]] | None = None

    def add(self, value: Cell, key: Cell = None, headers: Headers | None = None, timestamp_ms: int | None = None) -> int:
        """Append a record whose parts were checked; returns its index. The caller counts its size."""
        index = len(self.values)
        self.values.append(value)
        if key is not None and self.keys is None:
            self.keys = [None] * index
        if self.keys is not None:
            self.keys.append(key)
        if headers or timestamp_ms is not None or self.rare is not None:
            self._add_rare(index, headers, timestamp_ms)
        return index

    def add_many(self, values: Sequence[Cell], keys: Sequence[Cell] | None) -> int:
        """Append many records without headers or times; returns the index of the first."""
        index = len(self.values)
        self.values += values
        if keys is not None and self.keys is None:
            self.keys = [None] * index
        if self.keys is not None:
            self.keys += keys if keys is not None else [None] * len(values)
        if self.rare is not None:
            self.rare[0].extend([None] * len(values))
            self.rare[1].extend([None] * len(values))
        return index

    def _add_rare(self, index: int, headers: Headers | None, timestamp_ms: int | None) -> None:
        if self.rare is None:
            self.rare = ([None] * index, [None] * index)
        self.rare[0].append(headers)
        self.rare[1].append(timestamp_ms)

    def timestamp_of(self, index: int) -> int:
        """The time that the record at `index` carries."""
        given = self.rare[1][index] if self.rare is not None else None
        return self.wall_ms if given is None else given

    def seal(self) -> None:
        """No more records: the count is known, the producer's sequences can be given out."""
        self.count = len(self.values)

    def drop_records(self) -> None:
        """They are needed no more, nor counted. What stays are the times that were given, for whoever asks later."""
        self.values, self.keys, self.body = [], None, None
        if self.rare is not None:
            self.rare = [], self.rare[1]

    def doubt(self) -> None:
        """Nobody knows what became of the copy that was sent last."""
        self.uncertain = True
        self.at_large = self.at_large or self.led

    @property
    def address(self) -> Address:
        """Who has it now; None: nobody."""
        return None if self.flying is None else self.flying.leader

    def has_moved(self, view: View) -> bool:
        """Whether somebody else leads, as the view has it, than whoever has the batch."""
        return self.flying is not None and view.has_moved(self.queue.topic, self.queue.partition, self.flying)

    def encode(self, *, compression: Literal["lz4"] | None, producer_id: int, epoch: int, sequence: int) -> None:
        """Make the body, once; later numbers are written over the old ones."""
        if self.body is not None:
            if (epoch, sequence) != (self.epoch, self.sequence):
                self.body = with_producer(self.body, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        else:
            self.body = encode_values(
                self.values,
                now_ms=self.wall_ms,
                keys=self.keys,
                headers=self.rare[0] if self.rare is not None else None,
                timestamps_ms=self.rare[1] if self.rare is not None else None,
                checked=True,
                compression=compression,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            self.values, self.keys = [], None
        self.epoch, self.sequence = epoch, sequence


def afresh(error: BaseException) -> BaseException:
    """The same error once more, to be raised: the records of a batch share one, and the batches of a producer that is interrupted.

    An exception gathers the frames that it passes, and with each what that holds. One that is raised again and again would keep
    everything that anybody had in hand then, and whoever handles it would see where another thread has raised it meanwhile.
    """
    return deepcopy(error)
