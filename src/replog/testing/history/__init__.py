"""The history checker: what clients of a log were told, judged by rules that need no look inside.

Record with `History` (or read JSON lines), judge with `check`; `registers` and `sessions` do the same for metadata stores.
"""

from __future__ import annotations

from replog.testing.history.checker import check
from replog.testing.history.events import BadHistory, key_of
from replog.testing.history.recorder import History
from replog.testing.history.report import Report

__all__ = ["BadHistory", "History", "Report", "check", "key_of"]
