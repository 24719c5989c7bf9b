"""Whether a history that a program has recorded holds what a history consists of: else its judgement would speak of something else."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from replog.testing.history.events import BadHistory, Poll, Send

__all__ = ["check_shape"]


def check_shape(sends: Iterable[Send], polls: Iterable[Poll]) -> None:
    """Values are strings or integers, and what was read is pairs of an offset and a value.

    BadHistory names the first call with anything else. Kinds are collected first, which takes little; a call is looked for only if one is
    wrong.
    """
    sends, polls = list(sends), list(polls)
    if not _are_values({*map(type, chain.from_iterable(send.values for send in sends))}):
        for send in sends:
            for value in send.values:
                if not isinstance(value, str | int):
                    raise BadHistory(f"{send.process} sends {value!r} to {send.key} {send.span()}; a value is a string or an integer")
    try:
        pairs = {(type(offset), type(value)) for offset, value in chain.from_iterable(poll.records for poll in polls)}
    except (TypeError, ValueError):
        raise _bad_poll(polls) from None
    if not all(issubclass(offset, int) for offset, _ in pairs) or not _are_values(value for _, value in pairs):
        raise _bad_poll(polls)


def _are_values(kinds: Iterable[type]) -> bool:
    return all(issubclass(kind, str | int) for kind in kinds)


def _bad_poll(polls: Iterable[Poll]) -> BadHistory:
    for poll in polls:
        for one in poll.records:
            where = f"{poll.process} reads {one!r} from {poll.key} {poll.span()}"
            try:
                offset, value = one
            except (TypeError, ValueError):
                return BadHistory(f"{where}; what is read is pairs of an offset and a value")
            if not isinstance(offset, int) or not isinstance(value, str | int):
                return BadHistory(f"{where}; an offset is an integer, and a value a string or an integer (`Record.text()` is one)")
    raise AssertionError("every pair is one")
