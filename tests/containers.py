"""How much is in the containers that are reached from an object: what is kept in memory, by class and attribute."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping
from types import CellType
from typing import Any

__all__ = ["sizes"]

_CONTAINERS = (Mapping, list, set, frozenset, tuple, deque)
_EMPTY = CellType()


def sizes(*roots: Any) -> Counter[str]:
    """"Class.attribute" -> items in all containers there, and in containers within them (but a tuple within one is one item)."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    todo: list[tuple[str, Any, bool]] = [(type(root).__name__, root, False) for root in roots]
    while todo:
        name, value, is_item = todo.pop()
        if id(value) in seen or isinstance(value, type | threading.Thread):
            continue
        seen.add(id(value))
        if isinstance(value, _CONTAINERS):
            if not isinstance(value, tuple) or not (is_item or hasattr(value, "_fields")):
                found[name] += len(value)
            inner = [*value.keys(), *value.values()] if isinstance(value, Mapping) else list(value)
            todo += [(name, each, True) for each in inner]
        elif type(value).__module__.split(".")[0] == "replog":
            todo += [(f"{type(value).__name__}.{attribute}", each, False) for attribute, each in _attributes(value)]
        elif callable(value):
            bound = getattr(value, "__self__", None)
            cells = getattr(value, "__closure__", None) or ()
            todo += [(name, each, False) for each in (bound, *(cell.cell_contents for cell in cells if cell != _EMPTY))]
    return found


def _attributes(value: Any) -> list[tuple[str, Any]]:
    names = [*getattr(value, "__dict__", {})]
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    wanted = [name for name in dict.fromkeys(names) if name not in ("__weakref__", "__dict__") and hasattr(value, name)]
    return [(name, getattr(value, name)) for name in wanted]
