"""What every command is given: the arguments, the streams, and a way to a cluster."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from attrs import define, field

from replog.cli.output import Output
from replog.cli.spoken import nearest
from replog.cli.steps import typed
from replog.client.client import Client
from replog.config import ClientConfig
from replog.errors import Code, Rejected, UsageError
from replog.security.settings import VARIABLE

__all__ = ["BOOTSTRAP", "Context", "security_file"]

BOOTSTRAP: Final = "REPLOG_BOOTSTRAP"
"""The environment variable that names a cluster where --bootstrap does not."""

_TIMEOUT_S_MAX: Final = 1e9
"""More than anybody waits, and still a number of milliseconds."""


@define
class Context:
    """One run of one command."""

    arguments: argparse.Namespace
    output: Output
    stdin: BinaryIO
    given: Client | None = None
    """A client to use instead of connecting; it stays its owner's."""
    hint: str = field(default="", init=False)
    """What may have been meant where a refusal is about a name that nobody knows."""

    failed: int = field(default=0, init=False)
    """The status of what was refused, 0 if nothing was: it stands although nobody reads the JSON of it."""
    is_told: bool = field(default=False, init=False)
    """The JSON that was printed has what was refused in it."""
    facts: dict[str, Any] = field(factory=dict, init=False)
    """What the JSON of an error says besides: of what was done before it."""

    at_end: contextlib.ExitStack = field(factory=contextlib.ExitStack, init=False)
    """What is closed when the command has said its last word."""

    @property
    def timeout_s(self) -> float | None:
        """How long each question to the cluster may take."""
        value: float | None = self.arguments.timeout
        return 30.0 if value is None else value

    def typed(self, *words: str) -> str:
        """A command as it is to be typed after this one, to ask the same cluster."""
        return typed(self.arguments, *words)

    def check_asked(self, what: str, dry_run: str) -> None:
        """Raise UsageError for `what` destroys records where nobody has said --yes, and nobody can be asked. `dry_run`: what that shows."""
        asked = self.arguments
        if not (asked.yes or asked.dry_run or self.stdin.isatty()):
            raise UsageError(f"{what}: where no terminal can be asked it takes --yes; --dry-run {dry_run}")

    def refuse(self, error: str, why: str, status: int, step: str = "") -> int:
        """Say on stderr why a command has failed, with what to do next; with --format json as the last value on stdout as well.

        Returns the status. Raises OutputClosed or OutputFailed.
        """
        self.failed = status
        self.output.note(f"replog: {why}")
        if step:
            self.output.note(f"next: {step}")
        if self.output.is_json and not self.is_told:
            self.output.json({"error": error, "why": why, "next": step or None, "status": status, **self.facts})
        return status

    def confirm(self, question: str, topic: str, otherwise: str) -> None:
        """Ask before records go, and go on only if the name of their topic is typed. Raises UsageError, saying `otherwise`."""
        self.output.note(f"{question}? Type the name of the topic to do it:")
        if self.stdin.readline().decode("utf-8", "replace").strip() != topic:
            raise UsageError(otherwise)

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        """A client of the cluster that --bootstrap names. Raises UsageError if nothing does."""
        with self._opened() as client:
            try:
                yield client
            except Rejected as refused:
                if refused.code == Code.UNKNOWN_TOPIC_OR_PARTITION and refused.topic is not None:
                    topics = client._core.view.topics
                    self.hint = "" if refused.topic in topics else nearest(refused.topic, topics)
                raise

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Client]:
        if self.given is not None:
            yield self.given
            return
        endpoints = self.arguments.bootstrap or os.environ.get(BOOTSTRAP, "")
        if not endpoints:
            raise UsageError(f"which cluster? Give --bootstrap tcp://HOST:PORT,HOST:PORT, or set {BOOTSTRAP}")
        from replog.runtime.connected import connect

        with connect(endpoints, config=_within(self.timeout_s), security=security_file(self.arguments.security)) as client:
            yield client


def security_file(given: str | None) -> str | None:
    """The file of settings that --security names, else the environment; None: there is none."""
    return given or os.environ.get(VARIABLE) or None


def _within(timeout_s: float | None) -> ClientConfig:
    """A client that gives up when the command does: leaving it must not wait for a batch that is still tried."""
    if timeout_s is None or timeout_s > _TIMEOUT_S_MAX:
        timeout_s = _TIMEOUT_S_MAX
    limit_ms = max(1, int(timeout_s * 1_000))
    request_ms = min(limit_ms, ClientConfig().request_timeout_ms)
    return ClientConfig(delivery_timeout_ms=limit_ms, max_block_ms=limit_ms, request_timeout_ms=request_ms)
