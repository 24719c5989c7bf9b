"""The shell blocks of the guide and of the README work as printed, in order, and print what they say.

A `text` block right behind a `sh` block is what that one prints to stdout. Ports are replaced by free ones, the command by the
one of this checkout; ids and ports do not count when outputs are compared.
"""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.processes.cli import environment

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
MARK = "--- end of block ---"
LISTENING = re.compile(r"127\.0\.0\.1:(71\d\d|710\$id)")


def blocks(text: str) -> list[tuple[str, str | None]]:
    """(commands, expected stdout or None) of each block."""
    return [(found[1], found[2]) for found in BLOCK.finditer(text)]


def free_base() -> int:
    """A port p such that p + 1 to p + 3 are free as well, and whose last digit is 0."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            base = probe.getsockname()[1] // 10 * 10
        try:
            for port in range(base + 1, base + 4):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return base


def bare(output: str) -> str:
    """Without what differs from run to run: ids, sizes (of timestamps), and the lines that say that a broker is ready."""
    lines = [line for line in output.splitlines() if not line.startswith("ready broker ")]
    return re.sub(r"\b14[0-9] ", "<size> ", re.sub(r"[0-9a-f]{32}", "<id>", "\n".join(lines)))


def script_of(page: str, base: int, folder: Path) -> str:
    """All blocks of a page as one script, with a line after each that says that it has ended."""
    program = folder / "bin" / "replog"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m replog "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    lines = ["set -eu", "trap 'jobs -p | xargs -r kill -9' EXIT"]
    for commands, _ in blocks(page):
        lines += [LISTENING.sub(lambda m: f"127.0.0.1:{base // 10}{m[1][3:]}", commands), f"echo '{MARK}'"]
    return "\n".join(lines)


def test_blocks_are_found() -> None:
    assert blocks("```sh\na\n```\n```text\nb\n```\n\n```sh\nc\n```\nd\n```text\ne\n```\n") == [("a\n", "b\n"), ("c\n", None)]


@pytest.mark.parametrize("page", ["docs/cli.md", "docs/quickstart.md", "README.md"])
def test_page(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert blocks(text)
    script = script_of(text, free_base(), tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    path = f"{tmp_path}/bin:/usr/local/bin:/usr/bin:/bin"
    shell = ["bash", "-c", script]
    done = subprocess.run(shell, cwd=work, env=environment(PATH=path), capture_output=True, text=True, timeout=240, check=False)
    logs = {file.name: file.read_text()[-1_000:] for file in work.glob("data/*.log")}
    assert done.returncode == 0, (done.stdout, done.stderr, logs)
    printed = done.stdout.split(f"{MARK}\n")
    assert len(printed) == len(blocks(text)) + 1
    for (commands, expected), output in zip(blocks(text), printed, strict=False):
        if expected is not None:
            assert bare(output) == bare(expected), commands
