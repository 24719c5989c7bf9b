"""The suites notice what they are there for: whoever breaks one rule does not pass them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.contracts import wrong_stores

HERE = Path(__file__).resolve().parent


def outcomes(file: str, tests: list[str], folder: Path) -> dict[str, str]:
    """Run these tests of a file that pytest alone passes over: what became of each."""
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", f"--basetemp={folder / 'tests'}"]
    command += [f"{HERE / file}::{test}" for test in tests]
    run = subprocess.run(command, cwd=HERE.parents[1], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert report.exists(), run.stdout
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[case.attrib["name"]] = "+".join(sorted(kinds)) or "passed"
    return found


def test_a_wrong_store_does_not_pass(tmp_path: Path) -> None:
    expected = {f"{test}[{kind.__name__}]": "failure" for kind, test in wrong_stores.CAUGHT_BY.items()}
    expected |= {f"{test}[{kind.__name__}]": "passed" for kind, tests in wrong_stores.RIGHT.items() for test in tests}
    assert outcomes("wrong_stores.py", [f"TestStore::{test}" for test in expected], tmp_path) == expected
