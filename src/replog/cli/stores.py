"""`replog store list|get PATH`: what the metadata store says, read and never written."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from attrs import frozen

from replog.cli.context import Context
from replog.cli.exits import BAD, OK
from replog.cli.output import json_value, visible
from replog.cli.overview import COLUMNS
from replog.cli.spoken import nearest
from replog.errors import StoreCorrupt, UsageError
from replog.metadata.looking import Found, Look, look_at_file
from replog.metadata.paths import ROOT, check_path, name_of, parent_of
from replog.metadata.values import Fields
from replog.runtime.urls import ZOOKEEPER_OPTIONS, _taken, zookeeper_arguments
from replog.security.shown import shown

__all__ = ["get", "list_nodes"]

T = TypeVar("T")
_READ_AT_ONCE: Final = 1_000
_SHORTEST: Final = 20


@frozen
class Shown:
    """A node as people see it."""

    path: str
    found: Found
    children: int

    def plain(self) -> dict[str, Any]:
        """The JSON of a node: `value` where it can be decoded, else `value_base64`, and `problem` where something is wrong."""
        value, problem = _decoded(self.path, self.found)
        known = {"version": self.found.version, "created": self.found.created} if self.found.version >= 0 else {}
        about = {"path": self.path, **known, "ephemeral": self.found.ephemeral, "children": self.children, "bytes": len(self.found.value)}
        return {**about, **value, **({"problem": problem} if problem else {})}


def _decoded(path: str, found: Found) -> tuple[dict[str, Any], str]:
    """The value of a node as a field of its JSON, and what is wrong with it."""
    if not found.value:
        return {"value": None}, found.problem
    problem = found.problem
    try:
        Fields.of(path, found.value)
    except StoreCorrupt as corrupt:
        problem = problem or str(corrupt)
    try:
        return {"value": json_value(found.value.decode())}, problem
    except (ValueError, RecursionError):
        return {"value_base64": base64.b64encode(found.value).decode()}, problem


def list_nodes(context: Context) -> int:
    """The nodes below a path, with their values; with --recursive all of them. Status 1 if one of them cannot be decoded."""
    asked = context.arguments
    path = check_path(asked.path, root=True)

    def collect(look: Look) -> list[Shown]:
        if path != ROOT and look.read([path]) == [None]:
            raise _unknown(look, path)
        found: list[Shown] = []
        waiting = {path: look.children(path)}
        while waiting:
            paths = [_below(above, name) for above, names in waiting.items() for name in names]
            waiting = {}
            for at in range(0, len(paths), _READ_AT_ONCE):
                some = paths[at : at + _READ_AT_ONCE]
                for one, names, node in zip(some, look.children_each(some), look.read(some), strict=True):
                    if node is not None:
                        found.append(Shown(one, node, len(names)))
                    if names and asked.recursive:
                        waiting[one] = names
        return sorted(found, key=lambda one: one.path)

    return _tell(context, path, _collected(context, collect))


def _tell(context: Context, path: str, nodes: list[Shown]) -> int:
    output = context.output
    plain = [node.plain() for node in nodes]
    problems = [(one["path"], one["problem"]) for one in plain if "problem" in one]
    if output.is_json:
        output.json(plain)
    elif plain:
        rows = [(_name(one["path"], path), one.get("version"), one["children"] or None, _value(one)) for one in plain]
        room = COLUMNS - 1 if not output.pretty else output.width - 12  # what the frame of a drawn table takes
        room -= sum(max(len(head), *(len(str(row[at])) for row in rows)) + 2 for at, head in enumerate(("node", "version", "below")))
        cut = [(*row[:3], _cut(row[3], max(room, _SHORTEST))) for row in rows]
        output.table(("node", "version", "below", "value"), cut)
    else:
        output.note(f"there is nothing below {path}")
    if not output.is_json:
        for place, problem in problems:
            output.line(f"DAMAGED: {place}: {problem}")
    return BAD if problems else OK


def get(context: Context) -> int:
    """One node: its numbers, and its value as JSON; with --raw the bytes as they are."""
    asked, output = context.arguments, context.output
    if asked.raw and output.is_json:
        raise UsageError("--raw prints bytes as they are, and --format json prints none: leave one of them out")
    path = check_path(asked.path)

    def collect(look: Look) -> Shown:
        (found,) = look.read([path])
        if found is None:
            raise _unknown(look, path)
        return Shown(path, found, len(look.children(path)))

    node = _collected(context, collect)
    plain = node.plain()
    if asked.raw:
        output.data(node.found.value)
    elif output.is_json:
        output.json(plain)
    else:
        ephemeral, size = ", ephemeral" if node.found.ephemeral else "", output.units.sized(len(node.found.value))
        output.line(f"{path}: version {node.found.version}, {size}, {node.children} nodes below{ephemeral}")
        if plain.get("value") is not None:
            output.line(json.dumps(plain["value"], indent=2, ensure_ascii=False))
        elif "value_base64" in plain:
            output.line(_value(plain))
    if "problem" in plain and (asked.raw or not output.is_json):
        (output.note if asked.raw else output.line)(f"DAMAGED: {path}: {plain['problem']}")
    return BAD if "problem" in plain else OK


def _collected(context: Context, collect: Callable[[Look], T]) -> T:
    """What `collect` finds in the store that --store names. UsageError for one that cannot be looked at."""
    url, timeout_s = context.arguments.store, context.timeout_s
    scheme = url.partition("://")[0].lower()
    assert timeout_s is not None
    if "://" not in url or scheme not in ("file", "zookeeper"):
        raise UsageError(f"{shown(url)!r} cannot be looked at; known are file://PATH and zookeeper://HOSTS/CHROOT")
    rest, _, options = _taken(url, 0, ZOOKEEPER_OPTIONS if scheme == "zookeeper" else ())
    if scheme == "file":
        return look_at_file(unquote(rest, errors="surrogateescape"), timeout_s, collect)
    from replog.metadata.zookeeper.looking import look_at_zookeeper

    protected = zookeeper_arguments(url, options)
    return look_at_zookeeper(rest, timeout_s, collect, auth=protected["auth"], tls=protected["tls"])


def _unknown(look: Look, path: str) -> UsageError:
    """That there is no such node; which ones there are where it should be, and which one is near."""
    above, name = parent_of(path), name_of(path)
    while above != ROOT and look.read([above]) == [None]:
        above, name = parent_of(above), name_of(above)
    names = look.children(above)
    some = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return UsageError(f"there is no node {path}; below {above} are {some or 'none'}{nearest(name, names)}")


def _below(path: str, name: str) -> str:
    return f"/{name}" if path == ROOT else f"{path}/{name}"


def _name(path: str, above: str) -> str:
    return path if above == ROOT else path[len(above) + 1 :]


def _value(plain: dict[str, Any]) -> str:
    if "value_base64" in plain:
        return f"(cannot be decoded; base64) {plain['value_base64']}"
    return "-" if plain["value"] is None else visible(json.dumps(plain["value"], ensure_ascii=False, separators=(",", ":")))


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 3]}..."
