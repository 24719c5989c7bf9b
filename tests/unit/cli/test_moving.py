"""How far moves are, as one line: a bar in place on a terminal, plain lines elsewhere, until nothing is left."""

from __future__ import annotations

import argparse
import io
import json
import os
from typing import Any

import pytest

from replog.cli import moving
from replog.cli.context import Context
from replog.cli.moving import Tally, bar, watch
from replog.cli.output import Output, OutputClosed, quieten
from replog.client.reassigning import Reassignment, ReplicaProgress


def move(number: int, behind: int | None = None, end: int | None = 100, adding: tuple[int, ...] = (4,)) -> Reassignment:
    """One that moves, so many offsets behind; None: nobody says it."""
    progress = tuple(ReplicaProgress(b, None, behind, None if behind is None else behind * 10) for b in adding)
    return Reassignment("t", number, "moving", (1, 2, 4), adding, (3,), (1, 2, 3), (1, 2, 4), (1, 2, 3), 1, end, progress)


def queued(number: int) -> Reassignment:
    return Reassignment("t", number, "queued", (1, 2, 3), (), (), (), (1, 2, 4), (1, 2, 3), 1)


def test_what_has_been_seen_counts_until_the_end() -> None:
    tally = Tally()
    assert tally.line([move(0, 50), move(1, 100), queued(2), queued(3)]) == (
        "12 %: 0 of 4 done, 2 moving, 2 queued; 150 offsets, 1500 bytes to copy"
    )
    assert tally.line([move(1, 0), queued(2), move(4, None)]) == "60 %: 2 of 5 done, 2 moving, 1 queued; 0 offsets, 0 bytes to copy"
    assert tally.line([move(1, None)]) == "80 %: 4 of 5 done, 1 moving, 0 queued"
    assert tally.line([]) == "100 %: 5 of 5 done, 0 moving, 0 queued"


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (move(0, 25), (0.75, 25, 250)),
        (move(0, 25, adding=(4, 5)), (0.75, 50, 500)),
        (move(0, 0, end=0), (1.0, 0, 0)),
        (move(0, 300), (0.0, 300, 3_000)),  # of records that have been deleted since
        (move(0, None), None),
        (move(0, 1, end=None), None),
        (move(0, adding=()), None),
        (queued(0), None),
    ],
)
def test_what_is_missing(one: Reassignment, expected: tuple[float, int, int] | None) -> None:
    assert moving.missing(one) == expected


@pytest.mark.parametrize(("width", "long"), [(20, 10), (80, 39), (200, 60)])
def test_the_bar_takes_what_the_words_leave(width: int, long: int) -> None:
    line = Tally().line([move(0), move(1), queued(2)], width)
    assert line == f"{bar(0, long)}  0 of 3 done, 2 moving, 1 queued"
    assert long == 10 or len(line) <= width


class Asked:
    """A client, as far as a watch needs one: what there is to see, look by look."""

    def __init__(self, *looks: list[Reassignment]) -> None:
        self.looks = list(looks)

    def reassignments(self, timeout_s: float | None) -> list[Reassignment]:
        return self.looks.pop(0) if self.looks else []


def watched(client: Any, monkeypatch: pytest.MonkeyPatch, **output: Any) -> str:
    monkeypatch.setattr(moving, "_LOOK_S", 0)
    monkeypatch.setenv("COLUMNS", "61")
    stdout = io.BytesIO()
    watch(Context(argparse.Namespace(timeout=1.0), Output(stdout, io.StringIO(), **output), io.BytesIO()), client)
    return stdout.getvalue().decode()


def test_a_terminal_has_one_line_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = watched(Asked([move(0, 50), queued(1)], [move(1, 0)]), monkeypatch, pretty=True)
    *looks, end, rest = shown.split("\n")
    assert (end, rest) == ("nothing is being reassigned", "")
    empty, *lines = "".join(looks).split("\r")
    assert empty == ""
    assert lines == [
        "[##........]  25 %  0 of 2 done, 1 moving, 1 queued; 50 offs",
        "[##########] 100 %  1 of 2 done, 1 moving, 0 queued; 0 offse",
        "[###################] 100 %  2 of 2 done, 0 moving, 0 queued",
    ]


def test_elsewhere_a_line_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = watched(Asked([move(0, 50)], [move(0, 50)], [move(0, 0)]), monkeypatch)
    assert shown.splitlines() == [
        "50 %: 0 of 1 done, 1 moving, 0 queued; 50 offsets, 500 bytes to copy",
        "100 %: 0 of 1 done, 1 moving, 0 queued; 0 offsets, 0 bytes to copy",
        "nothing is being reassigned",
    ]


def test_programs_get_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = watched(Asked([move(0, 50)], [move(0, 50)]), monkeypatch, format="json", pretty=True)
    looks = [[one["partition"] for one in json.loads(line)] for line in shown.splitlines()]
    assert looks == [[0], [0], []], "the last one says that nothing is left"


@pytest.mark.parametrize("looks", [[], [[move(0)]]])
def test_whoever_interrupts_goes_on_below_the_line(looks: list[list[Reassignment]], monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Asked):
        def reassignments(self, timeout_s: float | None) -> list[Reassignment]:
            if not self.looks:
                raise KeyboardInterrupt
            return super().reassignments(timeout_s)

    stdout = io.BytesIO()
    monkeypatch.setattr(moving, "_LOOK_S", 0)
    context: Any = Context(argparse.Namespace(timeout=1.0), Output(stdout, io.StringIO(), pretty=True), io.BytesIO())
    with pytest.raises(KeyboardInterrupt):
        watch(context, Interrupted(*looks))  # type: ignore[arg-type]
    assert stdout.getvalue().count(b"\n") == len(looks)


@pytest.mark.parametrize("output", [{}, {"format": "json"}, {"pretty": True}])
def test_it_ends_when_its_reader_has_gone(output: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while a move stands still, of which plain lines have nothing to say."""
    near, far = os.pipe()

    class Left(Asked):
        def reassignments(self, timeout_s: float | None) -> list[Reassignment]:
            if len(self.looks) == 1:
                os.close(near)
            assert self.looks, "it has looked on"
            return super().reassignments(timeout_s)

    monkeypatch.setattr(moving, "_LOOK_S", 0)
    with open(far, "wb") as stdout:
        context = Context(argparse.Namespace(timeout=1.0), Output(stdout, io.StringIO(), **output), io.BytesIO())
        with pytest.raises(OutputClosed):
            watch(context, Left([move(0, 50)], [move(0, 50)]))  # type: ignore[arg-type]
        quieten(stdout)
