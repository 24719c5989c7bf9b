"""Which functions of replog a target executes."""

from __future__ import annotations

import gc
import inspect
import sys
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.fuzz.mutating import Mutator
from tests.fuzz.targets import TARGETS

import replog

__all__ = ["executed"]

_ROOT: Final = f"{Path(replog.__file__).parent}/"
_OURS: Final = ("testing.disk.", "testing.log_samples")
"""What the targets are made with, and no decoder."""
_FUNCTION: Final = inspect.CO_OPTIMIZED
"""The bodies of modules and classes are executed when they are imported, whoever is the first."""
_GENERATED: Final = "<attrs generated "


@cache
def executed(name: str, mutants: int) -> frozenset[tuple[str, str]]:
    """(module, function) of what runs over the valid bytes of a target and so many mutants; modules without `replog.` in front."""
    target = TARGETS[name]
    seeds = target.seeds()
    for one in seeds:
        target.run(one)  # what is imported, made or kept once is there
    mutator, found = Mutator(seeds, 1, target.seal, target.structured), set()

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found.add((frame.f_code, frame.f_globals.get("__name__", "")))

    data = [*seeds, *(mutator.next() for _ in range(mutants))]
    gc.collect()  # else what others have left is cleared away here, by functions of its own
    gc.disable()
    sys.setprofile(called)
    try:
        for one in data:
            target.run(one)
    finally:
        sys.setprofile(None)
        gc.enable()
    places = {(_module(code, of), code.co_qualname) for code, of in found if code.co_flags & _FUNCTION}
    return frozenset((module, function) for module, function in places if module and not f"{module}.".startswith(_OURS))


def _module(code: Any, of: str) -> str:
    """The module of a function, or of the class for which attrs or typing has generated it; empty: none of replog."""
    file = code.co_filename
    if file.startswith(_ROOT):
        return file.removeprefix(_ROOT).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if file.startswith(_GENERATED):
        return next((module for part in file.split() if (module := _module_of(part.rstrip(">"))) is not None), "")
    return _tuples().get(id(code), "") if of.startswith("namedtuple_") else ""


def _module_of(name: str) -> str | None:
    """The module in the whole name of a class of replog."""
    while name.startswith("replog."):
        name = name.rpartition(".")[0]
        if name in sys.modules:
            return name.removeprefix("replog.")
    return None


def _tuples() -> dict[int, str]:
    """What makes a named tuple -> its module: two of them may have one name."""
    return {
        id(one.__new__.__code__): one.__module__.removeprefix("replog.")
        for module in [module for name, module in sys.modules.items() if name.startswith("replog.")]
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, tuple) and one.__module__.startswith("replog.") and hasattr(one.__new__, "__code__")
    }
