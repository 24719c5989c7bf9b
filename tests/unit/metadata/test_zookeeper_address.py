"""What ZooKeeperStore says of an address that is none: never what could be a password in it."""

from __future__ import annotations

from typing import Any

import pytest

from replog.errors import UsageError
from replog.metadata.zookeeper import store


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("user:pa/ss@zk1:2181", "hosts, where '***@zk1:2181' begins, are not HOST:PORT"),
        ("zookeeper://user:pa/ss@zk1", "hosts, where 'zookeeper://***@zk1' begins, are not HOST:PORT"),
        ("user:secret@zk1:2181", "has no place for credentials"),
        ("zk1:99999/replog", "hosts, where 'zk1:99999/replog' begins, are not HOST:PORT"),
        (b"zk1:2181", "is a str, HOST:PORT,HOST:PORT/CHROOT, not of type bytes"),
    ],
)
def test_a_bad_address_is_refused_without_its_password(address: Any, complaint: str) -> None:
    with pytest.raises(UsageError) as refused:
        store.ZooKeeperStore(address)
    assert complaint in str(refused.value)
    assert not any(part in str(refused.value) for part in ("secret", "pa/", "ss@"))
