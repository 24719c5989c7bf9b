"""Certificates that `replog cert` makes: what is in them, who may read what, and what is refused."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import ssl
import stat
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.authorities import expired

from replog.cli.command import main
from replog.errors import UsageError
from replog.security import authority
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


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    run(str(tmp_path), "broker/1")
    before = files(tmp_path)
    status, lines, told = run(str(tmp_path), "client/a", "broker/1", "client/a")
    assert (status, told) == (0, "")
    assert lines == [
        f"authority: {tmp_path}/authority.pem, and its key authority.key, were there",
        f"client/a: {tmp_path}/client-a.pem, and its key client-a.key",
        f"broker/1: {tmp_path}/broker-1.pem, and its key broker-1.key, were there",
    ]
    after = files(tmp_path)
    assert {name: after.pop(name) for name in before} == before
    assert sorted(after) == ["client-a.key", "client-a.pem"]
    status, lines, _ = run(str(tmp_path), "client/a", "client/b", "--format", "json")
    assert (status, [json.loads(line)["made"] for line in lines]) == (0, [False, False, True])


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (("broker-2.key",), "broker-2.key exists, and is not written over, and broker-2.pem is missing"),
        (("broker-2.pem",), "broker-2.pem exists, and is not written over, and broker-2.key is missing"),
        (("broker-2.pem", "broker-2.key"), "broker-2.pem and broker-2.key exist, and are no certificate with its key"),
    ],
)
def test_what_is_in_the_way_is_named_before_anything_is_made(tmp_path: Path, there: tuple[str, ...], says: str) -> None:
    """The first name had its certificate by then, and with that each repetition failed."""
    for name in there:
        (tmp_path / name).write_text("precious")
        (tmp_path / name).chmod(0o600)
    before = files(tmp_path)
    for names in (("broker/1", "broker/2"), ("broker/2", "broker/1")):
        status, lines, told = run(str(tmp_path), *names)
        assert (status, lines) == (2, [])
        assert f"{tmp_path}/{says}" in told
        assert files(tmp_path) == before


def test_a_name_that_is_none_is_found_before_anything_is_made(tmp_path: Path) -> None:
    status, lines, told = run(str(tmp_path / "ca"), "broker/1", "king/1")
    assert (status, lines) == (2, [])
    assert "'king/1' is no name for a certificate" in told
    assert not (tmp_path / "ca").exists()


@pytest.mark.parametrize("half", ["authority.pem", "authority.key"])
def test_half_an_authority_is_none(tmp_path: Path, half: str) -> None:
    run(str(tmp_path))
    (tmp_path / half).rename(tmp_path / "elsewhere")
    status, _, told = run(str(tmp_path), "broker/1")
    assert status == 2
    assert f"{half} is missing" in told
    assert len(files(tmp_path)) == 2


def test_a_pair_of_another_authority_or_of_another_name_is_in_the_way(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    run(str(here), "broker/1")
    run(str(there), "broker/1", "broker/2")
    for end in ("pem", "key"):
        shutil.copy(there / f"broker-2.{end}", here / f"broker-2.{end}")
    status, _, told = run(str(here), "broker/2", "broker/3")
    assert status == 2
    assert f"{here}/broker-2.pem exists, and is not accepted by authority.pem: " in told
    for end in ("pem", "key"):
        shutil.copy(here / f"broker-1.{end}", here / f"broker-2.{end}")
    status, _, told = run(str(here), "broker/2", "broker/3")
    assert status == 2
    assert f"{here}/broker-2.pem exists, and is not of broker/2" in told
    for end in ("pem", "key"):
        (here / f"authority.{end}").unlink()
    status, _, told = run(str(here), "broker/1")
    assert status == 2
    assert f"{here}/broker-1.pem exists, and {here}/authority.pem, which would have signed it, does not" in told


def test_what_has_expired_is_not_taken_for_made(tmp_path: Path) -> None:
    tls = expired(tmp_path, "broker/1")
    Path(tls.certificate).replace(tmp_path / "broker-1.pem")
    status, _, told = run(str(tmp_path), "broker/1")
    assert status == 2
    assert "broker-1.pem exists, and is not accepted by authority.pem: certificate has expired; move it and broker-1.key away" in told


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)


def give(folder: Path, *, ends: float = 30 * 86_400, more: str = "basicConstraints=critical,CA:TRUE") -> None:
    """Give the authority of this folder another certificate of its own, with that extension, which ends in so many seconds."""
    (folder / "index").write_text("")
    (folder / "ca.cnf").write_text(
        f"[ca]\ndefault_ca=a\n[a]\ndatabase={folder}/index\nrand_serial=yes\nnew_certs_dir={folder}\ndefault_md=sha256\npolicy=p\n"
        f"x509_extensions=x\n[p]\ncommonName=supplied\n[x]\n{more}\n"
    )
    openssl("req", "-new", "-key", f"{folder}/authority.key", "-subj", "/CN=replog authority", "-out", f"{folder}/asked")
    end = datetime.fromtimestamp(time.time() + ends, UTC)
    words = ["-keyfile", f"{folder}/authority.key", "-in", f"{folder}/asked", "-out", f"{folder}/made", "-notext"]
    words += ["-startdate", "20200101000000Z", "-enddate", f"{end:%Y%m%d%H%M%SZ}"]
    openssl("ca", "-batch", "-selfsign", "-config", f"{folder}/ca.cnf", *words)
    for path in folder.iterdir():
        if path.name == "made":
            (folder / "authority.pem").write_bytes(path.read_bytes())
        if not path.name.startswith("authority."):
            path.unlink()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"ends": -60.0}, "signs nothing: nobody would accept it (certificate has expired)"),
        ({"more": "basicConstraints=CA:FALSE"}, "signs nothing: it is no certificate of an authority"),
        ({"more": "subjectKeyIdentifier=hash"}, "signs nothing: it is no certificate of an authority"),
        ({"more": "basicConstraints=CA:TRUE\nkeyUsage=digitalSignature"}, "signs nothing: "),
    ],
)
def test_an_authority_that_nobody_would_accept_signs_nothing(tmp_path: Path, given: dict[str, Any], why: str) -> None:
    run(str(tmp_path))
    give(tmp_path, **given)
    before = files(tmp_path)
    for names in (["broker/1"], []):
        status, lines, told = run(str(tmp_path), *names)
        assert (status, lines) == (2, [])
        assert f"{tmp_path}/authority.pem {why}" in told
        assert files(tmp_path) == before


def test_a_certificate_of_somebody_signs_nothing(tmp_path: Path) -> None:
    run(str(tmp_path), "client/x")
    for end in ("pem", "key"):
        (tmp_path / f"client-x.{end}").replace(tmp_path / f"authority.{end}")
    before = files(tmp_path)
    status, lines, told = run(str(tmp_path), "broker/1")
    assert (status, lines) == (2, [])
    assert f"{tmp_path}/authority.pem signs nothing: nobody would accept it (unable to get" in told
    assert files(tmp_path) == before


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    run(str(tmp_path))
    give(tmp_path, ends=2.5 * 86_400)
    before = files(tmp_path)
    status, lines, told = run(str(tmp_path), "broker/1", "--days", "4")
    assert (status, lines) == (2, [])
    day = "[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2} UTC"
    assert re.search(f"days is 4, until {day}, and {tmp_path}/authority.pem ends on {day}; allowed are 1 to 3$", told, re.MULTILINE)
    assert files(tmp_path) == before
    assert run(str(tmp_path), "broker/1", "--days", "3")[0] == 0  # the last day has begun
    assert run(str(tmp_path), "broker/2")[0] == 0  # nobody has said how long
    for name in ("broker-1", "broker-2"):
        openssl("x509", "-in", f"{tmp_path}/{name}.pem", "-noout", "-checkend", str(2 * 86_400))
        with pytest.raises(subprocess.CalledProcessError):
            openssl("x509", "-in", f"{tmp_path}/{name}.pem", "-noout", "-checkend", str(3 * 86_400 + 60))
    assert run(str(tmp_path), "broker/1", "--days", "3650")[0] == 0  # which makes nothing


@pytest.mark.parametrize(
    ("name", "mode", "why"),
    [
        ("authority.key", 0o644, "others can read the key '{}/authority.key' (mode 644); chmod 600 it"),
        ("authority.pem", 0o666, "others can change the certificate '{}/authority.pem' (mode 666); chmod 644 it"),
        ("broker-1.key", 0o640, "others can read the key '{}/broker-1.key' (mode 640); chmod 600 it"),
        ("", 0o777, "others can change the folder '{}' (mode 777); chmod 700 it"),
        ("", 0o1777, "others can change the folder '{}' (mode 1777); chmod 700 it"),
    ],
)
def test_what_others_can_read_or_change_signs_nothing(tmp_path: Path, name: str, mode: int, why: str) -> None:
    folder = tmp_path / "ca"
    run(str(folder), "broker/1")
    (folder / name).chmod(mode)
    before = files(folder)
    status, lines, told = run(str(folder), "broker/1", "broker/2")
    assert (status, lines) == (2, [])
    assert why.format(folder) in told
    assert files(folder) == before


@pytest.mark.parametrize("mode", [0o777, 0o702])
def test_nothing_is_made_where_others_could_replace_it(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    status, _, told = run(str(tmp_path), "broker/1")
    assert status == 2
    assert f"others can change the folder '{tmp_path}'" in told
    assert files(tmp_path) == {}


def test_an_empty_folder_is_closed_to_its_group_first(tmp_path: Path) -> None:
    """As `mkdir` makes it under many a umask."""
    tmp_path.chmod(0o775)
    status, _, told = run(str(tmp_path), "broker/1")
    assert (status, told) == (0, "")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    tmp_path.chmod(0o775)  # no longer empty
    assert run(str(tmp_path), "broker/1")[0] == 2


@pytest.mark.parametrize("name", ["", "authority.key", "authority.pem"])
def test_an_authority_that_somebody_else_has_put_there_signs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    run(str(tmp_path))
    planted, stat, fstat, user = os.stat(tmp_path / name).st_ino, os.stat, os.fstat, os.geteuid()

    def owned(found: os.stat_result) -> os.stat_result:
        return os.stat_result([*found[:4], user + 1 if found.st_ino == planted else user, *found[5:]])

    monkeypatch.setattr(os, "stat", lambda *where, **how: owned(stat(*where, **how)))
    monkeypatch.setattr(os, "fstat", lambda fd: owned(fstat(fd)))
    status, _, told = run(str(tmp_path), "broker/1")
    assert status == 2
    assert f"'{tmp_path / name}' belongs to user {user + 1}; allowed are this user and root" in told
    assert sorted(files(tmp_path)) == ["authority.key", "authority.pem"]


def test_if_one_cannot_be_made_none_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = authority.make_certificate

    def failing(folder: Path, name: str, *, days: int) -> Path:
        if name == "client/b":
            raise UsageError("the disk is full")
        return whole(folder, name, days=days)

    run(str(tmp_path), "broker/1")
    before = files(tmp_path)
    monkeypatch.setattr(authority, "make_certificate", failing)
    status, lines, told = run(str(tmp_path), "broker/1", "client/a", "client/b")
    assert (status, lines) == (2, [])
    assert "the disk is full" in told
    assert files(tmp_path) == before


def test_nothing_is_written_over(tmp_path: Path) -> None:
    make_authority(tmp_path, days=1)
    make_certificate(tmp_path, "broker/1", days=1)
    before = files(tmp_path)
    with pytest.raises(UsageError, match=r"broker-1\.key exists, and is not written over"):
        make_certificate(tmp_path, "broker/1", days=1)
    assert files(tmp_path) == before


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
