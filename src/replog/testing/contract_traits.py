"""What a backend does not do is not asked of it: a suite's class says what it does, and its tests say of whom they are asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["ContractTraits", "asked_if"]

Test = TypeVar("Test", bound=Callable[..., None])


def asked_if(trait: str) -> Callable[[Test], Test]:
    """The test is asked only of backends whose class has `trait`."""

    def mark(test: Test) -> Test:
        test.asked_if = trait  # type: ignore[attr-defined]
        return test

    return mark


class ContractTraits:
    """A suite some of whose tests are `asked_if` its subclass says so."""

    def __init_subclass__(cls) -> None:
        """What a backend does not do is not asked of it: pytest then finds no such test."""
        super().__init_subclass__()
        for name in dir(cls):
            trait = getattr(getattr(cls, name), "asked_if", None)
            if trait is not None and not getattr(cls, trait):
                setattr(cls, name, None)
