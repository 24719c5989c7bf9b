"""What the page about security has people type works."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pages import ROOT

from replog.security.rules import parse_rules
from replog.security.settings import Security

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
TYPED = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.processes
def test_what_is_typed(tmp_path: Path) -> None:
    assert len(TYPED) >= 2
    shell = f"set -eu; replog() {{ {sys.executable} -m replog \"$@\"; }}\n" + "\n".join(TYPED)
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "URI:replog://role/broker/1" in done.stdout
    for path in tmp_path.rglob("*"):
        if path.suffix in (".key", ".secret"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_the_rules_that_are_shown() -> None:
    text = next(block for block in re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if block.startswith("[[allow]]"))
    rules = parse_rules(text)
    assert any(rule.allows("client/audit-7", "read", "bills.2026") for rule in rules)
    assert not any(rule.allows("client/audit-7", "write", "bills.2026") for rule in rules)
    assert any(rule.allows("admin/anna", "alter", None) for rule in rules)


def test_the_settings_that_are_shown(tmp_path: Path) -> None:
    text = next(block for block in re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if block.startswith("[tls]"))
    for number, name in enumerate(re.findall(r'"([\w-]+\.secret)"', text)):
        (tmp_path / name).write_text(f"{number}" * 32)
        (tmp_path / name).chmod(0o600)
    path = tmp_path / "settings.toml"
    path.write_text(text)
    path.chmod(0o644)
    assert set(Security.from_file(path).secret) == {"broker", "admin", "client", "client/billing"}
