"""What a change is about beside its topics, for the line that is written of it: which broker, which partitions, where they are to go, and
which configuration.

Nothing of the arguments was checked before, and nothing here raises: what is none of what belongs there is a question mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

__all__ = ["particulars_of"]

_SHOWN_MAX: Final = 100
"""So many partitions, or brokers or keys, are named, if the line takes them; `count` says how many partitions there are."""
_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
"""A key of a configuration, or a value that is a str: anything else could be taken for further keys."""


def particulars_of(verb: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Fields of a line, by name; empty for what is told by its topic alone.

    >>> particulars_of("drain", {"broker": 3, "broker_epoch": 17})
    {'broker': '3'}
    >>> particulars_of("reassign", {"partitions": [["orders", 0, [1, 2]], ["orders", 1, None]]})
    {'count': '2', 'partitions': 'orders-0>1/2,orders-1>cancelled'}
    >>> particulars_of("elect", {"partitions": None, "unclean": True})
    {'partitions': '*', 'unclean': 'true'}
    >>> particulars_of("alter_topic", {"name": "orders", "config": {"min_isr": 1, "retention_ms": None}})
    {'config': 'min_isr=1,retention_ms=default'}
    """
    if verb == "create_topic":
        return _shape("partitions", arguments) | _configuration(arguments)
    if verb == "alter_topic":
        return _configuration(arguments)
    if verb == "drain":
        return {"broker": _number(arguments.get("broker"))}
    if verb == "raise_feature_level":
        return {"level": _number(arguments.get("level"))}
    if verb == "add_partitions":
        return {"total": _number(arguments.get("total"))} | _shape("total", arguments)
    if verb == "remove_partitions":
        return _several(arguments, lambda each: map(_number, each))
    if verb == "reassign":
        return _several(arguments, lambda each: map(_move, each))
    if verb == "elect":
        to = {"to": _number(arguments["to"])} if arguments.get("to") is not None else {}
        unclean = {"unclean": "true"} if arguments.get("unclean") is True else {}
        return {**_several(arguments, lambda each: map(_place, each)), **to, **unclean}
    return {}


def _shape(total: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    """How many partitions, how many replicas of each, and where they are placed, as far as it is said."""
    said = {"total": arguments.get(total), "replication_factor": arguments.get("replication_factor")}
    shape = {name: _number(value) for name, value in said.items() if value is not None}
    placed = arguments.get("assignment")
    if placed is not None:
        items = placed.items() if isinstance(placed, Mapping) else ()
        places = [f"{_number(partition)}>{_brokers(brokers)}" for partition, brokers in islice(items, _SHOWN_MAX)]
        shape["assignment"] = _joined(places, len(items)) if isinstance(placed, Mapping) else "?"
    return shape | ({"validate_only": "true"} if arguments.get("validate_only") else {})


def _configuration(arguments: Mapping[str, Any]) -> dict[str, str]:
    config = arguments.get("config")
    if config is None or config == {}:
        return {}
    if not isinstance(config, Mapping):
        return {"config": "?"}
    return {"config": _joined([f"{_word(key)}={_value(value)}" for key, value in islice(config.items(), _SHOWN_MAX)], len(config))}


def _word(text: object) -> str:
    return text if isinstance(text, str) and _WORD.fullmatch(text) else "?"


def _value(value: object) -> str:
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if type(value) is int else _word(value)


def _brokers(several: object) -> str:
    if not isinstance(several, list | tuple):
        return "?"
    return "/".join(map(_number, several[:_SHOWN_MAX])) + ("..." if len(several) > _SHOWN_MAX else "")


def _joined(words: Iterable[str], total: int) -> str:
    return ",".join(words) + ("..." if total > _SHOWN_MAX else "")


def _several(arguments: Mapping[str, Any], named: Any) -> dict[str, str]:
    each = arguments.get("partitions")
    if each is None:
        return {"partitions": "*"}
    if not isinstance(each, list | tuple):
        return {"partitions": "?"}
    words: Iterator[str] = named(islice(each, _SHOWN_MAX))
    return {"count": str(len(each)), "partitions": _joined(words, len(each))}


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
    return f"{place}>{_brokers(target)}"
