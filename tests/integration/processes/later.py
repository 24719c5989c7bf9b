"""A version of replog that there is not yet: this one, with what a next one may bring, in a folder that a Python of its own finds first.

It speaks protocol 2, in which a heartbeat and a fetch have one more field, and supports feature level 2, with which registrations are
stored as values of version 2: nobody of this version could read those.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import replog

__all__ = ["later_python"]

_CHANGES = (
    ("features.py", "FEATURE_LEVEL_MAX: Final = 1", "FEATURE_LEVEL_MAX: Final = 2"),
    ("codec/frames.py", "PROTOCOL_VERSION: Final = 1", "PROTOCOL_VERSION: Final = 2"),
    (
        "messages/control.py",
        '"""Highest number such that it and all before it were applied; -1 before the first complete one."""\n',
        'mood: str = field(default="good", metadata={"since": 2})\n',
    ),
    (
        "messages/data.py",
        "    verify: bool = False\n",
        '    verify: bool = False\n    hint: int = field(default=0, metadata={"since": 2})\n',
    ),
    ("codec/quick.py", "        message.verify,\n", "        message.verify,\n        message.hint,\n"),
    ("metadata/values.py", "if version != VALUE_VERSION or", "if version not in (1, 2) or"),
    (
        "broker/membership.py",
        "        value = layout.encode_registration(self._registration)\n",
        "        value = layout.encode_registration(self._registration)\n"
        "        if self.feature_level >= 2:\n"
        "            value = value.replace(b'\"version\":1', b'\"version\":2', 1)\n",
    ),
)


def later_python(folder: Path) -> str:
    """A program that is Python with that version."""
    tree = folder / "later" / "replog"
    shutil.copytree(Path(replog.__file__).parent, tree, ignore=shutil.ignore_patterns("__pycache__"))
    for name, now, then in _CHANGES:
        text = (tree / name).read_text(encoding="utf-8")
        assert text.count(now) == 1, f"{name} has {now!r} {text.count(now)} times"
        (tree / name).write_text(text.replace(now, then), encoding="utf-8")
    program = folder / "later" / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{tree.parent}" exec "{sys.executable}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return str(program)
