"""The server of the status page: a few threads beside the broker, each for one connection, and for no longer than some seconds."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from replog.client.client import Client
from replog.errors import ReplogError, UsageError
from replog.log.files import kill_in_child
from replog.metrics.snapshot import Snapshot
from replog.metrics.text import CONTENT_TYPE, prometheus_text
from replog.status.http import TAKEN_AT, Answer, BadRequest, Request, check_host, encode, names_of, read_request
from replog.status.page import page
from replog.status.source import PAGE_MAX, Query, Source
from replog.transport.tcp.endpoint import Endpoint, addresses_of, check_insecure

__all__ = ["StatusServer"]

_log = logging.getLogger("replog")

_CHOICES: Final = {"1": True, "true": True, "": False, "0": False, "false": False}
_JSON: Final = "application/json"
CONNECTIONS_MAX: Final = 16
REQUEST_S: Final = 5.0
"""A request is sent within this time, ..."""
ANSWER_S: Final = 10.0
"""... and its answer taken within this."""
_LINGER_S: Final = 1.0
_LINGER_MAX: Final = 8
"""Reads, of at most a second each, for a peer to close."""
_PAUSE_S: Final = 0.1
"""Before accepting again where the process has no descriptors left, ..."""
_WARN_S: Final = 60.0
"""... which is logged so often."""


class StatusServer:
    """Serves from the moment it is made. `url` is where; `close()` (or the end of `with`) ends it. In a forked child it is closed."""

    def __init__(
        self,
        metrics: Callable[..., Snapshot],
        client: Callable[[], Client],
        changes: Callable[[], list[dict[str, Any]]],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        insecure: bool = False,
        owner: object = None,
    ) -> None:
        """Listen. UsageError for a bad address, one beyond loopback unless `insecure`, and one that the system refuses."""
        if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65_535:
            raise UsageError(f"port is {port!r}; allowed are 0 to 65535")
        wanted = Endpoint(host, port)
        if not check_insecure(insecure) and not wanted.is_loopback:
            exposed = f"{host!r} can be reached from other machines, and anybody may read there"
            raise UsageError(f"{exposed}; serve on 127.0.0.1, or say insecure=True")
        try:
            where = addresses_of(wanted)[0]
            self._listener = socket.create_server((where.host, port), family=where.family, backlog=CONNECTIONS_MAX)
        except (OSError, UnicodeError) as problem:
            raise UsageError(f"the status page cannot be served at {host}:{port}: {problem}") from problem
        self._endpoint = Endpoint(where.host, self._listener.getsockname()[1])
        self._names = names_of(wanted)
        self.url = f"http://{self._endpoint.place}/"
        """Where the page is."""
        self._source = Source(metrics, client, changes, owner=owner)
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._silent: dict[socket.socket, None] = {}
        """Those that have not sent their request yet, the first first: where all places are taken they make room for whoever comes."""
        self._rendered: dict[tuple[bool, str], tuple[Snapshot, bytes]] = {}
        """Metrics as they were written last, by what was asked for: thousands of partitions take a while, and hold up the broker."""
        self._rendering = threading.Lock()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="replog status", daemon=True)
        self._thread.start()
        kill_in_child(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving, and end what is being served. Idempotent."""
        self._closing.set()
        _shut(self._listener)  # wakes the thread that accepts
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._listener.close()
        with self._lock:
            serving = list(self._connections.items())
        for connection, _ in serving:
            _shut(connection)
        for _, thread in serving:
            if thread is not threading.current_thread():
                thread.join(ANSWER_S)
        self._source.close()

    def die_in_child(self) -> None:
        """After a fork: the threads are not here, and the socket is the parent's."""
        self._closing.set()
        self._lock = threading.Lock()
        self._listener.close()
        for connection in self._connections:
            connection.close()
        self._connections = {}

    # ------------------------------------------------------------------------------------------------------ connections

    def _accept(self) -> None:
        warn_at_s = 0.0
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError as problem:
                if not self._closing.wait(_PAUSE_S) and monotonic() >= warn_at_s:
                    warn_at_s = monotonic() + _WARN_S
                    _log.warning("the status page accepts nobody for now: %s", problem)
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="replog status", daemon=True)
            with self._lock:
                is_full = len(self._connections) >= CONNECTIONS_MAX
                silent = next(iter(self._silent), None) if is_full else None
                if silent is not None:
                    is_full = False
                    del self._silent[silent]
                    _shut(silent)  # its thread ends it
                if not is_full:
                    self._connections[connection] = thread
                    self._silent[connection] = None
            try:
                if is_full:
                    connection.setblocking(False)
                    connection.send(encode(Answer(503, b"too many connections; ask again later\n")))
                    connection.close()
                else:
                    thread.start()
            except (OSError, RuntimeError):  # it has gone; or no thread can be had
                self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.pop(connection, None)
            self._silent.pop(connection, None)
        connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            head_only = False
            try:
                try:
                    request = read_request(connection, REQUEST_S)
                finally:
                    with self._lock:
                        self._silent.pop(connection, None)
                if request is None:
                    return
                head_only = request.method == "HEAD"
                check_host(request.host, self._endpoint, self._names)
                answer = self._answer(request)
            except BadRequest as refused:
                more = {"Allow": "GET, HEAD"} if refused.status == 405 else {}
                answer = Answer(refused.status, f"{refused}\n".encode(), headers=more)
            connection.settimeout(ANSWER_S)
            connection.sendall(encode(answer, head_only=head_only))
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(_LINGER_S)
            for _ in range(_LINGER_MAX):  # what it still says would reset the connection, and with it the answer
                if not connection.recv(4096):
                    break
        except OSError:  # it has gone, or takes too long
            return
        finally:
            self._end(connection)

    # ---------------------------------------------------------------------------------------------------------- answers

    def _answer(self, request: Request) -> Answer:
        try:
            match request.path:
                case "/":
                    return page()
                case "/health":
                    report = self._source.health()
                    return _json(200 if report["healthy"] else 503, report)
                case "/metrics":
                    taken = self._source.metrics(partitions=_choice(request.query, "partitions"))
                    form = request.query.get("format", "text")
                    if form not in ("text", "json"):
                        raise BadRequest(400, f"format is {_shown(form)}; it is text or json")
                    body = self._written(taken, partitions=_choice(request.query, "partitions"), form=form)
                    if form == "json":
                        return Answer(200, body, _JSON, headers={TAKEN_AT: str(taken.time_ms)})
                    return Answer(200, body, CONTENT_TYPE)
                case "/status.json":
                    return _json(200, self._source.status(_query(request.query)))
                case _:
                    raise BadRequest(404, f"nothing is at {_shown(request.path)}; there are /, /health, /metrics and /status.json")
        except ReplogError as problem:
            return _json(503, {"error": f"nobody answers: {problem}"})
        except BadRequest:
            raise
        except Exception:  # a mistake of ours; peers learn nothing from it
            _log.exception("the status page could not answer %s", request.path)
            return Answer(500, b"something went wrong; the log of the broker says what\n")


    def _written(self, taken: Snapshot, *, partitions: bool, form: str) -> bytes:
        """Metrics as bytes: once for each snapshot, whoever asks."""
        with self._rendering:
            known = self._rendered.get((partitions, form))
            if known is None or known[0] is not taken:
                text = _json_bytes(taken.to_dict()) if form == "json" else prometheus_text(taken).encode()
                known = self._rendered[partitions, form] = taken, text
            return known[1]


def _query(words: dict[str, str]) -> Query:
    """Which partitions are asked for. Raises BadRequest."""
    unknown = sorted(words.keys() - {"filter", "page", "size", "unhealthy"})
    if unknown:
        raise BadRequest(400, f"the query has {_shown(unknown[0])}; it knows filter, page, size and unhealthy")
    return Query(
        text=words.get("filter", "")[:300],
        page=_number(words, "page", 1, 10**6),
        size=_number(words, "size", 100, PAGE_MAX),
        unhealthy=_choice(words, "unhealthy"),
    )


def _number(words: dict[str, str], name: str, otherwise: int, most: int) -> int:
    text = words.get(name, str(otherwise))
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and 1 <= int(text) <= most):
        raise BadRequest(400, f"{name} is {_shown(text)}; it is a number from 1 to {most}")
    return int(text)


def _choice(words: dict[str, str], name: str) -> bool:
    text = words.get(name, "")
    if text not in _CHOICES:
        raise BadRequest(400, f"{name} is {_shown(text)}; it is 1 or true, 0 or false")
    return _CHOICES[text]


def _shown(text: str) -> str:
    """What somebody has asked for, for an answer to that one: short, and nothing but ASCII."""
    return ascii(text if len(text) <= 60 else text[:60] + "...")


def _json(status: int, value: dict[str, Any]) -> Answer:
    return Answer(status, _json_bytes(value), _JSON)


def _json_bytes(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _shut(one: socket.socket) -> None:
    """Wake whoever waits for a socket."""
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:  # it is not connected any more
        return
