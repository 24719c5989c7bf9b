"""Settings: what is refused, with which words, and that no secret is ever among them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.authorities import tls_of

import replog
from replog.errors import UsageError
from replog.security.door import Door
from replog.security.identity import Identity
from replog.security.settings import Security, Tls, security_of
from replog.security.tls import TlsFiles

SECRET, OTHER, THIRD = b"one secret" * 4, b"two secret" * 4, b"six secret" * 4


def file(folder: Path, name: str, data: bytes, mode: int = 0o600) -> Path:
    path = folder / name
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_secrets_come_from_bytes_and_files(tmp_path: Path) -> None:
    path = file(tmp_path, "s", SECRET + b"\n")
    security = Security(secret={"broker": path, "client": [OTHER, str(file(tmp_path, "t", THIRD))]})
    assert security.secret == {"broker": (SECRET,), "client": (OTHER, THIRD)}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610, 0o644, 0o777])
def test_a_secret_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = file(tmp_path, "s", SECRET, mode)
    with pytest.raises(UsageError, match=f"mode {mode:03o}.*chmod 600"):
        Security(secret={"client": path})


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    for path, word in ((tmp_path, "regular"), (tmp_path / "no", "No such file"), (tmp_path / "fifo", "regular"), ("a\0b", "names no file")):
        with pytest.raises(UsageError, match=word):
            Security(secret={"client": str(path)})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "neither tls nor a secret"),
        ({"secret": [SECRET]}, "mapping of roles"),
        ({"secret": {"king": SECRET}}, "'king' is nobody"),
        ({"secret": {"broker/1": SECRET}}, "'broker/1' is nobody"),
        ({"secret": {"client/": SECRET}}, "'client/' is nobody"),
        ({"secret": {"client/a b": SECRET}}, "is nobody"),
        ({"secret": {"client": []}}, "client has none"),
        ({"secret": {"client": SECRET[:31]}}, "31 bytes; allowed are 32"),
        ({"secret": {"client": b"x" * 4097}}, "4097 bytes"),
        ({"secret": {"client": 7}}, "bytes, or the path"),
        ({"secret": {"client": SECRET.decode()}}, "client names no file; it is not shown"),
        ({"secret": {"client": "no/such/folder.of/secrets/that-has-a-long-name"}}, "names no file; it is not shown"),
        ({"secret": {"client": SECRET.decode() + ".x"}}, "names no file; it is not shown"),
        ({"secret": {"client": "/" + SECRET.decode()}}, "names no file; it is not shown"),
        ({"secret": {"client": "//" + SECRET.decode()}}, "names no file; it is not shown"),
        ({"secret": {"client": "one secret"}}, "names no file; it is not shown"),
        ({"tls": {"authority": "a", "certificate": "b", "key": f"-----BEGIN-----{SECRET.decode()}"}}, "key is no path; it is not shown"),
        ({"tls": {"authority": "a", "certificate": "b", "key": f"{SECRET.decode()}\nof more"}}, "key is no path; it is not shown"),
        ({"tls": {"authority": "a", "certificate": "b", "key": SECRET}}, "key is no path; it is not shown"),
        ({"tls": {"authority": "a", "certificate": f"-----BEGIN-----{SECRET.decode()}", "key": "b"}}, "certificate is no path; it is not"),
        ({"secret": {"client": SECRET.decode() * 200}}, "names no file; it is not shown"),
        ({"secret": {"client": SECRET.decode() + "\0"}}, "names no file; it is not shown"),
        ({"secret": {"client": "/usr/no-such-file"}}, "'/usr/no-such-file' cannot be read: No such file"),
        ({"secret": {SECRET.decode(): "client"}}, "a role .not shown: it may be the secret itself. is nobody"),
        ({"secret": {SECRET: "client"}}, "a role .not shown: it may be the secret itself. is nobody"),
        ({"tls": SECRET.decode()}, "given are str"),
        ({"secret": {"client": SECRET, "broker": [OTHER, SECRET]}}, "client and broker have the same"),
        ({"tls": {"certificate": "a"}}, "tls has authority"),
        ({"tls": {"authority": "a", "certificate": "b"}}, "belong together"),
        ({"tls": {"authority": ""}}, "authority is ''"),
        ({"tls": {"authority": "a", "sort": "b"}}, "given are 'authority', 'sort'"),
        ({"tls": {"authority": "a", SECRET.decode(): "b"}}, "given are 'authority', a key .not shown"),
        ({"tls": "a"}, "given are str"),
        ({"secret": {"client": SECRET}, "authorizer": 7}, "authorizer is 7"),
    ],
)
def test_what_cannot_work_is_refused_in_words_without_secrets(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        Security(**arguments)
    assert SECRET[:8].decode() not in str(caught.value)


def test_no_secret_is_shown() -> None:
    security = Security(secret={"client": [SECRET, OTHER], "broker": THIRD})
    shown = f"{security!r} {security} {security.secret} {attrs.asdict(security)}"
    assert "broker, client" in shown
    assert not any(each.decode() in shown or repr(each) in shown for each in (SECRET, OTHER, THIRD))
    assert not any(each.hex() in shown for each in (SECRET, OTHER, THIRD))


@pytest.mark.parametrize(
    ("names", "claim"),
    [
        (["client"], "client"),
        (["client", "admin"], "admin"),
        (["client/a", "client"], "client"),
        (["client/b", "client/a"], "client/a"),
        (["client", "admin/z"], "admin/z"),
        (["broker"], None),
    ],
)
def test_a_client_claims_the_most_that_it_has_a_secret_for(names: list[str], claim: str | None) -> None:
    secrets = {name: bytes([number]) * 32 for number, name in enumerate(names)}
    assert Security(secret=secrets).claim() == claim


def test_a_client_in_the_process_of_a_broker_claims_to_be_that(tmp_path: Path) -> None:
    secrets = {"broker": SECRET, "admin/a": OTHER, "client": THIRD}
    only_secrets, both = Security(secret=secrets), Security(secret=secrets, tls={"authority": "a", "certificate": "b", "key": "c"})
    assert (only_secrets.as_broker().claim(), only_secrets.as_broker().secret) == ("broker", only_secrets.secret)
    assert (both.as_broker().claim(), both.as_broker().tls) == (None, both.tls)
    Security(secret={"broker": SECRET}).as_broker().check_client()


def test_a_file_of_settings(tmp_path: Path) -> None:
    for name, secret in (("b", SECRET), ("c", OTHER), ("d", THIRD)):
        file(tmp_path, name, secret)
    text = b"[tls]\nauthority='ca.pem'\ncertificate='x.pem'\nkey='/x.key'\n"
    text += b"[secret]\nbroker='b'\nclient=['c','d']\n[authorizer]\nrules='r'\n"
    path = file(tmp_path, "s.toml", text, 0o644)
    found = Security.from_file(path)
    assert found.tls == Tls(authority=f"{tmp_path}/ca.pem", certificate=f"{tmp_path}/x.pem", key="/x.key")
    assert found.secret == {"broker": (SECRET,), "client": (OTHER, THIRD)}
    assert found.authorizer == f"{tmp_path}/r"
    assert repr(security_of(path)) == repr(security_of(str(path))) == repr(found)
    assert security_of(found) is found
    assert security_of(None) is None


def test_relative_paths_lead_to_the_same_files_wherever_the_process_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls_of(tmp_path / "ca", "broker/1")
    file(tmp_path, "rules.toml", b'[[allow]]\nprincipals=["client"]\nactions=["read"]\ntopics=["t"]\n')
    file(tmp_path, "secret", SECRET)
    monkeypatch.chdir(tmp_path)
    files = {"authority": "ca/authority.pem", "certificate": Path("ca/broker-1.pem"), "key": "ca/broker-1.key"}
    security = Security(tls=files, secret={"client": "secret"}, authorizer="rules.toml")
    monkeypatch.chdir("/")
    assert TlsFiles(security).loaded(listens=True).fingerprint
    assert Door(security, lambda _: "t")._allows(Identity("client"), "read", "t")
    assert security.secret["client"] == (SECRET,)


def test_a_relative_path_begins_nowhere_once_the_folder_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert Tls(authority=str(tmp_path / "a.pem")).authority == str(tmp_path / "a.pem")
    with pytest.raises(UsageError, match=r"'a\.pem' is a relative path, and the current folder is gone"):
        Tls(authority="a.pem")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[tls", "no TOML"),
        (b"\xff", "no text"),
        (b"[king]\na=1", "king.* is no part"),
        (b"secret='x'", "secret.* is no part"),
        (b"[tls]\nca='x'", "tls. has no 'ca'; it has certificate, key, authority"),
        (b"[tls]\nautority='x'", "tls. has no 'autority'; did you mean 'authority'"),
        (b"[tls]\nauthority=7", "names a file"),
        (b"[secret]\nclient=7", "names a file"),
        (b"[authorizer]\nrule='x'", "no 'rule'"),
        (b"", "neither tls nor a secret"),
        (b"[secret]\nclient='none'", "client names no file; it is not shown"),
        (b"[secret]\nclient='" + SECRET + b".x'", "client names no file; it is not shown"),
        (b"[authorizer]\n[secret]\nclient='c'", "authorizer. has no rules"),
        (b"[secret]\nclient=['" + SECRET + b"']", "client names no file; it is not shown"),
        (b"[secret]\nking='c'", "secret: 'king' is nobody; there are broker"),
        (b"[secret]\n'" + SECRET + b"'='client.secret'", "a role .not shown: it may be the secret itself. is nobody"),
        (b"[secret]\n'" + SECRET + b"'=7", "a role .not shown: it may be the secret itself. is nobody"),
        (b"[secret]\n" + SECRET.hex().encode() + b"=['client.secret']", "a role .not shown: it may be the secret itself. is nobody"),
        (b"['" + SECRET + b"']", "a table .not shown: it may be a secret. is no part of it"),
        (b"'" + SECRET + b"'=1", "a table .not shown: it may be a secret. is no part of it"),
        (b"[tls]\n'" + SECRET + b"'='x'", "tls. has no such key .not shown: it may be a secret.; it has certificate"),
        (b"[authorizer]\n" + SECRET.hex().encode() + b"='x'", "authorizer. has no such key .not shown"),
    ],
)
def test_a_file_of_settings_that_is_wrong_is_named(tmp_path: Path, text: bytes, words: str) -> None:
    path = file(tmp_path, "s.toml", text)
    with pytest.raises(UsageError, match=words) as caught:
        Security.from_file(path)
    assert str(path) in str(caught.value)
    assert SECRET[:8].decode() not in str(caught.value)
    assert SECRET[:8].hex() not in str(caught.value)


def test_settings_that_others_can_change_are_refused(tmp_path: Path) -> None:
    file(tmp_path, "c", SECRET)
    path = file(tmp_path, "s.toml", b"[secret]\nclient='c'", 0o664)
    with pytest.raises(UsageError, match=r"others can change .* \(mode 664\)"):
        Security.from_file(path)


def test_only_settings_and_files_of_them_are_taken() -> None:
    for given in (7, b"x", "", {"secret": {}}):
        with pytest.raises(UsageError, match="the path of a file of settings"):
            security_of(given)  # type: ignore[arg-type]


def test_who_could_prove_nothing_is_told_before_it_connects(tmp_path: Path) -> None:
    only_authority = Security(tls={"authority": "a"}, secret={"broker": SECRET})
    with pytest.raises(UsageError, match="needs a certificate"):
        replog.Broker(1, listen="tcp://127.0.0.1:0", data=None, store="memory://", security=only_authority)
    with pytest.raises(UsageError, match="it has neither"):
        replog.Broker(1, listen="tcp://127.0.0.1:0", data=None, store="memory://", security=Security(secret={"client": SECRET}))
    with pytest.raises(UsageError, match="it has neither"):
        replog.connect("a:1", security=only_authority)
    with pytest.raises(UsageError, match="without listen"):
        replog.Cluster(security=Security(secret={"client": SECRET}))
    with pytest.raises(UsageError, match="no tls"):
        replog.Cluster(listen="tcp://127.0.0.1:0", security=only_authority)
