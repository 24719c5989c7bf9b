"""How far moves are, all of them together, as one line: a bar in place on a terminal, plain lines where no terminal is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from replog.cli.context import Context
from replog.cli.pace import Pace
from replog.cli.units import Units
from replog.client.client import Client
from replog.client.reassigning import Reassignment

__all__ = ["NOTHING", "Tally", "bar", "missing", "watch"]

NOTHING: Final = "nothing is being reassigned"
_LOOK_S: Final = 1.0
"""Between two looks, unless the command says otherwise."""
_WIDTH: Final = 20
_WIDTHS: Final = (10, 60)
"""The shortest and the longest bar."""


_OFFSETS, _COUNTS, _DONE, _RATE, _TIME, _BYTES = range(1, 7)
"""What is said, the least important first: that is left out where a line is too short."""


class Tally:
    """What has been seen to move, from the first look on: who is not seen any more is done, or was taken back."""

    def __init__(self, units: Units | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` says in seconds when a look was taken."""
        self._units = units or Units()
        self._clock = clock
        self._seen: set[tuple[str, int]] = set()
        self._pace = Pace()
        self._share = 1.0
        self._state: list[tuple[int, str]] = []
        self._copy: list[tuple[int, str]] = []

    def look(self, found: Sequence[Reassignment]) -> str:
        """Take in what there is to see now. Returns what it comes to, rate and time left out: as long as that is the same, nothing has
        happened."""
        here = {(one.topic, one.partition) for one in found}
        self._seen |= here
        total, moving = len(self._seen), sum(one.status == "moving" for one in found)
        behind = {(one.topic, one.partition): lacks for one in found if (lacks := missing(one)) is not None}
        self._share = (total - len(here) + sum(share for share, _, _ in behind.values())) / total if total else 1.0
        self._state = [(_DONE, f"{total - len(here)} of {total} done"), (_COUNTS, f"{moving} moving, {len(found) - moving} queued")]
        back = {(one.topic, one.partition) for one in found if one.returning}  # what these lack nobody will copy
        lacking = {place: lacks for place, lacks in behind.items() if place not in back}
        left = sum(size for _, _, size in lacking.values())
        offsets = sum(offsets for _, offsets, _ in lacking.values())
        self._copy = [(_OFFSETS, f"{offsets} offsets"), (_BYTES, f"{self._units.sized(left)} to copy")] if lacking else []
        told = f"{int(self._share * 100)} %: {_joined([self._state, self._copy])}"
        self._pace.look(self._clock(), {place: lacks[2] for place, lacks in lacking.items()}, here - back)
        rate = self._pace.rate
        if lacking and rate is not None:
            self._copy.append((_RATE, f"{self._units.sized(rate)}/s"))
            if rate and left and len(lacking) == len(found):  # of all that is left it is known how much that is
                self._copy.append((_TIME, f"{self._units.time(math.ceil(left / rate))} left"))
        return told

    def line(self, width: int | None = None) -> str:
        """Where it stood at the last look, in `width` columns: what is least important is left out until the shortest bar has room, and the
        bar takes what the words leave. None: all words, and no bar."""
        if width is None:
            return f"{int(self._share * 100)} %: {_joined([self._state, self._copy])}"
        shortest, longest = _WIDTHS
        room = width - len(bar(0, 0)) - 2
        texts = [text for least in range(_OFFSETS, _BYTES + 1) if (text := _joined([self._state, self._copy], least))]
        words = next((text for text in texts if len(text) <= room - shortest), texts[-1] if texts else "")
        return f"{bar(self._share, max(shortest, min(longest, room - len(words))))}  {words}"


def _joined(groups: Sequence[Sequence[tuple[int, str]]], least: int = 0) -> str:
    """The words that are at least so important."""
    return "; ".join(filter(None, (", ".join(text for weight, text in group if weight >= least) for group in groups)))


def missing(one: Reassignment) -> tuple[float, int, int] | None:
    """(the share of the move that is done, the offsets and the bytes that are missing); None where no leader says it."""
    known = [(p.offsets_behind, p.bytes_behind or 0) for p in one.progress if p.offsets_behind is not None]
    if one.end_offset is None or len(known) < len(one.progress) or not known:
        return None
    behind, total = sum(offsets for offsets, _ in known), one.end_offset * len(known)
    return 1.0 if total == 0 else 1 - min(behind, total) / total, behind, sum(size for _, size in known)


def bar(share: float, width: int = _WIDTH) -> str:
    """A bar of text, full at 1."""
    full = int(share * width)
    return f"[{'#' * full}{'.' * (width - full)}] {int(share * 100):3} %"


def watch(context: Context, client: Client, every_s: float | None = None) -> None:
    """Show it again and again, until nothing is left: JSON each time, the last one empty, or a line whenever it is another."""
    output, tally, last = context.output, Tally(context.output.units), ""
    try:
        while found := client.reassignments(timeout_s=context.timeout_s):
            told = tally.look(found)
            if output.is_json:
                output.json([one.to_dict() for one in found])
            elif output.pretty:
                output.live(tally.line(output.width))
            elif last != (last := told):
                output.line(tally.line())
            output.flush()
            output.rest(_LOOK_S if every_s is None else every_s)
        if output.is_live:
            tally.look([])
            output.live(tally.line(output.width))
    finally:
        output.end_live()
    if output.is_json:
        output.json([])
    else:
        output.line(NOTHING)
