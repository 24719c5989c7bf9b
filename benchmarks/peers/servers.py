"""The processes of a peer: started in a folder, watched while one waits for them, and ended, these and no others."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import attrs

from replog.testing.eventually import eventually

__all__ = ["NODES", "PATIENCE_S", "Needs", "Servers", "free_ports"]

NODES = 3
"""Of each peer, as of replog."""
PATIENCE_S = 30
"""How long an answer may take."""
SBIN = "/usr/sbin"
_START_S = 60
_LINES_TOLD = 5

T = TypeVar("T")


@attrs.frozen
class Needs:
    """What a peer cannot be measured without."""

    program: str = ""
    """Name of the server's program; none if the client's package is all."""
    debian: str = ""
    """The Debian package that has it."""
    module: str = ""
    """What the client is imported as; none if the benchmark speaks the protocol itself."""
    pypi: str = ""
    """The package on PyPI that has it."""

    def server(self) -> str:
        """Where the server's program is; empty if it is nowhere. Debian puts some where the PATH of ordinary users does not lead."""
        return shutil.which(self.program) or shutil.which(self.program, path=SBIN) or ""

    def missing(self) -> str:
        """What is missing, and where it comes from, in one sentence; empty if nothing is."""
        if self.program and not self.server():
            return f"there is no {self.program} on PATH to compare with (Debian: apt-get install {self.debian})"
        if self.module and not find_spec(self.module):
            return f"there is no Python package {self.module} to compare with (PyPI: pip install {self.pypi})"
        return ""


class Servers:
    """Servers of one peer. Leaving the `with` block ends all that were started."""

    def __init__(self, folder: Path, *, end_s: float = 15) -> None:
        """`end_s`: how long one may take to end by itself."""
        self.folder = folder
        self._end_s = end_s
        self._started: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        """Start one; what it says goes to the file `name.log` of the folder.

        The command has to become the server: a script that waits for it would be ended in its place.
        """
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=env, cwd=cwd)
        self._started.append((name, process))

    def eventually(self, condition: Callable[[], T]) -> T:
        """Wait until the condition holds and return what it returned. Raises RuntimeError once a server has ended, with its last words."""

        def alive() -> T:
            for name, process in self._started:
                if process.poll() is not None:
                    said = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-_LINES_TOLD:]
                    raise RuntimeError(f"{name} ended with status {process.returncode}: {' / '.join(said)}")
            return condition()

        return eventually(alive, _START_S, every_s=0.05)

    def listening(self, *ports: int) -> None:
        """Wait until somebody accepts connections at each of these ports."""
        for port in ports:
            self.eventually(partial(_accepts, port))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for _, process in self._started:
            process.terminate()
        for _, process in self._started:
            try:
                process.wait(self._end_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on at the moment."""
    with ExitStack() as probes:
        servers = [probes.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
