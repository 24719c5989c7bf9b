"""Other processes that run a few lines of Python against one store file, and answer line by line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replog.metadata.file import FileStore
from replog.testing.eventually import eventually

SRC = Path(__file__).resolve().parents[3] / "src"
PRELUDE = """
import os, sys
from replog.errors import *
from replog.metadata.file import FileStore
from replog.ports import *
path, *arguments = sys.argv[1:]

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # whole lines, whoever is killed in between
"""


class Child:
    """Another process; `lines` is what it has said so far."""

    def __init__(self, path: Path, code: str, arguments: tuple[str, ...]) -> None:
        """Runs `code` as it is; `PRELUDE` is what most of it begins with."""
        environment = {**os.environ, "PYTHONPATH": str(SRC)}
        command = [sys.executable, "-c", code, str(path), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.lines: list[str] = []
        self._taken = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self.lines.append(line.strip())

    def line(self) -> str:
        """The next line that it says; waits for it."""
        eventually(lambda: len(self.lines) > self._taken)
        self._taken += 1
        return self.lines[self._taken - 1]

    def tell(self, line: str) -> None:
        """Say something to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill(self) -> list[str]:
        """SIGKILL; returns all that it said."""
        self.signal(signal.SIGKILL)
        return self.end()

    def finish(self) -> list[str]:
        """Wait for a normal end; returns all that it said."""
        lines = self.end()
        assert self.process.returncode == 0
        return lines

    def end(self) -> list[str]:
        """Wait for whatever end; returns all that it said."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=120)
        self._reader.join()
        self.process.stdout.close()
        return self.lines


Start = Callable[..., Child]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[FileStore]:
    with FileStore(path) as store:
        yield store


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    """Starts children that are gone when the test ends: `start(code, *arguments, prelude=PRELUDE)`."""
    children: list[Child] = []

    def another(code: str, *arguments: object, prelude: str = PRELUDE) -> Child:
        children.append(Child(path, prelude + code, tuple(str(argument) for argument in arguments)))
        return children[-1]

    yield another
    for child in children:
        if child.process.returncode is None:
            child.kill()
