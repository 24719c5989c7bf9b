"""The command that measures mutants: what it refuses before it begins."""

from __future__ import annotations

import pytest
from tests.simulation.mutants.__main__ import main

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("words", [["X"], ["M01", "X"], ["--regenerate", "X"], ["--regenerate", "all", "X"]])
def test_a_mutant_that_nobody_knows_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    unknown = "all" if "all" in words else "X"
    where = "they are in tests/simulation/mutants/catalogue.py"
    assert capsys.readouterr() == ("", f"no mutant has the name or number '{unknown}'; {where}\n")


@pytest.mark.parametrize("option", ["--starts", "--cap", "--runs", "--jobs"])
def test_numbers_that_search_nothing_are_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    for number in ("0", "-1"):
        with pytest.raises(SystemExit) as ended:
            main([f"{option}={number}", "M10"])
        assert ended.value.code == 2
        assert f"{option}: invalid positive value: '{number}'" in capsys.readouterr().err
