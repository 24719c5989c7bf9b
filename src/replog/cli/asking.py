"""Status pages that are asked side by side: one that does not answer costs no more than it would cost alone, and hides no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from replog.cli.pages import Counted, Counts, counts_of
from replog.errors import Unavailable

__all__ = ["Pages"]


class _Question(threading.Thread):
    """One page is asked what it has counted, on a thread of its own. What that raises is kept."""

    def __init__(self, url: str, timeout_s: float) -> None:
        super().__init__(name=f"replog page {url}", daemon=True)
        self._url = url
        self._timeout_s = timeout_s
        self.counts: Counts = {}
        self.problem: Exception | None = None

    def run(self) -> None:
        try:
            self.counts = counts_of(self._url, self._timeout_s)
        except Exception as problem:
            self.problem = problem


class Pages:
    """Some status pages. Each has one thread at most: one that is still being asked is not asked again."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._urls = list(dict.fromkeys(urls))
        self._asked: dict[str, _Question] = {}

    def counts(self, timeout_s: float) -> tuple[Counts, list[Unavailable]]:
        """What the brokers of all pages have counted, and what is wrong with pages of which nothing is known, in their order.

        Takes `timeout_s` at most, whatever the pages do. Raises UsageError for what is no URL of a page.
        """
        limit_s = time.monotonic() + timeout_s
        for url in self._urls:
            before = self._asked.get(url)
            if before is None or not before.is_alive():  # an answer that came after its look says nothing of this one
                self._asked[url] = _Question(url, timeout_s)
                self._asked[url].start()
        found: dict[int, Counted] = {}
        missing: list[Unavailable] = []
        for url in self._urls:
            question = self._asked[url]
            question.join(max(limit_s - time.monotonic(), 0))
            if question.is_alive():
                missing.append(Unavailable(f"{url} does not answer: not all of it came within {timeout_s:g} s"))
            elif question.problem is None:
                found |= question.counts
            elif isinstance(question.problem, Unavailable):
                missing.append(question.problem)
            else:
                raise question.problem
        return found, missing
