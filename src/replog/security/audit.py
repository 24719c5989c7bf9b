"""One line for each wish that would change the cluster: who, from where, what, and what became of it. To the logger `replog.audit`."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from replog.errors import error_name

__all__ = ["audit"]

_log = logging.getLogger("replog.audit")

_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/@\[\]-]{1,300}")
_LONGEST: Final = 300


def audit(principal: object, address: str, action: str, topics: str, more: Mapping[str, str], code: int | None) -> None:
    """`more`: further fields of this action. `code`: 0 it was done, None: nobody knows."""
    outcome = "unknown" if code is None else "ok" if code == 0 else error_name(code)
    fields: dict[str, Any] = {"principal": principal, "address": address, "action": action, "topic": topics, **more, "outcome": outcome}
    _log.info(" ".join(f"{key}={_shown(str(value))}" for key, value in fields.items()))


def _shown(text: str) -> str:
    """As it is; in quotes if it holds what could be taken for something else, such as the end of the line, and where it is cut off."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
