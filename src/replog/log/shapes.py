"""What each small file of a data directory holds. A checksum does not say: an intact file in the place of another matches its own.

A shape is a type (just that one), a tuple (a list of just these), a list of one shape (a list of any number of those), or a function that
answers whether a value is what it should be.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, Final, get_args

from replog.ports import LossKind

__all__ = ["CATALOGUE", "CHECKPOINT", "CLEAN", "LIFE", "MARKER", "META", "OWNER", "PRODUCERS", "SUMMARY", "Shape", "anything", "fits"]

Shape = Any


def fits(value: object, shape: Shape) -> bool:
    """Whether a value that was unpacked has a shape."""
    if isinstance(shape, type):
        return type(value) is shape
    if isinstance(shape, tuple):
        if not isinstance(value, list) or len(value) != len(shape):
            return False
        # Most shapes are types: no call for them.
        return all(type(cell) is one or fits(cell, one) for cell, one in zip(value, shape, strict=True))
    if isinstance(shape, list):
        return isinstance(value, list) and _all_fit(value, shape[0])
    return bool(shape(value))


def _all_fit(rows: list[Any], shape: Shape) -> bool:
    if isinstance(shape, tuple) and all(one is int for one in shape):  # most there are: all cells at once
        return set(map(type, rows)) <= {list} and set(map(len, rows)) <= {len(shape)} and set(map(type, chain(*rows))) <= {int}
    return all(fits(row, shape) for row in rows)


def either(*shapes: Shape) -> Callable[[object], bool]:
    """One of these."""
    return lambda value: any(fits(value, shape) for shape in shapes)


def anything(value: object) -> bool:
    """Whoever reads it looks for himself."""
    return True


def _just(number: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and value == number


def _id(value: object) -> bool:
    return type(value) is bytes and len(value) == 16


def _u32(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 32


def _producers(value: object) -> bool:
    """(id, epoch, whether all is known, at least one batch) of each: all at once, there may be ten thousand."""
    if not isinstance(value, list) or not (set(map(type, value)) <= {list} and set(map(len, value)) <= {4}):
        return False
    ids, epochs, wholes, recent = zip(*value, strict=True) if value else ((), (), (), ())
    cells = set(map(type, chain(ids, epochs))) <= {int} and set(map(type, wholes)) <= {bool} and set(map(type, recent)) <= {list}
    return cells and all(recent) and fits([*chain(*recent)], [(int, int, int, int, int)])


def _gone(value: object) -> bool:
    """Those that had to go, each behind the offset at which it did."""
    if not isinstance(value, list) or not set(map(type, value)) <= {list}:
        return False
    return {type(cell) for row in value for cell in row[:1]} <= {int} and _producers([row[1:] for row in value])


def _meta(value: object) -> bool:
    return isinstance(value, dict) and type(value.get("format")) is int and type(value.get("directory_id")) is str


def _index(value: object) -> bool:
    """Three columns of as many numbers of 8 bytes."""
    return fits(value, (bytes, bytes, bytes)) and isinstance(value, list) and len({len(column) for column in value}) == 1


def _config(value: object) -> bool:
    """Its keys and values are judged by `TopicConfig`."""
    cells = {bool, int, float, str, type(None)}
    return isinstance(value, dict) and set(map(type, value)) <= {str} and set(map(type, value.values())) <= cells


_LOG: Final = (_id, _u32, _u32)
_EPOCHS: Final = [(int, int)]

META: Final[Shape] = _meta
LIFE: Final[Shape] = (str, get_args(LossKind).__contains__, [_LOG], bool, [str], str)
CHECKPOINT: Final[Shape] = [(*_LOG, int, int, int)]
PRODUCERS: Final[Shape] = either(
    (bool, _producers, _producers),  # nobody had to go
    (bool, _producers, _producers, _gone),
)
"""What a log remembers of its writers: a part of others."""
CLEAN: Final[Shape] = (int, [(*_LOG, (int, int, [(int, int, int, int, int)], _EPOCHS, PRODUCERS))])
MARKER: Final[Shape] = (int, int, bool)
SUMMARY: Final[Shape] = (int, int, int, int, _index, _EPOCHS, PRODUCERS)
OWNER: Final[Shape] = (int, str)
CATALOGUE: Final[Shape] = [
    either(
        (_just(0), *_LOG, str, _config),
        (_just(1), *_LOG, int),
        (_just(2), *_LOG),
    )
]
"""One entry: changes, of which the first item says what they are."""
