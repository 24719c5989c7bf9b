"""The command line: `replog`, or `python -m replog`. What it prints to stdout is data; what it says, it says on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO, TextIO

    from replog.client.client import Client

__all__ = ["main"]


def main(
    argv: Sequence[str] | None = None,
    *,
    client: Client | None = None,
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    stderr: TextIO | None = None,
) -> int:
    """Run one command and return its exit status: `replog.cli.command` says how. Ctrl-C is heard while that is still being loaded, too."""
    try:
        from replog.cli.command import main as run

        return run(argv, client=client, stdin=stdin, stdout=stdout, stderr=stderr)
    except KeyboardInterrupt:
        return 130  # INTERRUPTED, which may not be loaded yet
