"""What the system says about a folder, as people are told it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import replog
from replog.config import BrokerConfig
from replog.errors import LogDamaged, LogFull, UsageError
from replog.log.files import Fs
from replog.runtime.folder import open_directory


class Refusing(Fs):
    """Makes no folder."""

    def __init__(self, number: int, words: str, file: str | None) -> None:
        self.problem = OSError(number, words) if file is None else OSError(number, words, file)

    def mkdir(self, path: str) -> None:
        raise self.problem


@pytest.mark.parametrize(
    ("fs", "kind", "told"),
    [
        (Refusing(errno.EIO, "Input/output error", None), LogDamaged, "d cannot be opened: Input/output error"),
        (Refusing(errno.ENOSPC, "No space left on device", "d"), LogFull, "d cannot be opened: No space left on device"),
        (Refusing(errno.EACCES, "Permission denied", "d/logs"), LogDamaged, "d cannot be opened: Permission denied (d/logs)"),
    ],
)
def test_a_directory_that_cannot_be_opened(
    fs: Fs, kind: type[Exception], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as refused:
        open_directory("d", BrokerConfig(), fs)
    assert str(refused.value) == told


def test_a_cluster_whose_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as refused, replog.Cluster(tmp_path / "file" / "data"):
        pass
    assert str(refused.value) == f"{tmp_path}/file/data cannot hold a cluster: Not a directory"
