"""The files for TLS to ZooKeeper: what is wrong with one is said of that one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.authorities import tls_of

from replog.errors import UsageError
from replog.metadata.zookeeper.encryption import context_of
from replog.security.settings import Tls


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    good, other = tls_of(tmp_path, "broker/1"), tls_of(tmp_path, "broker/2")
    context_of(good)
    context_of(Tls(authority=good.authority))
    locked = tmp_path / "locked.key"
    words = ["openssl", "ec", "-in", str(good.key), "-aes128", "-passout", "pass:abcdef", "-out", str(locked)]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    locked.chmod(0o600)
    for authority, key, said in (
        (str(tmp_path / "none.pem"), good.key, f"the authority '{tmp_path}/none.pem' cannot be read: No such file"),
        (good.authority, str(locked), "locked.key' are no certificate with its key: the key is encrypted"),
        (good.authority, other.key, "broker-2.key' are no certificate with its key: key values mismatch"),
    ):
        with pytest.raises(UsageError) as caught:
            context_of(Tls(authority=authority, certificate=good.certificate, key=key))
        assert said in str(caught.value)
