"""The note in a data folder that says whose it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replog.errors import UsageError
from replog.log.checkpoint import read_plain, write_plain
from replog.log.files import OS
from replog.runtime.owner import Owner


def test_it_is_kept_and_refuses_another_number(tmp_path: Path) -> None:
    Owner(str(tmp_path), 3).joined("c-1")
    assert Owner(str(tmp_path), 3).cluster_id == "c-1"
    with pytest.raises(UsageError, match="is the data folder of broker 3; broker 5 needs one of its own"):
        Owner(str(tmp_path), 5)


@pytest.mark.parametrize("value", [None, 5, [], [3], ["boot", "none"], [True, "c-1"], [3, None], [3, "c-1", 0], {"format": 1}])
def test_a_file_of_another_kind_is_no_note(value: Any, tmp_path: Path) -> None:
    write_plain(OS, str(tmp_path), "owner", value)
    assert Owner(str(tmp_path), 3).cluster_id == ""
    assert read_plain(OS, f"{tmp_path}/owner") == [3, ""]


@pytest.mark.parametrize("there", ["catalogue", "logs/t-0", "quarantine/t-0"])
def test_a_folder_in_which_nobody_was_let_in_may_be_another_s_unless_it_holds_copies(there: str, tmp_path: Path) -> None:
    for name in ("logs", "quarantine"):
        (tmp_path / name).mkdir()
    Owner(str(tmp_path), 3)
    Owner(str(tmp_path), 5)
    assert read_plain(OS, f"{tmp_path}/owner") == [5, ""]
    (tmp_path / there).mkdir()
    with pytest.raises(UsageError, match="is the data folder of broker 5; broker 3 needs one of its own"):
        Owner(str(tmp_path), 3)
    assert read_plain(OS, f"{tmp_path}/owner") == [5, ""]
