"""Secrets that change in their files: when the new ones count, and what changes nothing."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from replog.errors import UsageError
from replog.security.kept import KeptSecrets
from replog.security.settings import Security, _read_secrets
from replog.security.watched import LOOK_S

OLD, NEW, OF_BROKERS = b"old secret" * 4, b"new secret" * 4, b"the secret of brokers" * 2


def write(path: Path, secret: bytes, mode: int = 0o600) -> Path:
    """Put it in the place of what is there, at once."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(secret)
    beside.chmod(mode)
    beside.replace(path)
    return path


class Kept:
    """Secrets of brokers and clients in files, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 100.0
        self.client = write(folder / "client.secret", OLD)
        self.next = write(folder / "client.next", OLD)
        given = {"broker": (OF_BROKERS,), "client": (str(self.client), str(self.next))}
        self.secrets = KeptSecrets(given, _read_secrets, now_s=lambda: self.now_s)

    def later(self) -> tuple[bytes, ...]:
        """What is known of clients after a while."""
        self.now_s += LOOK_S
        return self.secrets["client"]


@pytest.fixture
def kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Kept:
    caplog.set_level(logging.INFO, "replog")
    return Kept(tmp_path)


def test_a_change_counts_after_a_second_at_most(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    write(kept.next, NEW)
    assert kept.secrets["client"] == (OLD, OLD)  # it was looked at just now
    assert kept.later() == (OLD, NEW)
    write(kept.client, NEW)
    assert kept.later() == (NEW, NEW)
    assert kept.secrets["broker"] == (OF_BROKERS,)
    assert [record.getMessage() for record in caplog.records] == ["changed secrets are used from now on: those of client"] * 2


@pytest.mark.parametrize("fault", ["short", "open to others", "missing", "of brokers"])
def test_what_cannot_be_used_changes_nothing(kept: Kept, caplog: pytest.LogCaptureFixture, fault: str) -> None:
    write(kept.next, NEW)
    if fault == "missing":
        kept.client.unlink()
    else:
        write(kept.client, {"short": NEW[:9], "of brokers": OF_BROKERS}.get(fault, NEW), 0o644 if fault == "open to others" else 0o600)
    assert kept.later() == kept.later() == (OLD, OLD)
    (line,) = [record.getMessage() for record in caplog.records]  # once, not with each look
    assert line.startswith("secrets that have changed are not used, those of before are: ")
    assert not any(secret.decode() in line for secret in (OLD, NEW, OF_BROKERS))
    write(kept.client, NEW)
    assert kept.later() == (NEW, NEW)


def test_what_could_not_be_read_for_a_while_is_used_afterwards(
    kept: Kept, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(kept.client, NEW)

    def exhausted(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as during:
        during.setattr(os, "open", exhausted)
        assert kept.later() == kept.later() == (OLD, OLD)
    assert kept.later() == (NEW, OLD)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_file_that_cannot_be_read_to_its_end_is_one_that_cannot_be_used(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    kept.client.unlink()
    kept.client.symlink_to("/proc/self/mem")  # a regular file of this user, of which a read fails
    assert kept.later() == (OLD, OLD)
    assert "cannot be read" in caplog.records[0].getMessage()


def test_what_is_written_anew_without_a_change_is_not_told(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    write(kept.client, OLD)
    assert kept.later() == (OLD, OLD)
    assert caplog.records == []


def test_who_there_is_never_changes(kept: Kept) -> None:
    assert (list(kept.secrets), len(kept.secrets), "admin" in kept.secrets) == (["broker", "client"], 2, False)
    assert kept.secrets.get("admin", ()) == ()
    kept.client.unlink()
    kept.now_s += LOOK_S
    assert list(kept.secrets) == ["broker", "client"]


def test_settings_keep_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "s", OLD)
    monkeypatch.chdir(tmp_path)
    security = Security(secret={"client": "s"})
    monkeypatch.chdir("/")
    assert isinstance(security.secret, KeptSecrets)
    security.secret._files._look_s = 0.0
    write(tmp_path / "s", NEW)
    assert security.secret["client"] == (NEW,)  # wherever the process is by now
    assert Security(secret=security.secret).secret is security.secret
    assert OLD.decode() not in repr(Security(secret={"client": OLD}).secret)
    assert NEW.decode() not in repr((security, security.secret))
    os.unlink(tmp_path / "s")
    with pytest.raises(UsageError, match="No such file"):
        Security(secret={"client": str(tmp_path / "s")})
