"""`BrokerProcess`: a broker in a child process of its own, which does not outlive its parent.

The child runs `replog broker --until-stdin-closes`: the other end of its stdin is here, so that whatever ends this process,
SIGKILL included, ends the child too, and in a controlled way.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from replog.client.arguments import check_broker_id, check_timeout
from replog.config import BrokerConfig, check_rack
from replog.errors import TimedOut, Unavailable, UsageError
from replog.log.files import check_path, kill_in_child
from replog.runtime.urls import is_in_memory, lasting
from replog.security.settings import VARIABLE
from replog.security.shown import shown
from replog.transport.tcp.endpoint import SCHEME, check_insecure, parse_endpoint

__all__ = ["BrokerProcess"]

_LINES_KEPT: Final = 200
_LINES_TOLD: Final = 10
_LINE_BYTES_MAX: Final = 65_536
_READY: Final = "ready"
_IN_MEMORY: Final = "memory://"


class BrokerProcess:
    """A broker in a child process. Nothing is started before `start` (or `with`).

    `listen`, `advertise`, `store`, `rack` and `config` as for `Broker`; `security` and `quotas` are paths of files of settings; `data` None
    keeps its logs in memory; the store is a URL that other processes can open as well. `http` ("host:port"; port 0 takes a free one) serves
    its status page. `endpoint` is where clients reach it, and `status_url` where browsers do, once it is started.
    Leaving the `with` block stops it, controlled. After a fork of this process the child can neither use nor keep it.
    """

    def __init__(
        self,
        broker_id: int,
        *,
        listen: str = "tcp://127.0.0.1:0",
        advertise: str | None = None,
        data: str | os.PathLike[str] | None,
        store: str,
        rack: str | None = None,
        config: Mapping[str, Any] | None = None,
        security: str | os.PathLike[str] | None = None,
        quotas: str | os.PathLike[str] | None = None,
        insecure: bool = False,
        http: str | None = None,
        python: str = sys.executable,
    ) -> None:
        """Check the arguments; UsageError names what is wrong."""
        check_broker_id(broker_id)
        check_rack(rack)
        if not isinstance(store, str) or is_in_memory(store):
            given = shown(store) if isinstance(store, str) else repr(store)
            raise UsageError(f"store is {given}; another process can only open a URL, such as file:///PATH/TO/store.db")
        BrokerConfig.from_mapping({} if config is None else config)
        self.broker_id = broker_id
        place = _IN_MEMORY if data is None else check_path(data, "data", "name a folder, or None to keep everything in memory")
        words = {"--id": str(broker_id), "--listen": listen, "--advertise": advertise, "--data": place, "--rack": rack}
        words["--store"] = lasting(store)
        self._command = [python, "-P", "-m", "replog", "broker", "--until-stdin-closes"]
        self._command += [f"{word}={value}" for word, value in words.items() if value is not None]
        self._command += [f"--config={key}={value}" for key, value in (config or {}).items()]
        for word, file in (("security", security), ("quotas", quotas)):
            self._command += [f"--{word}={check_path(file, word, 'name a file of settings')}"] if file is not None else []
        self._command += ["--insecure"] if check_insecure(insecure) else []
        self._has_page = http is not None
        self._command += [f"--http={_place(http)}"] if http is not None else []
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self._reader: threading.Thread | None = None
        self._forked = False
        self.endpoint = ""
        """Where clients reach it: "tcp://host:port". Another one after a restart, if it listens on port 0."""
        self.status_url = ""
        """Where its status page is: "http://host:port/", with `/health` and `/metrics` below; "" without `http`."""
        self.cluster_id = ""
        kill_in_child(self)

    # ----------------------------------------------------------------------------------------------------------- life

    def start(self, *, timeout_s: float | None = 60.0) -> Self:
        """Start the process, again if it has ended, and wait until the broker is let into its cluster.

        Raises Unavailable with the last lines it logged if it ends instead, TimedOut if it does neither, and RuntimeError if no thread
        can be had that reads those lines; it is then gone.
        """
        self._check_mine()
        limit_s = check_timeout(timeout_s)
        if self.is_running:
            raise UsageError(f"{self!r} runs already")
        self._forget()
        self._lines.clear()
        self._process = process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={name: value for name, value in os.environ.items() if name != VARIABLE},  # that is for commands, not for a broker
            process_group=0,  # Ctrl-C on the terminal is for the parent: it decides how its brokers end
        )
        assert process.stderr is not None
        name = f"log of broker {self.broker_id}"
        self._reader = threading.Thread(target=self._keep_lines, args=(process.stderr.fileno(),), name=name, daemon=True)
        try:
            self._reader.start()
            lines = self._first_lines(process, limit_s)
        except BaseException:
            self.kill()
            raise
        if not lines or not lines[0].startswith(f"{_READY} "):
            status = self.wait()
            raise Unavailable(f"broker {self.broker_id} ended with status {status} before it was ready{self._told()}")
        words = lines[0].split()
        self.endpoint, self.cluster_id = words[words.index("at") + 1], words[-1]
        self.status_url = lines[1].split()[-1] if self._has_page else ""
        return self

    def _first_lines(self, process: subprocess.Popen[bytes], limit_s: float | None) -> list[str]:
        """The lines on its stdout that say where it is, one and one of its page; none if it ends without them. Raises TimedOut."""
        assert process.stdout is not None
        give_up = None if limit_s is None else time.monotonic() + limit_s
        data = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while data.count(b"\n") < 1 + self._has_page:
                left_s = None if give_up is None else give_up - time.monotonic()
                if (left_s is not None and left_s <= 0) or not selector.select(left_s):
                    raise TimedOut(f"waited {limit_s:g} s for broker {self.broker_id} to be ready{self._told()}")
                part = os.read(process.stdout.fileno(), 4096)
                if not part:
                    return []
                data += part
        return data.decode("utf-8", "replace").splitlines()

    def _keep_lines(self, descriptor: int) -> None:
        """The end of what it logs, so that a failed start can tell it; read on, so that the pipe never fills up."""
        begun = b""
        with contextlib.suppress(OSError):
            while data := os.read(descriptor, 65_536):
                *lines, begun = (begun + data).split(b"\n")
                self._lines.extend(line.decode("utf-8", "replace") for line in lines)
                begun = begun[-_LINE_BYTES_MAX:]
        if begun:
            self._lines.append(begun.decode("utf-8", "replace"))

    def stop(self, *, timeout_s: float | None = 60.0) -> int:
        """End it in a controlled way, and wait; returns its exit status. One that takes longer is killed. Idempotent."""
        self._check_mine()
        if self._process is None:
            return 0
        limit_s = check_timeout(timeout_s)
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)  # one that is paused must first go on
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._send(signal.SIGKILL)
        return self.wait()

    def kill(self) -> None:
        """End it with SIGKILL, and wait until it is gone. Idempotent."""
        self._check_mine()
        self._send(signal.SIGKILL)
        self.wait()

    def pause(self) -> None:
        """Let it stand still (SIGSTOP): it does nothing and answers nobody, and its session runs out. Returns when it does so."""
        self._signal_living(signal.SIGSTOP)
        # The signal is delivered some time after it was sent; until then threads go on.
        try:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # another thread has ended it, and waited for it
            raise UsageError(f"{self!r} does not run") from None

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self._signal_living(signal.SIGCONT)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait until the process has ended, whoever ends it; returns its exit status, -N after signal N. Raises TimedOut."""
        self._check_mine()
        if self._process is None:
            raise UsageError(f"{self!r} was not started")
        try:
            status = self._process.wait(check_timeout(timeout_s))
        except subprocess.TimeoutExpired:
            raise TimedOut(f"waited {timeout_s:g} s for {self!r} to end") from None
        if self._reader is not None and self._reader.is_alive():  # it could not be started at all, perhaps
            self._reader.join()  # what it said last
        self._close_pipes()
        return status

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # -------------------------------------------------------------------------------------------------------- looking

    @property
    def pid(self) -> int:
        """The process id. UsageError before it was started."""
        if self._process is None:
            raise UsageError(f"{self!r} was not started")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there, paused or not."""
        return not self._forked and self._process is not None and self._process.poll() is None

    @property
    def last_lines(self) -> list[str]:
        """The end of what it logged."""
        return list(self._lines)

    def __repr__(self) -> str:
        state = "not started" if self._process is None else f"process {self._process.pid}"
        return f"<BrokerProcess {self.broker_id}, {state}>"

    # ------------------------------------------------------------------------------------------------------- internal

    def _told(self) -> str:
        lines = [*self._lines][-_LINES_TOLD:]
        return "; it said:\n" + "\n".join(f"  {line}" for line in lines) if lines else "; it said nothing"

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # nothing if it has ended

    def _signal_living(self, number: signal.Signals) -> None:
        self._check_mine()
        if not self.is_running:
            raise UsageError(f"{self!r} does not run")
        self._send(number)

    def _check_mine(self) -> None:
        if self._forked:
            raise UsageError("this BrokerProcess belongs to the parent process; only that can use it")

    def _close_pipes(self) -> None:
        process = self._process
        if process is not None:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def _forget(self) -> None:
        if self._process is not None:
            self.wait()
        self._process, self.endpoint, self.cluster_id, self.status_url = None, "", "", ""

    def die_in_child(self) -> None:
        """After a fork: the child lets go of the pipes, because the broker lives as long as anybody holds its stdin."""
        self._forked = True
        self._close_pipes()
        if self._process is not None:
            self._process.returncode = 0  # it is nobody's child here: nothing to wait for, and nothing to warn of


def _place(http: object) -> str:
    if not isinstance(http, str):
        raise UsageError(f"http is {http!r}; name a host and a port, such as '127.0.0.1:0'")
    try:
        return parse_endpoint(SCHEME + http).place
    except UsageError:
        raise UsageError(f"http is {http!r:.120}; name a host and a port, such as '127.0.0.1:0'") from None
