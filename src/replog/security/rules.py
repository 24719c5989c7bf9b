"""An authorizer out of a file: which principals may do what with which topics. What no rule allows is denied.

The file is looked at again once a second at most. One that is broken changes nothing: the rules of before stay, and it is logged.
"""

from __future__ import annotations

import fnmatch
import logging
import re
import time
import tomllib
from collections.abc import Callable
from typing import Any, Final

from attrs import frozen

from replog.config import MAX_TOPIC_NAME
from replog.errors import UsageError
from replog.security.private import read_settings
from replog.security.roles import ACTIONS, DESCRIBE
from replog.security.watched import Watched

__all__ = ["FileRules", "parse_rules"]

_log = logging.getLogger("replog")

_KNOWN_MAX: Final = 100_000
"""Answers that are remembered until the file changes."""
_KEYS: Final = ("principals", "actions", "topics")


@frozen
class _Rule:
    principals: re.Pattern[str]
    actions: frozenset[str]
    topics: re.Pattern[str]
    everywhere: bool
    """Whether it is about the cluster as well."""

    def allows(self, principal: str, action: str, topic: str | None) -> bool:
        if action not in self.actions or not self.principals.fullmatch(principal):
            return False
        return self.everywhere if topic is None else self.topics.fullmatch(topic) is not None


def parse_rules(text: str) -> list[_Rule]:
    """Rules from TOML: [[allow]] with principals, actions and topics, lists of patterns. UsageError says what is wrong with which one."""
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:  # also of what is nested too deep, or a number too long
        raise UsageError(f"no TOML: {problem}") from None
    rules = found.pop("allow", [])
    if found or not isinstance(rules, list):
        raise UsageError(f"{next(iter(found), 'allow')!r} is no part of it; rules are written [[allow]]")
    return [_rule(number, rule) for number, rule in enumerate(rules, 1)]


def _rule(number: int, rule: Any) -> _Rule:
    lists = {}
    for key in _KEYS:
        value = rule.get(key) if isinstance(rule, dict) else None
        if not isinstance(value, list) or not value or not all(isinstance(one, str) and one for one in value):
            raise UsageError(f"rule {number}: {key} is a list of texts, not {value!r:.100}")
        lists[key] = value
    if set(rule) - set(_KEYS):
        raise UsageError(f"rule {number} has {sorted(set(rule) - set(_KEYS))[0]!r}; it has {', '.join(_KEYS)}")
    actions = set(lists["actions"])
    if actions - {*ACTIONS, "*"}:
        raise UsageError(f"rule {number}: there is no action {sorted(actions - {*ACTIONS, '*'})[0]!r}; there are {', '.join(ACTIONS)}, *")
    allowed = frozenset(ACTIONS) if "*" in actions else frozenset({*actions, DESCRIBE})  # to use it is to see it
    return _Rule(_pattern(lists["principals"]), allowed, _pattern(lists["topics"]), "*" in lists["topics"])


def _pattern(some: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(one) for one in some))


class FileRules:
    """`allow(principal, action, topic)` by the rules in a file. UsageError if it cannot be read at first."""

    def __init__(self, path: str, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._rules = Watched([path], self._read, "rules", now_s=now_s)
        self._known: dict[tuple[str, str, str | None], bool] = {}
        self._known_of = self._rules.times

    def __call__(self, principal: str, action: str, topic: str | None) -> bool:
        """Whether a rule allows it."""
        rules = self._rules.now()
        if self._rules.times != self._known_of:
            self._known.clear()
            self._known_of = self._rules.times
            _log.info("the rules in %s are used from now on", self._path)
        asked = principal, action, topic
        found = self._known.get(asked)
        if found is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            found = any(rule.allows(*asked) for rule in rules)
            if topic is None or len(topic) <= MAX_TOPIC_NAME:  # else it is no topic, and as long as whoever asks likes
                self._known[asked] = found
        return found

    def _read(self) -> list[_Rule]:
        try:
            return parse_rules(read_settings(self._path))
        except UsageError as problem:
            raise UsageError(f"{self._path}: {problem}") from None
