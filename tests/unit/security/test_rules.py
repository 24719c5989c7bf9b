"""Rules out of a file."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from replog.errors import UsageError
from replog.security.roles import ACTIONS
from replog.security.rules import FileRules, parse_rules

TEXT = """
[[allow]]
principals = ["client/billing", "client/b?"]
actions = ["read"]
topics = ["bills.*", "paid"]

[[allow]]
principals = ["admin/*"]
actions = ["*"]
topics = ["*"]

[[allow]]
principals = ["client"]
actions = ["write", "create"]
topics = ["in"]
"""


def rules(folder: Path, text: str = TEXT) -> Path:
    path = folder / "rules.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("principal", "action", "topic", "allowed"),
    [
        ("client/billing", "read", "bills.2026", True),
        ("client/billing", "describe", "bills.2026", True),
        ("client/b2", "read", "paid", True),
        ("client/billing", "write", "bills.2026", False),
        ("client/billing", "read", "bills", False),
        ("client/billing", "read", "paid.too", False),
        ("client/billing", "read", "unpaid", False),
        ("client/billings", "read", "paid", False),
        ("client/billing", "describe", None, False),
        ("client", "write", "in", True),
        ("client", "describe", "in", True),
        ("client", "read", "in", False),
        ("client/x", "write", "in", False),
        ("client", "write", "in\n", False),
        ("broker/1", "read", "paid", False),
        *(("admin/anna", action, "any", True) for action in ACTIONS),
        ("admin/anna", "alter", None, True),
        ("admin", "alter", None, False),
    ],
)
def test_what_the_rules_allow(tmp_path: Path, principal: str, action: str, topic: str | None, allowed: bool) -> None:
    asked = FileRules(str(rules(tmp_path)))
    assert asked(principal, action, topic) is allowed
    assert asked(principal, action, topic) is allowed  # remembered


def test_what_is_longer_than_any_topic_is_not_remembered(tmp_path: Path) -> None:
    asked = FileRules(str(rules(tmp_path)))
    for size in (249, 250, 1 << 20):
        asked("client/billing", "read", "b" * size)
    assert sum(len(topic or "") for _, _, topic in asked._known) == 249


def test_no_rules_allow_nothing(tmp_path: Path) -> None:
    assert FileRules(str(rules(tmp_path, "")))("admin/anna", "read", "t") is False


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[allow]", "no TOML"),
        ("[[deny]]\n", "'deny' is no part"),
        ("allow = 7", "rules are written"),
        ("allow = [7]", "rule 1: principals"),
        ("[[allow]]\nprincipals=['a']\nactions=['read']\n", "rule 1: topics is a list"),
        ("[[allow]]\nprincipals='a'\nactions=['read']\ntopics=['a']\n", "rule 1: principals is a list"),
        ("[[allow]]\nprincipals=['a']\nactions=['reed']\ntopics=['a']\n", "no action 'reed'"),
        ("[[allow]]\nprincipals=['a']\nactions=['read']\ntopics=[]\n", "rule 1: topics"),
        ("[[allow]]\nprincipals=['a']\nactions=['read']\ntopics=['a']\nuntil='x'\n", "rule 1 has 'until'"),
    ],
)
def test_rules_that_are_wrong_are_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_rules(text)
    with pytest.raises(UsageError, match=r"rules\.toml"):
        FileRules(str(rules(tmp_path, text)))


def test_a_changed_file_is_used_and_a_broken_one_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "replog")
    path, now_s = rules(tmp_path), [0.0]
    asked = FileRules(str(path), now_s=lambda: now_s[0])
    assert asked("client", "write", "in")
    path.write_text(TEXT.replace('"in"', '"inbox"'))
    assert asked("client", "write", "in")  # nobody has looked yet
    now_s[0] = 1.0
    assert not asked("client", "write", "in")
    assert asked("client", "write", "inbox")
    for broken in ("[[allow", "[[allow]]\nprincipals=[]"):
        path.write_text(broken)
        for _ in range(3):
            now_s[0] += 1.0
            assert asked("client", "write", "inbox")
    path.chmod(0o666)
    path.write_text(TEXT)
    now_s[0] += 1.0
    assert asked("client", "write", "inbox")
    path.unlink()
    now_s[0] += 1.0
    assert asked("client", "write", "inbox")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 4
    assert all("those of before are" in text for text in warnings)
    rules(tmp_path)
    now_s[0] += 1.0
    assert asked("client", "write", "in")


def test_rules_that_could_not_be_read_for_a_while_are_used_afterwards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now_s = rules(tmp_path), [0.0]
    asked = FileRules(str(path), now_s=lambda: now_s[0])
    path.write_text(TEXT.replace('"in"', '"inbox"'))

    def exhausted(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as during:
        during.setattr(os, "open", exhausted)
        for _ in range(2):
            now_s[0] += 1.0
            assert asked("client", "write", "in")
    assert len(caplog.records) == 1  # once, not with each try
    now_s[0] += 1.0
    assert not asked("client", "write", "in")
