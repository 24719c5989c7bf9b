"""Files of TLS: whose are believed, and that nobody else can add an authority to them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from attrs import evolve
from tests.authorities import CLIENT_SECRET, tls_of

from replog.errors import UsageError
from replog.security.settings import Security, Tls
from replog.security.tls import TlsFiles

NAMES = ["authority", "certificate"]


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return tls_of(tmp_path / "ca", "broker/1")


def load(tls: Tls) -> bytes:
    """The fingerprint of the certificate that is shown."""
    return TlsFiles(Security(tls=tls)).loaded(listens=True).fingerprint


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", [0o666, 0o664, 0o602])
def test_one_that_others_can_change_is_refused(tls: Tls, name: str, mode: int) -> None:
    """Whoever may append an authority makes brokers."""
    path = getattr(tls, name)
    os.chmod(path, mode)
    with pytest.raises(UsageError, match=rf"others can change the {name} '{path}' \(mode {mode:03o}\); chmod 644 it"):
        load(tls)
    os.chmod(path, 0o644)
    assert len(load(tls)) == 32


@pytest.mark.parametrize("name", NAMES)
def test_one_that_others_come_to_change_is_not_used_from_then_on(tls: Tls, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="replog")
    files = TlsFiles(Security(tls=tls))
    before = files.loaded(listens=True)
    os.chmod(getattr(tls, name), 0o646)
    assert files.loaded(listens=True) is before
    assert [f"others can change the {name}" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_is_refused_and_not_waited_for(tls: Tls, tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UsageError, match=f"the {name} '{tmp_path}/pipe' is no regular file"):
        load(evolve(tls, **{name: str(tmp_path / "pipe")}))


@pytest.mark.parametrize("name", NAMES)
def test_it_belongs_to_this_user_or_to_root(tls: Tls, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found_of, odd = os.fstat, os.stat(getattr(tls, name)).st_ino
    owner = os.geteuid()

    def owned(fd: int) -> os.stat_result:
        found = list(found_of(fd))
        found[4] = owner if found[1] == odd else os.geteuid()
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", owned)
    load(tls)
    owner = 0
    load(tls)
    owner = os.geteuid() + 1
    with pytest.raises(UsageError, match=f"the {name} '.*' belongs to user {owner}; allowed are this user and root"):
        load(tls)


def test_files_behind_links_in_a_shared_folder_as_kubernetes_mounts_them(tls: Tls, tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    (mount / "..2026").mkdir(parents=True)
    mount.chmod(0o1777)
    (mount / "..data").symlink_to("..2026")
    for name in (*NAMES, "key"):
        source = Path(getattr(tls, name))
        made = mount / "..2026" / name
        made.write_bytes(source.read_bytes())
        made.chmod(0o400 if name == "key" else 0o444)
        (mount / name).symlink_to(f"..data/{name}")
    assert load(Tls(**{name: str(mount / name) for name in (*NAMES, "key")})) == load(tls)
    (mount / "..2026" / "authority").chmod(0o666)  # the file counts, not the link
    with pytest.raises(UsageError, match="others can change the authority"):
        load(Tls(**{name: str(mount / name) for name in (*NAMES, "key")}))


def test_a_bundle_with_names_that_are_no_ascii(tls: Tls, tmp_path: Path) -> None:
    other = tls_of(tmp_path / "other", "client/a")
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes("# Größe\n".encode() + Path(other.authority).read_bytes() + b"# \xff\n" + Path(tls.authority).read_bytes())
    bundle.chmod(0o644)
    loaded = TlsFiles(Security(tls=Tls(authority=str(bundle)), secret={"client": CLIENT_SECRET})).loaded(listens=False)
    assert loaded.context.cert_store_stats()["x509_ca"] == 2


@pytest.mark.parametrize(("text", "why"), [("", "Empty certificate data"), ("words", "no start line.*a certificate$")])
def test_a_file_without_an_authority(tls: Tls, tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "none.pem"
    path.write_text(text)
    path.chmod(0o644)
    with pytest.raises(UsageError, match=f"no certificates of an authority in '{path}': {why}"):
        load(evolve(tls, authority=str(path)))
