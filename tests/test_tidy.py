"""The house rules, as a test: layers, purity, sizes, docstrings, and what nobody may use.

Each rule is a function from one parsed file to complaints, and has samples that it must reject and must accept, so that
a rule which has gone blind fails as loudly as a file that breaks it.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "replog"

LINES_MAX = 500
FUNCTION_LINES_MAX = 60

# Lowest first; modules in one row may import each other. "replog" is the package itself: its lazy public names.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("model",),
    ("config",),
    ("features",),
    ("records", "payload", "payload_check", "slices"),
    ("marks",),
    ("messages",),
    ("codec",),
    ("ports",),
    ("security",),
    ("log",),
    ("partition",),
    ("metadata",),
    ("transport",),
    ("broker",),
    ("controller",),
    ("client",),
    ("metrics",),
    ("status",),
    ("runtime",),
    ("replog",),
    ("spark",),
    ("testing",),
    ("cli", "__main__"),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# The port names its default backend when somebody opens a log by path, and imports it only then.
UPWARD_ALLOWED = {("src/replog/ports", "replog.log.log")}

PURE = ("src/replog/log/", "src/replog/partition/", "src/replog/broker/", "src/replog/controller/", "src/replog/client/core.py")
IMPURE_ALLOWED = ("src/replog/log/files.py",)  # the one door to the operating system
IMPURE = frozenset({
    "asyncio", "concurrent", "ctypes", "datetime", "fcntl", "http", "logging", "mmap", "multiprocessing", "os", "queue", "random",
    "sched", "secrets", "select", "selectors", "signal", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "tempfile",
    "threading", "time", "urllib", "uuid"
})

OPTIONAL = {  # optional dependency -> the only places that may import it
    "kazoo": ("src/replog/metadata/zookeeper",),
    "prometheus_client": ("src/replog/metrics/prometheus.py",),
    "pyarrow": ("src/replog/spark/", "src/pyspark_replog.py"),
    "pyspark": ("src/replog/spark/", "src/pyspark_replog.py"),
    "rich": ("src/replog/cli",),
}
SLEEPS = "src/replog/testing/eventually.py"
SPEAKS = (  # programs: they print
    "src/replog/cli",
    "src/replog/__main__.py",
    "src/replog/testing/disk/__main__.py",
    "src/replog/testing/exploration/__main__.py",
    "src/replog/testing/exploration/real_command.py",
    "src/replog/testing/history/__main__.py",
    "src/replog/testing/simulator/__main__.py",
)
UNSAFE_MODULES = frozenset({"cloudpickle", "dill", "marshal", "pickle", "shelve"})
SHIPS = ("src/replog/spark/shipping.py", "tests/unit/spark/")  # what Spark's own driver pickles for its own workers anyway
ANY_ORDER = frozenset({"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"})  # calls that a set's order cannot reach
UNFINISHED = ("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK")
VAGUE = ("Manager", "Util", "Utils", "Helper", "Helpers", "Impl")


class Source(NamedTuple):
    """One file, parsed."""

    path: str
    """Relative to the root, with slashes."""
    text: str
    tree: ast.Module

    @classmethod
    def of(cls, path: str, text: str) -> Source:
        return cls(path, text, ast.parse(text))

    @property
    def in_src(self) -> bool:
        return self.path.startswith("src/")

    @property
    def is_pure(self) -> bool:
        return self.path.startswith(PURE) and self.path not in IMPURE_ALLOWED


@lru_cache(maxsize=2)
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Each node of a file, found once for all rules: to find them takes longer than to look at them."""
    return tuple(ast.walk(tree))


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, wherever it stands; a relative import is given as "."."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, "."
            elif node.module == "replog":
                yield from ((node.lineno, f"replog.{a.name}" if a.name in LEVEL else "replog") for a in node.names)
            else:
                yield node.lineno, node.module or ""


def layer_of(path: str) -> str:
    """The layer a file of the package belongs to: the folder or module below src/replog."""
    first = path.removeprefix("src/replog/").split("/")[0].removesuffix(".py")
    return "replog" if first == "__init__" else "spark" if path == "src/pyspark_replog.py" else first


def layers(source: Source) -> Iterator[str]:
    """A module imports only from its own layer or lower ones."""
    if not source.in_src:
        return
    layer = layer_of(source.path)
    if layer not in LEVEL:
        yield f"1: no layer {layer!r}: add it to the table"
        return
    for line, module in imports(source.tree):
        if module == ".":
            yield f"{line}: relative import: write the whole name"
        elif module.split(".")[0] == "replog":
            target = module.split(".")[1] if "." in module else "replog"
            allowed = any(source.path.startswith(path) and module == upward for path, upward in UPWARD_ALLOWED)
            if layer != "replog" and not allowed and LEVEL.get(target, len(LAYERS)) > LEVEL[layer]:
                yield f"{line}: layer {layer} imports {module} from above"


def purity(source: Source) -> Iterator[str]:
    """What decides imports no clock, randomness, sockets, threads, files or logging."""
    if source.is_pure:
        for line, module in imports(source.tree):
            if module.split(".")[0] in IMPURE:
                yield f"{line}: imports {module}"


def ordered(source: Source) -> Iterator[str]:
    """Nothing that decides iterates a set: its order differs from run to run. Sort first."""
    if not source.is_pure:
        return
    harmless = {
        argument
        for node in nodes(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ANY_ORDER
        for argument in node.args
    }
    for node in nodes(source.tree):
        if isinstance(node, ast.For):
            places = [node.iter]
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and node not in harmless:
            places = [generator.iter for generator in node.generators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple", "iter", "enumerate"):
            places = node.args[:1]
        elif isinstance(node, ast.Starred):
            places = [node.value]
        else:
            continue
        yield from (f"{place.lineno}: iterates {ast.unparse(place)}" for place in places if is_set(place))


def is_set(node: ast.expr) -> bool:
    """Whether an expression is plainly a set: a display, a comprehension, a call of set, or one of these combined."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.BitXor | ast.Sub):
        return is_set(node.left) or is_set(node.right)
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
    return called or isinstance(node, ast.Set | ast.SetComp)


def sizes(source: Source) -> Iterator[str]:
    """Files under 500 lines and functions under 60: what grows past that holds two decisions."""
    if not source.in_src:
        return
    lines = source.text.count("\n")
    if lines > LINES_MAX:
        yield f"1: {lines} lines; at most {LINES_MAX}"
    for node in nodes(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{node.lineno}: {node.name} has {length} lines; at most {FUNCTION_LINES_MAX}"


def module_docstrings(source: Source) -> Iterator[str]:
    """Every module says what it decides; every module of the package that defines something lists its public names."""
    if not ast.get_docstring(source.tree):
        yield "1: no module docstring"
    if not source.in_src or len(source.tree.body) <= 1:
        return
    if not any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in source.tree.body):
        yield "1: no `from __future__ import annotations`"
    names = {target.id for node in source.tree.body for target in targets(node) if isinstance(target, ast.Name)}
    if "__all__" not in names and not source.path.endswith("__main__.py"):
        yield "1: no __all__"


def targets(node: ast.stmt) -> list[ast.expr]:
    """What a statement assigns to."""
    return node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []


def port_methods() -> frozenset[str]:
    """Methods whose contract is written once, at the port; a backend need not repeat it."""
    files = [PACKAGE / "ports.py", *sorted((PACKAGE / "ports").glob("*.py"))]
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files if file.exists()]
    return frozenset(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


INHERITED = port_methods()


def public_docstrings(source: Source) -> Iterator[str]:
    """Public classes and functions say what they mean.

    Exempt is what says it already: messages (the module explains how they are named), tests, bodies of one statement,
    and methods that fulfil a port or override a base class of the same file.
    """
    if not source.in_src:
        return
    classes = [node for node in source.tree.body if isinstance(node, ast.ClassDef)]
    methods = {base.name: {member.name for member in base.body if isinstance(member, ast.FunctionDef)} for base in classes}
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef):
            message = source.path.startswith("src/replog/messages")
            if not node.name.startswith("_") and not message and not ast.get_docstring(node):
                yield f"{node.lineno}: class {node.name} has no docstring"
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            told = INHERITED.union(*(methods.get(base, set()) for base in bases)) if node.bases else frozenset[str]()
            if not node.name.startswith("_"):
                yield from (text for member in node.body for text in undocumented(member, told))
        else:
            yield from undocumented(node, frozenset())


def undocumented(node: ast.stmt, told: frozenset[str]) -> Iterator[str]:
    """The complaint about one function, if there is one."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or ast.get_docstring(node):
        return
    if not node.name.startswith(("_", "test_")) and node.name not in told and len(node.body) > 1:
        yield f"{node.lineno}: {node.name} has no docstring"


def names(source: Source) -> Iterator[str]:
    """Names say what a thing is."""
    for node in nodes(source.tree):
        if isinstance(node, ast.ClassDef) and node.name.endswith(VAGUE):
            yield f"{node.lineno}: class {node.name}: a vague name"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("maybe_"):
            yield f"{node.lineno}: {node.name}: return None instead"


def finished(source: Source) -> Iterator[str]:
    """No notes to self."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if any(word in line for word in UNFINISHED):
            yield f"{number}: {line.strip()}"


def quiet(source: Source) -> Iterator[str]:
    """A library does not print; it never pickles or evaluates; it waits only in one place."""
    for node in nodes(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "print" and source.in_src and not source.path.startswith(SPEAKS):
                yield f"{node.lineno}: prints"
            elif node.func.id in ("eval", "exec"):
                yield f"{node.lineno}: calls {node.func.id}"
        if isinstance(node, ast.Attribute) and node.attr == "sleep" and source.path != SLEEPS:
            yield f"{node.lineno}: sleeps; use replog.testing.eventually"
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if node.module == "time" and "sleep" in names:
                yield f"{node.lineno}: imports sleep; use replog.testing.eventually"
            unsafe = sorted(UNSAFE_MODULES & names)
            if unsafe and not source.path.startswith(SHIPS):
                yield f"{node.lineno}: imports {', '.join(unsafe)} from {node.module}"
    for line, module in imports(source.tree):
        if UNSAFE_MODULES.intersection(module.split(".")):
            yield f"{line}: imports {module}"


def optional(source: Source) -> Iterator[str]:
    """An optional dependency is imported by its own module alone, so that the rest works without it."""
    if not source.in_src:
        return
    for line, module in imports(source.tree):
        places = OPTIONAL.get(module.split(".")[0])
        if places is not None and not source.path.startswith(places):
            yield f"{line}: imports {module}; only {' and '.join(places)} may"


def unconditional(source: Source) -> Iterator[str]:
    """No test is skipped or expected to fail."""
    if not source.path.startswith("tests/"):
        return
    for node in nodes(source.tree):
        if isinstance(node, ast.Attribute) and node.attr in ("skip", "skipif", "xfail", "importorskip"):
            yield f"{node.lineno}: {ast.unparse(node)}"


Rule = Callable[[Source], Iterator[str]]
IN_LOG, IN_MODEL, IN_TESTS = "src/replog/log/x.py", "src/replog/model.py", "tests/unit/test_x.py"
DOC = '"""What it is."""\nfrom __future__ import annotations\n__all__ = []\n'
METHOD = "class A{bases}:\n    'A.'\n    def {name}(self):\n        x = 1\n        g(x)"

# rule, path, what it must reject there, what it must accept there
SAMPLES: list[tuple[Rule, str, str, str]] = [
    (layers, IN_LOG, "from replog.broker.broker import Broker", "from replog.ports import Log"),
    (layers, IN_LOG, "from replog import broker", "from replog import errors"),
    (layers, IN_LOG, "from replog import Cluster", "import attrs"),
    (layers, IN_LOG, "from . import y", "from replog.log import y"),
    (layers, IN_LOG, "def f():\n    import replog.client.core", "def f():\n    import replog.log.memory"),
    (layers, "src/replog/ports.py", "from replog.log.memory import MemoryLog", "from replog.log.log import FileLog"),
    (layers, "src/replog/client/core.py", "import replog.runtime", "import replog.codec"),
    (purity, IN_LOG, "import os.path", "import struct"),
    (purity, "src/replog/client/core.py", "from time import monotonic", "from zlib import crc32"),
    (ordered, IN_LOG, "for x in {1, 2}: pass", "for x in sorted({1, 2}): pass"),
    (ordered, IN_LOG, "y = [x for x in set(a)]", "y = {x for x in set(a)}"),
    (ordered, IN_LOG, "y = list(set(a) - b)", "y = sorted(set(a) - b)"),
    (ordered, IN_LOG, "f(*{1, 2})", "ok = any(x for x in {1, 2})"),
    (sizes, IN_LOG, "x = 1\n" * 501, "x = 1\n" * 500),
    (sizes, IN_LOG, "def f():\n" + "    x = 1\n" * 60, "def f():\n" + "    x = 1\n" * 59),
    (module_docstrings, IN_LOG, "x = 1", DOC),
    (module_docstrings, IN_LOG, '"""Doc."""\nfrom __future__ import annotations\nx = 1', DOC),
    (module_docstrings, IN_LOG, '"""Doc."""\n__all__ = []', '"""Only words."""'),
    (public_docstrings, IN_MODEL, "class A:\n    x: int", "class _A:\n    x: int"),
    (public_docstrings, IN_MODEL, "def f():\n    x = 1\n    return x", "def f():\n    return 1"),
    (public_docstrings, IN_MODEL, METHOD.format(bases="", name="f"), "class A:\n    'A.'\n    def f(self): ..."),
    (public_docstrings, IN_LOG, METHOD.format(bases="(B)", name="f"), METHOD.format(bases="(Log)", name="append")),
    (names, IN_MODEL, "class PartitionManager: pass", "class Partition: pass"),
    (names, IN_MODEL, "def maybe_expand(): pass", "def expand(): pass"),
    (finished, IN_TESTS, f"# {UNFINISHED[0]}: later", "# done"),
    (quiet, IN_MODEL, "print(1)", "log(1)"),
    (quiet, IN_MODEL, "eval('1')", "re.compile('1')"),
    (quiet, IN_MODEL, "import pickle", "import json"),
    (quiet, IN_MODEL, "from pyspark import cloudpickle", "from pyspark import sql"),
    (quiet, IN_MODEL, "import pyspark.cloudpickle", "import pyspark.sql"),
    (quiet, IN_TESTS, "time.sleep(1)", "eventually(f)"),
    (quiet, IN_TESTS, "from time import sleep", "from time import monotonic"),
    (optional, IN_MODEL, "from kazoo.client import KazooClient", "import attrs"),
    (optional, "src/replog/metadata/zookeeper.py", "import pyspark", "import kazoo"),
    (unconditional, IN_TESTS, "@pytest.mark.skipif(True)\ndef test_x(): pass", "@pytest.mark.processes\ndef test_x(): pass"),
    (unconditional, IN_TESTS, "pytest.importorskip('x')", "import x"),
]
RULES: list[Rule] = list(dict.fromkeys(sample[0] for sample in SAMPLES))


FOLDERS = ("src", "tests", "benchmarks", "examples", "tools")
FILES = sorted(file.relative_to(ROOT).as_posix() for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
"""Every Python file of the project."""


@pytest.mark.parametrize("path", FILES)
def test_a_file_keeps_every_rule(path: str) -> None:
    source = Source.of(path, (ROOT / path).read_text(encoding="utf-8"))
    complaints = [f"{rule.__name__}: {path}:{complaint} ({rule.__doc__})" for rule in RULES for complaint in rule(source)]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize(("rule", "path", "bad", "good"), SAMPLES)
def test_rule_sees(rule: Rule, path: str, bad: str, good: str) -> None:
    assert list(rule(Source.of(path, bad))), "the rule accepts what it must reject"
    assert list(rule(Source.of(path, good))) == [], "the rule rejects what it must accept"


def test_every_module_has_a_layer() -> None:
    assert list(layers(Source.of("src/replog/surprise.py", "x = 1")))
    assert {layer_of(path) for path in FILES if path.startswith("src/")} <= set(LEVEL)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/design.md"])
def test_pages_have_every_layer_in_its_place(page: str) -> None:
    """Their tables of layers have each one once, in an order in which imports go up the table only."""
    table = (ROOT / page).read_text(encoding="utf-8").partition("\n| layer |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines() if line.startswith("| `")]
    assert sorted(name for row in rows for name in row) == sorted(set(LEVEL) - {"replog", "__main__"})
    assert [(above, row) for above, row in pairwise(rows) if max(map(LEVEL.__getitem__, above)) > min(map(LEVEL.__getitem__, row))] == []


GENERATED = (".venv/", "data/", "dist/", "build/", ".benchmarks/", ".hypothesis/", ".mypy_cache/", "__pycache__/")


def generated(paths: list[str]) -> list[str]:
    """Those paths that tools made."""
    return [path for path in paths if any(f"/{folder}" in f"/{path}" for folder in GENERATED) or path.endswith((".pyc", ".egg-info"))]


def test_nothing_generated_is_tracked() -> None:
    made = ["data/quickstart/x", "src/replog/__pycache__/a.py", "a.pyc"]
    assert generated([*made, "src/replog/model.py"]) == made
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert generated(listed.stdout.splitlines()) == []
