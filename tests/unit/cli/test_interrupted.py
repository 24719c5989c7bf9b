"""Ctrl-C while a command is still being loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from replog.cli.exits import INTERRUPTED

_RUN = """
import runpy, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            signal.raise_signal(signal.SIGINT)

wanted = sys.argv.pop(1)
sys.meta_path.insert(0, Finder())
runpy.run_module("replog", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["replog.cli.command", "argparse", "replog.cli.grammar", "replog.client.client", "replog.cli.topics"])
def test_it_ends_without_a_traceback(module: str) -> None:
    ran = subprocess.run([sys.executable, "-c", _RUN, module, "topic", "list"], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (INTERRUPTED, b"", b"")
