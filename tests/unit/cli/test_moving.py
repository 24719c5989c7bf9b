"""How far moves are, as one line: a bar in place on a terminal, plain lines elsewhere, until nothing is left."""

from __future__ import annotations

import argparse
import io
import json
import os
from typing import Any

import pytest
from attrs import evolve
from tests.unit.cli.conftest import run_with

from replog.cli import moving
from replog.cli.context import Context
from replog.cli.moving import Tally, bar, watch
from replog.cli.output import Output, OutputClosed, quieten
from replog.cli.units import Units
from replog.client.reassigning import Reassignment, ReplicaProgress


def move(number: int, behind: int | None = None, end: int | None = 100, adding: tuple[int, ...] = (4,)) -> Reassignment:
    """One that moves, so many offsets behind; None: nobody says it."""
    progress = tuple(ReplicaProgress(b, None, behind, None if behind is None else behind * 10) for b in adding)
    return Reassignment("t", number, "moving", (1, 2, 4), adding, (3,), (1, 2, 3), (1, 2, 4), (1, 2, 3), 1, end, progress)


def queued(number: int) -> Reassignment:
    return Reassignment("t", number, "queued", (1, 2, 3), (), (), (), (1, 2, 4), (1, 2, 3), 1)


def test_what_has_been_seen_counts_until_the_end() -> None:
    tally = Tally()
    assert tally.look([move(0, 50), move(1, 100), queued(2), queued(3)]) == (
        "12 %: 0 of 4 done, 2 moving, 2 queued; 150 offsets, 1.5 KiB to copy"
    )
    assert tally.look([move(1, 0), queued(2), move(4, None)]) == "60 %: 2 of 5 done, 2 moving, 1 queued; 0 offsets, 0 bytes to copy"
    assert tally.look([move(1, None)]) == "80 %: 4 of 5 done, 1 moving, 0 queued"
    assert tally.look([]) == "100 %: 5 of 5 done, 0 moving, 0 queued"


def paced(*looks: tuple[float, list[Reassignment]], units: Units | None = None, width: int | None = None) -> list[str]:
    """What is said of the rate after each look, at these seconds; the whole line in `width` columns."""
    now = [0.0]
    tally = Tally(units, lambda: now[0])
    lines = []
    for now[0], found in looks:
        tally.look(found)
        lines.append(tally.line(width))
    return lines if width else [line.partition(" to copy")[2].removeprefix(", ") for line in lines]


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        pytest.param([(0, [move(0, 100_000)])], [""], id="one look says no rate"),
        pytest.param([(0, [move(0, 100_000)]), (2, [move(0, 59_040)])], ["", "200 KiB/s, 3 s left"], id="two do"),
        pytest.param([(0, [move(0, 500)]), (1, [move(0, 500)])], ["", "0 bytes/s"], id="what stands still never ends"),
        pytest.param([(0, [move(0, 500)]), (1, [move(0, 501)])], ["", ""], id="more is appended than copied"),
        pytest.param([(0, [move(0, 50), move(1, 90)]), (5, [move(1, 40)])], ["", "100 bytes/s, 4 s left"], id="who is gone may be off"),
        pytest.param([(0, [move(0, 90)]), (1, [move(0, 80), queued(1)])], ["", "100 bytes/s"], id="nobody knows how much is queued"),
        pytest.param([(0, [move(0, 90)]), (1, [move(0, 80), move(1)])], ["", "100 bytes/s"], id="a leader that does not say it"),
        pytest.param([(0, [move(0, 90)]), (1, [move(0, 90), move(1, 9_000)])], ["", "0 bytes/s"], id="a new one is not measured yet"),
        pytest.param(
            [(0, [move(0, 90), move(1, 9)]), (1, [move(0, 80), move(1)]), (2, [move(0, 70), move(1, 5)])],
            ["", "100 bytes/s", "120 bytes/s, 7 s left"],
            id="one that was not heard of for a while counts again",
        ),
        pytest.param(
            [(0, [move(0, 90), evolve(move(1, 9_000), returning=True)]), (1, [move(0, 80)])], ["", "100 bytes/s, 8 s left"], id="taken back"
        ),
        pytest.param(
            [(0, [move(0, 90), move(1, 9_000)]), (1, [move(0, 80), evolve(move(1, 9_000), returning=True)]), (2, [move(0, 70)])],
            ["", "100 bytes/s", "100 bytes/s, 7 s left"],
            id="taken back while somebody looks",
        ),
        pytest.param([(0, [move(0, 90)]), (0, [move(0, 80)])], ["", ""], id="no time between two looks"),
        pytest.param([(0, [move(0, 90)]), (1, [move(0, 0)])], ["", "900 bytes/s"], id="nothing is left to copy"),
    ],
)  # fmt: skip
def test_the_rate_is_that_of_the_looks(looks: list[tuple[float, list[Reassignment]]], said: list[str]) -> None:
    assert paced(*looks) == said


def test_nothing_is_said_of_copying_while_no_leader_says_how_much_is_left() -> None:
    now = [0.0]
    tally = Tally(clock=lambda: now[0])
    for now[0], found in ((0, [move(0, 90)]), (1, [move(0, 80)]), (2, [move(0)])):
        tally.look(found)
    assert tally.line() == "0 %: 0 of 1 done, 1 moving, 0 queued"


def test_looks_of_long_ago_do_not_count() -> None:
    fast = [(n, [move(0, 100_000 - 1_000 * n)]) for n in range(10)]
    slow = [(n, [move(0, 91_000 - n)]) for n in range(10, 50)]
    assert paced(*fast, *slow, units=Units(raw=True))[-1] == "10 bytes/s, 90951 s left"
    seldom = [(0, [move(0, 900)]), (3_600, [move(0, 540)])]
    assert paced(*seldom)[-1] == "1 byte/s, 1 h 30 min left", "two looks are always left"


BUSY = [(0, [move(n, 10**9, 2 * 10**9) for n in range(1_200)]), (2, [move(n, 10**9 - 7_654_321, 2 * 10**9) for n in range(200, 1_200)])]


@pytest.mark.parametrize(
    ("width", "words"),
    [
        (160, "200 of 1200 done, 1000 moving, 0 queued; 992345679000 offsets, 9.0 TiB to copy, 35.6 GiB/s, 4 min 20 s left"),
        (110, "200 of 1200 done, 1000 moving, 0 queued; 9.0 TiB to copy, 35.6 GiB/s, 4 min 20 s left"),
        (88, "200 of 1200 done; 9.0 TiB to copy, 35.6 GiB/s, 4 min 20 s left"),
        (70, "9.0 TiB to copy, 35.6 GiB/s, 4 min 20 s left"),
        (57, "9.0 TiB to copy, 4 min 20 s left"),
        (40, "9.0 TiB to copy"),
        (20, "9.0 TiB to copy"),
    ],
)
def test_what_matters_least_is_left_out_first(width: int, words: str) -> None:
    line = paced(*BUSY, width=width)[-1]
    assert line.partition(" %  ")[2] == words
    assert len(line) <= max(width, 20 + len(words))


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


@pytest.mark.parametrize(("width", "long", "rest"), [(20, 10, ""), (80, 39, ", 2 moving, 1 queued"), (200, 60, ", 2 moving, 1 queued")])
def test_the_bar_takes_what_the_words_leave(width: int, long: int, rest: str) -> None:
    tally = Tally()
    tally.look([move(0), move(1), queued(2)])
    line = tally.line(width)
    assert line == f"{bar(0, long)}  0 of 3 done{rest}"
    assert long == 10 or len(line) <= width


@pytest.mark.parametrize(
    ("topic", "columns"),
    [
        ("t", "target adding removing progress offsets bytes"),
        ("customers", "target adding removing progress bytes"),
        ("customers-of-ours", "target adding progress bytes"),
        ("customers-and-what-they-bought", "target progress bytes"),
        ("customers-and-what-they-bought" * 2, "target progress bytes"),
    ],
)
def test_a_table_leaves_out_what_matters_least_as_well(topic: str, columns: str) -> None:
    moves = [evolve(move(n, 90_000, 100_000), topic=topic) for n in (0, 10)]
    client: Any = Asked(moves)
    _, head, *rows = run_with(client, "reassign", "status").lines
    assert head.split() == ["partition", "status", *columns.split()]
    assert all(row.endswith("  879 KiB") for row in rows)
    assert max(map(len, (head, *rows))) < 80 or len(topic) > 40


class Asked:
    """A client, as far as a watch needs one: what there is to see, look by look."""

    def __init__(self, *looks: list[Reassignment]) -> None:
        self.looks = list(looks)

    def reassignments(self, timeout_s: float | None) -> list[Reassignment]:
        return self.looks.pop(0) if self.looks else []


def watched(client: Any, monkeypatch: pytest.MonkeyPatch, **output: Any) -> str:
    monkeypatch.setattr(moving, "_LOOK_S", 0)
    monkeypatch.setenv("COLUMNS", "61")
    monkeypatch.setattr(moving, "Tally", lambda units: Tally(units, lambda: 0.0))  # no time passes, so no rate is known
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
        "[#####...............]  25 %  0 of 2 done; 500 bytes to copy",
        "[######################] 100 %  1 of 2 done; 0 bytes to copy",
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
