"""How far moves are, all of them together, as one line: a bar in place on a terminal, plain lines where no terminal is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from replog.cli.context import Context
from replog.client.client import Client
from replog.client.reassigning import Reassignment

__all__ = ["NOTHING", "Tally", "bar", "missing", "watch"]

NOTHING: Final = "nothing is being reassigned"
_LOOK_S: Final = 1.0
"""Between two looks, unless the command says otherwise."""
_WIDTH: Final = 20
_WIDTHS: Final = (10, 60)
"""The shortest and the longest bar."""


class Tally:
    """What has been seen to move, from the first look on: who is not seen any more is done, or was taken back."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, int]] = set()

    def line(self, found: Sequence[Reassignment], width: int | None = None) -> str:
        """Where it stands, in `width` columns: the bar takes what the words leave; None: without a bar."""
        here = {(one.topic, one.partition) for one in found}
        self._seen |= here
        total, moving = len(self._seen), sum(one.status == "moving" for one in found)
        behind = [lacks for one in found if (lacks := missing(one)) is not None]
        share = (total - len(here) + sum(share for share, _, _ in behind)) / total if total else 1.0
        words = f"{total - len(here)} of {total} done, {moving} moving, {len(found) - moving} queued"
        if behind:
            words += f"; {sum(offsets for _, offsets, _ in behind)} offsets, {sum(size for _, _, size in behind)} bytes to copy"
        if width is None:
            return f"{int(share * 100)} %: {words}"
        shortest, longest = _WIDTHS
        room = width - len(words) - len(bar(0, 0)) - 2
        return f"{bar(share, max(shortest, min(longest, room)))}  {words}"


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
    output, tally, last = context.output, Tally(), ""
    try:
        while found := client.reassignments(timeout_s=context.timeout_s):
            if output.is_json:
                output.json([one.to_dict() for one in found])
            elif output.pretty:
                output.live(tally.line(found, output.width))
            elif last != (last := tally.line(found)):
                output.line(last)
            output.flush()
            output.rest(_LOOK_S if every_s is None else every_s)
        if output.is_live:
            output.live(tally.line([], output.width))
    finally:
        output.end_live()
    if output.is_json:
        output.json([])
    else:
        output.line(NOTHING)
