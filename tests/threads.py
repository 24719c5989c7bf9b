"""Work in another thread, and what became of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["in_thread"]


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Runs `work` elsewhere; its result, or what it raised, is put into the list."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as problem:
            outcome.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome
