"""Scenarios: small plays about brokers, written as transcripts (see `stage` and `cluster` for the commands).

A file holds comments that tell the story, commands after `> `, and under each command what is seen. A command `brokers` or
`cluster` begins anew, so one file may hold several cases.

>>> print(replay_scenario('''> brokers A B
... > state leader=A epoch=1 isr=A,B
... > append A m0
... > run
... '''), end="")
> brokers A B
> state leader=A epoch=1 isr=A,B
A leads epoch 1
B follows A in epoch 1
> append A m0
> run
A: HW 1
m0 acknowledged at 0
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from replog.errors import UsageError
from replog.testing.scenario.cluster import ClusterStage
from replog.testing.scenario.disks import Disks, MemoryDisks
from replog.testing.scenario.play import Play
from replog.testing.scenario.stage import Stage
from replog.testing.scenario.transcript import difference, replay

__all__ = ["check_file", "replay_scenario"]

_BEGINNINGS: dict[str, Callable[[Disks], Play]] = {"brokers": Stage, "cluster": ClusterStage}


def replay_scenario(text: str, disks: Callable[[], Disks] = MemoryDisks) -> str:
    """The file `text` with the transcripts as they are now; each case has `disks()` of its own."""
    play: list[Play] = []

    def perform(command: str) -> list[str]:
        begins = _BEGINNINGS.get(command.split(maxsplit=1)[0]) if command.strip() else None
        if begins is not None:
            play[:] = [begins(disks())]
        if not play:
            raise UsageError(f"a scenario begins with one of {', '.join(_BEGINNINGS)}")
        return play[0].perform(command)

    return replay(text, perform)


def check_file(path: Path, *, disks: Callable[[], Disks] = MemoryDisks, rewrite: bool = False) -> str:
    """What differs between a scenario file and what is seen now; empty if nothing does. `rewrite` accepts what is seen."""
    expected = path.read_text(encoding="utf-8")
    seen = replay_scenario(expected, disks)
    if rewrite and seen != expected:
        path.write_text(seen, encoding="utf-8")
        return ""
    return difference(path.name, expected, seen)
