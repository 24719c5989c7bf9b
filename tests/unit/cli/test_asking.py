"""Status pages are asked side by side, each by one thread at most."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

import pytest
from tests.threads import in_thread

from replog.cli.asking import Pages
from replog.cli.pages import Counted
from replog.errors import UsageError
from replog.status.http import TAKEN_AT
from replog.testing.eventually import eventually

PATIENCE_S = 20.0
"""Longer than anything here takes."""
SOON_S = 1.0
"""How long a look takes that something is missing from."""


class Page:
    """A status page that says what it is told to, when it is told to."""

    def __init__(self, broker: int) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(PATIENCE_S)
        self._body = f'{{"replog_leaders": [{{"labels": {{"broker": "{broker}"}}, "value": 1}}]}}'.encode()
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def asked(self) -> socket.socket:
        """The next connection, once a question has come on it."""
        connection, _ = self._server.accept()
        connection.settimeout(PATIENCE_S)
        connection.recv(1 << 16)
        return connection

    @property
    def is_asked_again(self) -> bool:
        """Whether another connection waits."""
        self._server.settimeout(0)
        try:
            self._server.accept()[0].close()
        except BlockingIOError:
            return False
        finally:
            self._server.settimeout(PATIENCE_S)
        return True

    def answer(self, connection: socket.socket | None = None) -> None:
        """The whole answer, to a question that has come or to the next one."""
        with connection or self.asked() as to:
            head = f"HTTP/1.0 200 OK\r\n{TAKEN_AT}: 7000\r\nContent-Length: {len(self._body)}\r\n\r\n"
            to.sendall(head.encode() + self._body)

    @contextmanager
    def trickling(self) -> Iterator[None]:
        """It answers a byte now and then, to whoever asks first."""
        over = threading.Event()

        def answer() -> None:
            with self.asked() as connection:
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
                while not over.wait(0.02):
                    connection.sendall(b" ")

        thread, _ = in_thread(answer)
        try:
            yield
        finally:
            over.set()
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()


@pytest.fixture
def three() -> Iterator[list[Page]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Page(broker)) for broker in (1, 2, 3)]


def test_all_are_asked_before_the_first_has_answered(three: list[Page]) -> None:
    def answer() -> None:
        connections = [page.asked() for page in three]
        for page, connection in zip(three, connections, strict=True):
            page.answer(connection)

    thread, _ = in_thread(answer)
    found, missing = Pages(page.url for page in three).counts(PATIENCE_S)
    thread.join()
    assert found == {broker: Counted(7.0, {}) for broker in (1, 2, 3)}
    assert missing == []


def test_those_that_hang_hide_no_other_and_are_told_of_in_their_order(three: list[Page]) -> None:
    """One says nothing; one has begun to answer, and does not come to an end."""
    silent, good, slow = three
    thread, _ = in_thread(good.answer)
    with slow.trickling():
        found, missing = Pages([silent.url, good.url, slow.url]).counts(SOON_S)
    thread.join()
    assert list(found) == [2]
    assert [str(one).partition(" ")[0].removesuffix("/metrics?format=json") for one in missing] == [silent.url, slow.url]
    assert all("does not answer" in str(one) for one in missing)


def test_a_page_that_still_answers_is_not_asked_again_until_it_has(three: list[Page]) -> None:
    page = three[0]
    pages = Pages([page.url, page.url])
    with page.trickling():
        assert [len(each) for each in pages.counts(SOON_S)] == [0, 1]
        assert [len(each) for each in pages.counts(SOON_S)] == [0, 1]
        assert not page.is_asked_again
    thread, _ = in_thread(page.answer)
    eventually(lambda: list(pages.counts(PATIENCE_S)[0]) == [1])  # the first look may still see the end of the last question
    thread.join()


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(UsageError, match="'ftp://x' is not the URL of a status page"):
        Pages(["ftp://x"]).counts(PATIENCE_S)
