"""What every command is given: the arguments, the streams, and a way to a cluster."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO, Final

from attrs import define, field

from replog.cli.output import Output
from replog.cli.spoken import nearest
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

    @property
    def timeout_s(self) -> float | None:
        """How long each question to the cluster may take."""
        value: float | None = self.arguments.timeout
        return 30.0 if value is None else value

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
