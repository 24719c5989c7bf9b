"""The command line: `replog`, or `python -m replog`. What it prints to stdout is data; what it says, it says on stderr."""

from __future__ import annotations

from replog.cli.command import main

__all__ = ["main"]
