"""How scenario files spell things: brokers are letters, partitions are `t-0`, times are `31s`, and a command is words and `key=value`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from attrs import define

from replog.errors import Code, UsageError
from replog.model import PartitionId

__all__ = ["Command", "Names", "broker_id", "broker_ids", "code", "code_name", "letter", "letters", "milliseconds"]

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME = re.compile(r"([0-9]+)(ms|s|m|h|d)")
_PARTITION = re.compile(r"([a-z]+'*)-([0-9]+)(?:\.([0-9]+))?")
_CODES = {name: value for name, value in vars(Code).items() if not name.startswith("_")}


@define
class Command:
    """One line: what to do, to whom, and how. A key that nobody takes is a mistake in the file."""

    verb: str
    words: list[str]
    keys: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> Command:
        """Words in order; `key=value` anywhere; everything else counts as a word."""
        parts = text.split()
        if not parts:
            raise UsageError("an empty command")
        pairs = [part.split("=", 1) for part in parts[1:] if "=" in part]
        return cls(parts[0], [part for part in parts[1:] if "=" not in part], {key: value for key, value in pairs})

    def take(self, key: str, default: str) -> str:
        """The value of a key, once."""
        return self.keys.pop(key, default)

    def number(self, key: str, default: int) -> int:
        """An integer value."""
        text = self.take(key, str(default))
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"{key} is {text!r}; a number is wanted") from None

    def flag(self, word: str) -> bool:
        """Whether the word stands in the command; takes it."""
        if word not in self.words:
            return False
        self.words.remove(word)
        return True

    def word(self, what: str) -> str:
        """The next word; `what` names it if there is none."""
        if not self.words:
            raise UsageError(f"{self.verb}: {what} is missing")
        return self.words.pop(0)

    def finished(self) -> None:
        """UsageError if anything was said that nobody understood."""
        left = [*self.words, *(f"{key}={value}" for key, value in self.keys.items())]
        if left:
            raise UsageError(f"{self.verb} does not know {' '.join(left)}")


def letter(broker_id: int | None) -> str:
    """1 is A, 2 is B; None is "none"."""
    return "none" if broker_id is None else chr(ord("A") + broker_id - 1)


def letters(broker_ids: Iterable[int]) -> str:
    """As in an ISR: "A,B,C", or "nobody"."""
    return ",".join(map(letter, broker_ids)) or "nobody"


def broker_id(text: str) -> int:
    """A is 1."""
    if len(text) != 1 or not "A" <= text <= "Z":
        raise UsageError(f"{text!r} is not a broker; brokers are A to Z")
    return ord(text) - ord("A") + 1


def broker_ids(text: str) -> tuple[int, ...]:
    """"A,B" is (1, 2); "nobody" is ()."""
    return () if text == "nobody" else tuple(map(broker_id, text.split(",")))


def milliseconds(text: str) -> int:
    """"31s", "500ms", "2m", "1h", "1d"."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is not a time; write 500ms, 31s, 2m, 1h or 1d")
    return int(found[1]) * _UNITS[found[2]]


def code(name: str) -> int:
    """The number of an error by its name in `Code`; "ok" is 0."""
    if name == "ok":
        return Code.NONE
    if name not in _CODES:
        raise UsageError(f"{name!r} is not an error code")
    return int(_CODES[name])


def code_name(number: int) -> str:
    """The name in `Code`."""
    return next((name for name, value in _CODES.items() if value == number), f"code {number}")


class Names:
    """Topics by their label: `t` is a topic, `t'` the one made under the same name after `t` was deleted."""

    def __init__(self) -> None:
        self._ids: dict[str, bytes] = {}

    def add(self, topic: str, topic_id: bytes) -> str:
        """Give a topic id a label: its name, with a stroke for each earlier topic of that name."""
        label = topic
        while label in self._ids:
            label += "'"
        self._ids[label] = topic_id
        return label

    def partition(self, text: str) -> PartitionId:
        """`t-0`, or `t-0.7` for creation number 7."""
        found = _PARTITION.fullmatch(text)
        if found is None:
            raise UsageError(f"{text!r} is not a partition; write t-0, or t-0.7 for creation 7")
        return PartitionId(self.topic_id(found[1]), int(found[2]), int(found[3] or 0))

    def topic_id(self, label: str) -> bytes:
        """A label nobody has added stands for itself."""
        return self._ids.get(label, label.encode().ljust(16, b"\0"))

    def text(self, identity: PartitionId) -> str:
        """The other way round."""
        known = {topic_id: label for label, topic_id in self._ids.items()}
        label = known.get(identity.topic_id) or identity.topic_id.rstrip(b"\0").decode("ascii", "replace")
        return f"{label}-{identity.partition}" + (f".{identity.creation}" if identity.creation else "")
