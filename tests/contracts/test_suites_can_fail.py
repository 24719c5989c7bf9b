"""The suites notice what they are there for: whoever breaks one rule does not pass them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.contracts import wrong_logs, wrong_stores, wrong_transports

import replog.testing
from replog.testing import SUITES

HERE = Path(__file__).resolve().parent


def told_of(tests: Sequence[str], folder: Path) -> str:
    """Run tests of files that pytest alone passes over: what it says, with a report in `folder`."""
    options = ["-q", "-p", "no:cacheprovider", f"--junitxml={folder / 'report.xml'}", f"--basetemp={folder / 'tests'}"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    return subprocess.run(command, cwd=HERE.parents[1], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def outcomes(tests: Sequence[str], folder: Path) -> dict[str, str]:
    """What became of each of such tests."""
    told, report = told_of(tests, folder), folder / "report.xml"
    assert report.exists(), told
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[case.attrib["name"]] = "+".join(sorted(kinds)) or "passed"
    return found


@pytest.mark.parametrize(
    ("suite", "caught_by", "right"),
    [
        ("wrong_stores.py::TestStore", wrong_stores.CAUGHT_BY, wrong_stores.RIGHT),
        ("wrong_transports.py::TestTransport", wrong_transports.CAUGHT_BY, wrong_transports.RIGHT),
        ("wrong_logs.py::TestLog", wrong_logs.CAUGHT_BY, wrong_logs.RIGHT),
    ],
    ids=["stores", "transports", "logs"],
)
def test_who_breaks_a_rule_is_caught(
    suite: str, caught_by: Mapping[type[Any], str], right: Mapping[type[Any], Sequence[str]], tmp_path: Path
) -> None:
    expected = {f"{test}[{kind.__name__}]": "failure" for kind, test in caught_by.items()}
    expected |= {f"{test}[{kind.__name__}]": "passed" for kind, tests in right.items() for test in tests}
    assert outcomes([f"{HERE}/{suite}::{test}" for test in expected], tmp_path) == expected


def test_pytest_explains_what_a_suite_asserts(tmp_path: Path) -> None:
    """An assertion of a module that pytest does not rewrite says `AssertionError`, and nothing of what was found."""
    kind = wrong_stores.ChangeableValues
    one = f"{HERE}/wrong_stores.py::TestStore::{wrong_stores.CAUGHT_BY[kind]}[{kind.__name__}]"
    assert "AssertionError: assert <class 'bytearray'> is bytes" in told_of([one], tmp_path)


def test_every_module_with_assertions_of_a_suite_is_rewritten() -> None:
    folder = Path(replog.testing.__file__).parent
    asserts = {path.stem for path in folder.glob("*.py") if "import pytest" in (text := path.read_text()) and "    assert " in text}
    assert asserts <= {*SUITES}
    assert all((folder / f"{suite}.py").exists() for suite in SUITES)
