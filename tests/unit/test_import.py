"""`import replog` is cheap: nothing optional, nothing that starts a thread, and every public name is found when asked for."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import replog

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = {"kazoo", "pyspark", "pyarrow", "prometheus_client", "rich"}
HEAVY = {"asyncio", "sqlite3", "ssl", "multiprocessing", "concurrent.futures", "logging", "socket"}


def loaded_after(code: str) -> tuple[set[str], int]:
    """Modules that `code` loads on top of a bare interpreter, and the threads alive after it."""
    script = f"import sys; before = set(sys.modules)\n{code}\nnew = set(sys.modules) - before\n"
    script += "import threading; print(threading.active_count(), *new)"
    count, *modules = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    return set(modules), int(count)


def test_import_loads_nothing_but_itself() -> None:
    modules, threads = loaded_after("import replog")
    assert threads == 1
    assert {name for name in modules if name.split(".")[0] == "replog"} == {"replog"}
    assert not modules & (OPTIONAL | HEAVY | {"threading", "attrs", "msgpack", "lz4", "crc32c"})


@pytest.mark.parametrize("name", ["Record", "Log", "Cluster", "MemoryStore", "ZooKeeperStore"])
def test_a_name_loads_nothing_optional_and_no_thread(name: str) -> None:
    modules, threads = loaded_after(f"import replog; replog.{name}")
    assert threads == 1
    assert not {module.split(".")[0] for module in modules} & OPTIONAL
    assert not modules & {"asyncio", "multiprocessing"}


@pytest.mark.parametrize("code", ["import replog; replog.connect", "import replog.spark.stream_writing", "import replog.spark.ranges"])
def test_a_client_loads_no_broker(code: str) -> None:
    """Spark starts a process for each question about a plan, and for each commit of a micro-batch: all that these import is waited for."""
    modules, _ = loaded_after(code)
    assert "replog.runtime.connected" in modules
    assert not {name for name in modules if name.startswith(("replog.broker", "replog.controller", "replog.partition", "replog.metadata."))}


def test_msgpack_without_its_compiled_part_is_refused_by_what_needs_it() -> None:
    without, command = {**os.environ, "MSGPACK_PUREPYTHON": "1"}, [sys.executable, "-c", "import replog.codec"]
    run = subprocess.run(command, env=without, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "ImportError: replog needs the compiled part of msgpack, and found another: unset MSGPACK_PUREPYTHON" in run.stderr


@pytest.mark.parametrize("name", replog.__all__)
def test_public_name_is_found(name: str) -> None:
    value = getattr(replog, name)
    assert value is getattr(replog, name)
    assert name == "errors" or value.__doc__, f"{name} has no docstring"
    assert name in dir(replog)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="'replog' has no attribute 'Klaster'"):
        replog.Klaster  # noqa: B018


def test_table_and_type_checkers_agree() -> None:
    tree = ast.parse((ROOT / "src/replog/__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    said = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    said["errors"] = "replog.errors"
    assert said == replog._HOME
    assert sorted(said) == sorted(replog.__all__)


def test_version_is_said_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert replog.__version__ == project["version"]


def test_entry_points_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for group in ("replog.stores", "replog.transports"):
        for place in project["entry-points"][group].values():
            module, _, name = place.partition(":")
            assert callable(getattr(__import__(module, fromlist=[name]), name))
