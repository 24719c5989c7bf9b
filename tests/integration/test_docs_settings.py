"""What pages show beside Python and commands of replog is taken as it stands: files of settings, addresses, and modules that are run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.test_docs import FENCED, PAGES, inline, set_in
from tests.pages import ROOT

import replog
from replog.runtime.urls import ZOOKEEPER_FILES, _taken, zookeeper_arguments


def blocks(page: str, holds: str) -> list[str]:
    """Blocks of plain text on a page that hold this."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [block for kind, block in FENCED.findall(text) if kind == "text" and holds in block]


def private(file: Path, text: str) -> Path:
    """A file that nobody else may read."""
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    return file


def test_quotas(tmp_path: Path) -> None:
    (block,) = blocks("docs/operations.md", "produce_bytes_per_s")
    quotas = replog.Quotas.from_file(private(tmp_path / "quotas.toml", block))
    assert (quotas.produce_bytes_per_s, quotas.fetch_bytes_per_s, quotas.burst_ms) == (20_000_000, 50_000_000, 1_000)
    billing = quotas.of("client/billing")
    assert (billing.produce_bytes_per_s, billing.fetch_bytes_per_s) == (100_000_000, 50_000_000), "what is left out is as above"


def test_an_address_of_zookeeper(tmp_path: Path) -> None:
    (block,) = blocks("docs/security.md", "zookeeper://")
    url = block.strip().replace("/etc/replog", str(tmp_path))
    for name in ("ca.pem", "b1.pem", "b1.key"):
        private(tmp_path / name, "")
    private(tmp_path / "zk.auth", "replog:secret\n")
    place, _, options = _taken(url, 6_000, (*ZOOKEEPER_FILES, "secure"))
    assert place == "zk1:2281,zk2:2281/replog"
    arguments = zookeeper_arguments(url, options)
    assert arguments["auth"] == ("digest", "replog", "secret")


def run_modules(page: str) -> Iterator[tuple[str, str]]:
    """(module and its command, the whole line) of each `python -m` on a page, in blocks, in lines that are set in, and inline."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = [line for _, block in FENCED.findall(text) for line in block.splitlines()]
    for line in (*lines, *set_in(text), *inline(text)):
        if found := re.search(r"python -m ((?:replog|tests|benchmarks)[\w.]*)(?: ([a-z]+)\b)?", line.partition("  #")[0]):
            yield f"{found[1]} {found[2] or ''}".strip(), line.partition("  #")[0].strip()


LINES = [found for page in PAGES for found in run_modules(page)]
MODULES = sorted({module for module, _ in LINES})


@pytest.mark.processes
@pytest.mark.parametrize("module", MODULES)
def test_a_module_that_is_run_has_the_options_that_a_page_names(module: str) -> None:
    asked = subprocess.run([sys.executable, "-m", *module.split(), "--help"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert asked.returncode == 0, asked.stderr
    named = {option for one, line in LINES if one == module for option in re.findall(r"(?<!\S)--[a-z-]+", line)}
    assert [option for option in sorted(named - {"--help"}) if not re.search(rf"(?<![\w-]){option}(?![\w-])", asked.stdout)] == []


def test_modules_are_found_wherever_they_stand() -> None:
    assert {"tests.fuzz count", "tests.chaos one", "replog.testing.simulator double", "replog.testing.exploration real"} <= set(MODULES)
