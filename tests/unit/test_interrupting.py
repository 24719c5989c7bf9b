"""Interrupts at every line reach every line: those of finalizers, where they would be lost, are passed over."""

from __future__ import annotations

from collections.abc import Iterator

from tests.interrupts import at_every_line, interrupted_at


class Closing:
    """Closes a generator when nobody has it any more."""

    def __init__(self, generator: Iterator[None]) -> None:
        self.generator = generator

    def __del__(self) -> None:
        self.generator.close()  # type: ignore[attr-defined]


def test_a_generator_that_a_finalizer_closes_does_not_end_the_search() -> None:
    told: list[str] = []

    def opened() -> Iterator[None]:
        try:
            yield
        finally:
            told.append("closed")

    def action() -> None:
        generator = opened()
        next(generator)
        last = Closing(generator)
        del last
        told.append("end")

    before: list[list[str]] = []

    def once(line: int) -> bool:
        told.clear()
        came = interrupted_at(line, lambda frame: frame.f_code in {action.__code__, opened.__code__}, action)
        before.append(list(told))
        return came

    at_every_line(once)
    assert before[-2:] == [["closed"], ["closed", "end"]]
