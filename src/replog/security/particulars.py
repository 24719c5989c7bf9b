"""What a change is about beside its topics, for the line that is written of it: which broker, which partitions, and where they are to go.

Nothing of the arguments was checked before, and nothing here raises: what is none of what belongs there is a question mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

__all__ = ["particulars_of"]

_SHOWN_MAX: Final = 100
"""So many partitions are named, if the line takes them; `count` says how many there are."""


def particulars_of(verb: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Fields of a line, by name; empty for what is told by its topic alone.

    >>> particulars_of("drain", {"broker": 3, "broker_epoch": 17})
    {'broker': '3'}
    >>> particulars_of("reassign", {"partitions": [["orders", 0, [1, 2]], ["orders", 1, None]]})
    {'count': '2', 'partitions': 'orders-0>1/2,orders-1>cancelled'}
    >>> particulars_of("elect", {"partitions": None, "unclean": True})
    {'partitions': '*', 'unclean': 'true'}
    """
    if verb == "drain":
        return {"broker": _number(arguments.get("broker"))}
    if verb == "raise_feature_level":
        return {"level": _number(arguments.get("level"))}
    if verb == "add_partitions":
        return {"total": _number(arguments.get("total"))}
    if verb == "remove_partitions":
        return _several(arguments, lambda each: map(_number, each))
    if verb == "reassign":
        return _several(arguments, lambda each: map(_move, each))
    if verb == "elect":
        to = {"to": _number(arguments["to"])} if arguments.get("to") is not None else {}
        unclean = {"unclean": "true"} if arguments.get("unclean") is True else {}
        return {**_several(arguments, lambda each: map(_place, each)), **to, **unclean}
    return {}


def _several(arguments: Mapping[str, Any], named: Any) -> dict[str, str]:
    each = arguments.get("partitions")
    if each is None:
        return {"partitions": "*"}
    if not isinstance(each, list | tuple):
        return {"partitions": "?"}
    words: Iterator[str] = named(islice(each, _SHOWN_MAX))
    return {"count": str(len(each)), "partitions": ",".join(words) + ("..." if len(each) > _SHOWN_MAX else "")}


def _number(value: object) -> str:
    return str(value) if type(value) is int else "?"


def _place(one: object) -> str:
    if not isinstance(one, list | tuple) or len(one) < 2 or not isinstance(one[0], str):
        return "?"
    return f"{one[0][:300]}-{_number(one[1])}"


def _move(one: object) -> str:
    place = _place(one)
    if not isinstance(one, list | tuple) or len(one) != 3:
        return f"{place}>?"
    target = one[2]
    if target is None:
        return f"{place}>cancelled"
    return f"{place}>" + ("/".join(map(_number, target)) if isinstance(target, list | tuple) else "?")
