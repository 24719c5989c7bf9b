"""`replog broker`: one broker in a process of its own, until a signal, or whoever started it, ends it."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Final

from replog.cli.context import Context, security_file
from replog.cli.exits import BAD, OK, REFUSED, UNAVAILABLE, USAGE
from replog.cli.output import OutputClosed, OutputFailed, quieten
from replog.cli.sparing import Sparing
from replog.cli.spoken import spoken
from replog.cli.told import telling
from replog.errors import TimedOut, UsageError

__all__ = ["broker"]

_log = logging.getLogger("replog")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SLICE_S: Final = 0.25
_TELL_EVERY: Final = 40
"""Slices between two lines that say what it still waits for."""
_ORPHAN_S: Final = 30.0
"""A controlled stop that nobody waits for any more takes no longer than this."""


class Ending:
    """Why and how it ends: by a signal, by a second one at once, or because stdin was closed.

    The system may give a signal to any thread, but Python handles it on the main one, which nobody wakes if it waits for a
    lock. So the main thread waits for a pipe, into which every signal writes.
    """

    def __init__(self, last_word: Callable[[], object]) -> None:
        """`last_word` waits, bounded in time, until what was said is written: before the process ends at once."""
        self.asked = threading.Event()
        self.last_word = last_word
        self.why = ""
        self.orphaned = False
        self._signals = 0
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # by nohup, say: it is to outlive its terminal
        heard = [number for number in _SIGNALS if number != signal.SIGHUP or not ignored]
        self._before = {number: signal.signal(number, self.on_signal) for number in heard}
        self._wakeup_before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)  # who has started it may block them in its own threads, which is inherited

    def close(self) -> None:
        """Signals mean again what they meant before."""
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._woken)
        os.close(self._wake)

    def wait(self, event: threading.Event, timeout_s: float | None = None) -> bool:
        """On the main thread: wait until `event` is set by `set`, and handle signals meanwhile; returns whether it is."""
        give_up = None if timeout_s is None else time.monotonic() + timeout_s
        while not event.is_set():
            left_s = None if give_up is None else give_up - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            select.select([self._woken], [], [], left_s)
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
        return True

    def set(self, event: threading.Event) -> None:
        """From any thread."""
        event.set()
        with contextlib.suppress(OSError):  # full, so that it wakes anyway; or nobody waits any more
            os.write(self._wake, b"\0")

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """The first asks for a controlled stop; the second ends the process, as SIGKILL would.

        But for SIGHUP: where a terminal is closed, both the system and the shell may send it, and nobody is impatient.
        """
        if number == signal.SIGHUP and self.asked.is_set():
            return
        self._signals += 1
        if self._signals > 1:
            os._exit(128 + number)
        self.why = self.why or signal.Signals(number).name
        self.asked.set()

    def watch(self, descriptor: int) -> None:
        """Wait, on a thread, until everybody who could write to a descriptor has closed it."""

        def wait() -> None:
            try:
                while os.read(descriptor, 4096):
                    pass
            except OSError as problem:
                _log.warning("stdin cannot be read: %s", problem)
            self.why = self.why or "stdin was closed"
            self.orphaned = True
            self.set(self.asked)

        threading.Thread(target=wait, name="stdin", daemon=True).start()


def broker(context: Context) -> int:
    """Run a broker until it is asked to end. The line on stdout says that it is ready, and where."""
    from replog.runtime.node import Broker

    asked = context.arguments
    told = context.at_end.enter_context(telling(context.output.stderr, asked.log_level))
    context.output.tell = partial(told.tell, is_last=True)
    one = Broker(
        asked.id,
        listen=asked.listen,
        advertise=asked.advertise,
        data=None if asked.data == "memory://" else asked.data,
        store=asked.store,
        rack=asked.rack,
        config=_config(asked.settings, asked.session_ms),
        security=security_file(asked.security),
        quotas=asked.quotas,
        insecure=asked.insecure,
    )
    ending = Ending(told.flush)
    sparing = Sparing(partial(_standing, one))
    served, page_url = contextlib.ExitStack(), None
    try:
        if asked.until_stdin_closes:
            ending.watch(context.stdin.fileno())
        if asked.http is not None:  # first: an address that cannot be had is known before anything is opened
            page = served.enter_context(one.serve_status(asked.http.port, host=asked.http.host, insecure=asked.insecure))
            page_url = page.url
            _log.info("broker %d has its status page at %s", one.broker_id, page.url)
        one.start()
        status = _wait_until_ready(context, one, ending)
        if status is not None:
            _stop(one, ending)
            return status
        _say_ready(context, one, page_url)
        hopeless = _wait_until_ending(one, ending, sparing)
        if hopeless is None:
            _stop(one, ending)
            return OK
        return _give_up(context, one, ending, hopeless)
    finally:
        served.close()
        ending.close()
        sparing.close()


def _config(settings: dict[str, Any], session_ms: int | None) -> dict[str, Any]:
    """--config, with --session-ms in it. A shorter session needs its heartbeats sooner."""
    config = dict(settings)
    if session_ms is not None:
        config["session_ms"] = session_ms
        config.setdefault("heartbeat_ms", max(10, min(2_000, session_ms // 4)))
    return config


def _wait_until_ready(context: Context, one: Any, ending: Ending) -> int | None:
    """None once it is; else the exit status: it was asked to end before, or the time has run out."""
    limit_s: float | None = context.arguments.timeout
    slices = 0
    while not ending.asked.is_set():
        try:
            one.wait_until_ready(timeout_s=_SLICE_S)
            return None
        except TimedOut:
            slices += 1
        except Exception as problem:
            if one.hopeless is None:
                raise
            status = USAGE if isinstance(problem, UsageError) and not _is_refused(one) else _status(one)
            return context.refuse(type(problem).__name__, spoken(str(problem)), status)
        trouble = one.trouble
        if limit_s is not None and slices * _SLICE_S >= limit_s:
            late = f"broker {one.broker_id} was not let in within {limit_s:g} s{trouble and ': '}{trouble}"
            return context.refuse(TimedOut.__name__, late, UNAVAILABLE)
        if slices % _TELL_EVERY == 0:
            _log.warning("broker %d waits to be let in%s%s", one.broker_id, trouble and ": ", trouble)
    return OK


def _standing(one: Any) -> tuple[int, tuple[int, int] | None]:
    """Which life it is in (0: in none), and what it has heard of its cluster: None while it is not ready."""
    life = one._life
    if life is None or not one.is_ready:
        return 0 if life is None else id(life), None
    routing = life.broker.routing
    return id(life), (routing.controller_epoch, routing.version)


def _is_refused(one: Any) -> bool:
    """Whether it is the cluster that has said no: `hopeless` says what, and not who."""
    return one._life is not None and bool(one._life.membership.refused)


def _status(one: Any) -> int:
    """The exit status of a broker that cannot go on."""
    return REFUSED if _is_refused(one) else BAD


def _say_ready(context: Context, one: Any, page_url: str | None) -> None:
    """That it is ready, and where, on stdout, if somebody reads it: a broker does not end because nobody does."""
    line = f"ready broker {one.broker_id} at {one.endpoint} cluster {one.cluster_id}" + (f"\npage {page_url}" if page_url else "")
    facts = {"broker": one.broker_id, "state": "ready", "endpoint": one.endpoint, "cluster_id": one.cluster_id, "page": page_url}
    try:
        if context.output.is_json:
            context.output.json(facts)
        else:
            context.output.line(line)
        context.output.flush()
    except (OutputClosed, OutputFailed) as lost:
        quieten(context.output.stdout)
        _log.warning("nobody was told %r: %s", line, lost if isinstance(lost, OutputFailed) else "stdout is closed")


def _wait_until_ending(one: Any, ending: Ending, sparing: Sparing) -> Exception | None:
    """None when it is asked to end; else why it cannot go on."""
    while not ending.wait(ending.asked, _SLICE_S):
        sparing.look()
        hopeless: Exception | None = one.hopeless
        if hopeless is not None:
            return hopeless
    return None


def _give_up(context: Context, one: Any, ending: Ending, hopeless: Exception) -> int:
    """End a broker that cannot go on, and say why in the end; returns the exit status."""
    status = _status(one)  # before the stop: that forgets who said no
    ending.why = ending.why or "it cannot go on"
    ending.orphaned = True
    try:
        _stop(one, ending)
    except Exception as problem:
        _log.warning("broker %d could not be stopped in a controlled way: %s", one.broker_id, problem)
    return context.refuse(type(hopeless).__name__, f"broker {one.broker_id} cannot go on: {spoken(str(hopeless))}", status)


def _stop(one: Any, ending: Ending) -> None:
    """A controlled stop, on a thread of its own: a second signal is heard whatever the stop waits for."""
    _log.info("broker %d stops: %s", one.broker_id, ending.why or "it was not let in")
    problems: list[BaseException] = []

    def stop() -> None:
        try:
            one.stop(controlled=True)
        except BaseException as problem:
            problems.append(problem)
        finally:
            ending.set(stopped)

    stopped = threading.Event()
    threading.Thread(target=stop, name="stop", daemon=True).start()
    if not ending.wait(stopped, _ORPHAN_S if ending.orphaned else None):
        ending.last_word()
        os._exit(1)
    if problems:
        raise problems[0]
    _log.info("broker %d is stopped", one.broker_id)
