"""Make docs/configuration.md from the configuration classes, so that the page cannot say anything else than the code does.

    python tools/configuration.py            write the page
    python tools/configuration.py --check    only say whether it is current; the exit status is 1 if it is not

Name, type, default and limits of a key come from its class in `replog.config`, its unit from its name, its meaning from the docstring
below it. A key whose class says nothing more than its name has its meaning in `MEANINGS` here; one that has both is an error.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import itertools
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs

from replog import config
from replog.config import BrokerConfig, ClientConfig, TopicConfig

__all__ = ["PAGE", "Key", "keys_of", "page"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

_ENDLESS: Final = 2**63 - 1

MEANINGS: Final[Mapping[str, str]] = {
    "TopicConfig.flush_interval_ms": 'How often the log is flushed under flush="interval".',
    "BrokerConfig.fetch_partition_bytes_max": "Bytes that a follower asks of one partition at a time.",
    "BrokerConfig.retry_backoff_ms_max": "Longest pause between two tries.",
    "BrokerConfig.heartbeat_ms": "How often a broker tells the controller how far it has applied its notices.",
    "BrokerConfig.checkpoint_interval_ms": "How often high watermarks, starts and flushed ends are written to the data folder.",
    "BrokerConfig.retention_check_ms": "How often a broker looks for what retention removes, and for producers and writers to forget.",
    "BrokerConfig.rejected_wish_ms": "How long a wish that could not be granted is kept below /admin/rejected.",
    "BrokerConfig.producer_expiry_ms": "A producer that was silent for so long is forgotten, at the latest after twice the time. "
    "It must be longer than the `delivery_timeout_ms` of clients: what is repeated later is stored twice.",
    "BrokerConfig.waiting_appends_max": "Appends that a broker holds until they are safe; one more is stored and answered RequestTimedOut. "
    "One client may have half of them: over TCP each of its connections, and what one leaves behind counts until it is answered.",
    "BrokerConfig.waiting_fetches_max": "Fetches of readers that a broker holds until there is something to read; "
    "one more is answered with what there is, or refused with QuotaExceeded if that is nothing. "
    "One reader (over TCP each connection) may have half of them; beyond that it is answered at once.",
    "BrokerConfig.fetch_sessions_max": "Fetch sessions of followers; one more is refused with QuotaExceeded. A follower needs two, for "
    "what is new and for catching up: with fewer than two for each other broker a replica may never come into the ISR.",
    "BrokerConfig.batch_records_max": "Records in one batch.",
    "BrokerConfig.topic_partitions_max": "Partitions of one topic.",
    "ClientConfig.retry_backoff_ms": "First pause before anything is tried again; doubles up to retry_backoff_ms_max.",
    "ClientConfig.retry_backoff_ms_max": "Longest pause between two tries.",
    "ClientConfig.batch_bytes": "What a producer puts into one batch before it is sent, each record with 20 bytes more than its key, value "
    "and headers count for. Never more than the topic takes (its `max_batch_bytes`), nor than 20,000,000, so at most 1,000,000 records.",
    "ClientConfig.linger_ms": "How long a producer waits for more records before it sends a batch that is not full. With 0, `send` makes a "
    "batch of each record in a `Cluster`: [many records, one by one](embedding.md#many-records-one-by-one).",
    "ClientConfig.buffer_bytes": "Records that a producer holds that are not settled, each with 20 bytes more than its key, value and "
    "headers count for; under acks=0 with what it has sent and connections have not taken. Above that `send` blocks; a record that is "
    "larger by itself raises `MessageTooLarge`.",
    "ClientConfig.max_block_ms": "How long `send` blocks while the buffer is full, or a topic or a partition is not known yet, before it "
    "raises. With 0 it only takes records for topics that the client knows: ask first, with `client.partitions_for(topic)`.",
    "ClientConfig.fetch_bytes": "Bytes in one answer to a reader.",
    "ClientConfig.fetch_wait_ms": "How long a broker may hold a reader's fetch when nothing is new.",
}
"""What a key means where its class gives no docstring."""

INTRODUCTION: Final = """\
# Configuration

Made by `python tools/configuration.py` from the classes in `replog.config`; a test compares the two. Change the classes, not this page.

An unknown key, a value of another type and a value outside its limits are refused with `UsageError` (by the cluster: `InvalidConfig`). It
names the key, the value and the limits, for an unknown key the nearest known one. Units are part of a name: `_ms` is milliseconds, `_bytes`
is bytes. Limits are inclusive.

A message between processes has at most {frame}. Therefore no batch and no answer may be allowed more than {batch}, and one request of a
client has at most {items} items of lists and maps.
"""

SECTIONS: Final = (
    (
        TopicConfig,
        "Topics",
        """\
Set with `create_topic(name, ..., KEY=VALUE)` or `replog topic create --config KEY=VALUE`, changed with `alter_topic` or `replog topic
alter`, stored with the topic in the metadata store. None (on the command line: `none`) means what the table says; to alter a key to
None puts it back to its default. Kafka's names are understood as well:
{aliases}.""",
    ),
    (
        BrokerConfig,
        "Brokers",
        """\
Given as `config` to `replog.Broker`, `replog.BrokerProcess` and `replog.Cluster` (for all its brokers), or with `replog broker --config
KEY=VALUE`. They cannot be changed while a broker runs. Use the same values on all brokers: any of them may become the controller.""",
    ),
    (
        ClientConfig,
        "Clients",
        """\
Given as `config` to `replog.connect`, and as `client_config` to `replog.Cluster`. From Spark they are options, such as
`replog.fetch.bytes`. A producer may have its own `linger_ms` and `batch_bytes`.""",
    ),
)


class Key(NamedTuple):
    """One row of a table."""

    name: str
    kind: str
    """Type, as people read it."""
    default: Any
    unit: str
    low: Any = None
    high: Any = None
    """Smallest and largest value, inclusive; None where there is no such limit."""
    values: tuple[Any, ...] = ()
    """All that are allowed, where they can be listed."""
    meaning: str = ""


def keys_of(cls: type) -> list[Key]:
    """Every key of a configuration class, in its order. ValueError where a meaning is missing, or where there are two."""
    said = dict(_docstrings(cls))
    kinds = typing.get_type_hints(cls)
    found = []
    for attribute in attrs.fields(cls):
        name = attribute.name
        otherwise = MEANINGS.get(f"{cls.__name__}.{name}")
        if (name in said) == (otherwise is not None):
            raise ValueError(f"{cls.__name__}.{name} has {'two meanings' if otherwise else 'no meaning'}: write one docstring below it")
        meaning = " ".join((said.get(name) or otherwise or "").split())
        found.append(Key(name, _kind(kinds[name]), attribute.default, _unit(name), **_limits(attribute.validator), meaning=meaning))
    return found


def page() -> str:
    """The text of the page."""
    aliases = ", ".join(f"`{alias}` for `{name}`" for alias, name in config._TOPIC_ALIASES.items())
    whole = {"frame": _size(config.FRAME_BYTES_MAX), "batch": _size(config.BATCH_BYTES_MAX), "items": f"{config.WISH_ITEMS_MAX:,}"}
    parts = [INTRODUCTION.format(**whole)]
    for cls, title, text in SECTIONS:
        parts.append(f"## {title}\n\nThe class is `replog.{cls.__name__}`.\n{text.format(aliases=aliases)}\n")
        parts.append("| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n" + "".join(_row(key) for key in keys_of(cls)))
    return "\n".join(parts)


# ------------------------------------------------------------------------------------------------------------ from a class


def _docstrings(cls: type) -> Iterator[tuple[str, str]]:
    """(key, docstring) of each attribute that has one."""
    body = typing.cast(ast.ClassDef, ast.parse(inspect.getsource(cls)).body[0]).body
    for one, after in itertools.pairwise(body):
        is_key = isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        if is_key and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            yield one.target.id, after.value.value  # type: ignore[union-attr]


def _limits(validator: Any) -> dict[str, Any]:
    """What a validator allows, read out of it. ValueError for one that this page does not know."""
    inner = getattr(validator, "validator", validator)  # of an optional one
    name = getattr(inner, "__name__", "")
    known = inspect.getclosurevars(inner).nonlocals
    if {"low", "high"} <= set(known):
        return {"low": known["low"], "high": None if known["high"] == _ENDLESS else known["high"]}
    if "allowed" in known:
        return {"values": tuple(known["allowed"])}
    if name == "_share":
        return {"low": 0, "high": 1}
    if name == "_flag":
        return {"values": (True, False)}
    raise ValueError(f"a validator that the page cannot describe: {validator!r}")


def _kind(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return "str"
    if isinstance(hint, type):
        return hint.__name__
    return " or ".join("None" if one is type(None) else one.__name__ for one in typing.get_args(hint))


def _unit(name: str) -> str:
    for ending, unit in (("_bytes_per_s", "bytes/s"), ("_ms", "ms"), ("_ms_max", "ms"), ("_bytes", "bytes"), ("_bytes_max", "bytes")):
        if name.endswith(ending):
            return unit
    return ""


# ---------------------------------------------------------------------------------------------------------------- as text


def _row(key: Key) -> str:
    unit = f" {key.unit}" if key.unit and key.default is not None else ""
    allowed = " or ".join(f"`{value!r}`" for value in key.values)
    if not allowed:
        allowed = f"from {_number(key.low, '')}" if key.high is None else f"{_number(key.low, key.unit)} to {_number(key.high, key.unit)}"
    default = _number(key.default, key.unit) + (unit if not _is_rounded(key.default, key.unit) else "")
    return f"| `{key.name}` | {key.kind} | {default} | {allowed} | {key.meaning.replace('|', chr(92) + '|')} |\n"


def _is_rounded(value: Any, unit: str) -> bool:
    """Whether a size is said in KiB or more."""
    return unit == "bytes" and bool(value) and value % 1024 == 0


def _number(value: Any, unit: str) -> str:
    if _is_rounded(value, unit):
        return _size(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"`{value!r}`"


def _size(value: int) -> str:
    for name, one in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value % one == 0:
            return f"{value // one:,} {name}"
    return f"{value:,} bytes"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    text = page()
    if arguments == ["--check"]:
        there = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        sys.stdout.writelines(difflib.unified_diff(there.splitlines(True), text.splitlines(True), str(PAGE), "the classes"))
        return int(there != text)
    if arguments:
        print(__doc__)
        return 2
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
