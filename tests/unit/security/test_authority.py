"""Certificates that `replog cert` makes: what is in them, who may read what, and what is refused."""

from __future__ import annotations

import io
import json
import ssl
import stat
from pathlib import Path

import pytest

from replog.cli.command import main
from replog.errors import UsageError
from replog.security.authority import make_authority, make_certificate


def run(*words: str) -> tuple[int, list[str], str]:
    out, told = io.BytesIO(), io.StringIO()
    status = main(["cert", *words], stdin=io.BytesIO(), stdout=out, stderr=told)
    return status, out.getvalue().decode().splitlines(), told.getvalue()


def test_an_authority_and_certificates(tmp_path: Path) -> None:
    folder = tmp_path / "ca"
    status, lines, told = run(str(folder), "broker/1", "client/a", "--days", "3")
    assert (status, told) == (0, "")
    assert [line.partition(":")[0] for line in lines] == ["authority", "broker/1", "client/a"]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    names = ("authority", "broker-1", "client-a")
    assert modes == {f"{name}.key": 0o600 for name in names} | {f"{name}.pem": 0o644 for name in names}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(folder / "authority.pem")
    context.load_cert_chain(folder / "broker-1.pem", folder / "broker-1.key")
    status, lines, _ = run(str(folder), "admin/b", "--format", "json")  # by the authority that is there
    assert [json.loads(line)["name"] for line in lines] == ["authority", "admin/b"]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    make_authority(tmp_path, days=1)
    make_certificate(tmp_path, "broker/1", days=1)
    before = (tmp_path / "broker-1.key").read_bytes()
    status, _, told = run(str(tmp_path), "broker/1")
    assert status == 2
    assert "broker-1.key exists, and is not written over" in told
    assert (tmp_path / "broker-1.key").read_bytes() == before


@pytest.mark.parametrize("name", ["broker", "broker/x", "king/1", "client/", "../x", "client/../x", "client/a b"])
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    make_authority(tmp_path, days=1)
    with pytest.raises(UsageError, match="no name for a certificate"):
        make_certificate(tmp_path, name, days=1)
    assert len(list(tmp_path.iterdir())) == 2


def test_what_openssl_refuses_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="openssl could not make"):
        make_certificate(tmp_path, "broker/1", days=1)  # there is no authority
    assert list(tmp_path.iterdir()) == []


def test_without_openssl_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    status, _, told = run(str(tmp_path / "ca"), "broker/1")
    assert status == 2
    assert "the command openssl, which is not installed" in told


@pytest.mark.parametrize("days", [0, 3_651])
def test_days_have_limits(tmp_path: Path, days: int) -> None:
    with pytest.raises(UsageError, match="allowed are 1 to 3650"):
        make_authority(tmp_path, days=days)


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("precious")
    make_authority(tmp_path, days=1)
    (tmp_path / "broker-1.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="not written over"):
        make_certificate(tmp_path, "broker/1", days=1)
    assert (tmp_path / "elsewhere").read_text() == "precious"
