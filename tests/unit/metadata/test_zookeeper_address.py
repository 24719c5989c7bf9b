"""What ZooKeeperStore says of an address that is none: never what could be a password in it."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from replog.errors import UsageError
from replog.metadata.zookeeper import store


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("zk1:99999/replog", "hosts, where 'zk1:99999/replog' begins, are not HOST:PORT"),
        (b"zk1:2181", "is a str, HOST:PORT,HOST:PORT/CHROOT, not of type bytes"),
        ("zk://zk1:2181/replog", "address 'zk://zk1:2181/replog' is not HOST:PORT,HOST:PORT/CHROOT"),
        (" zookeeper://zk1:2181", "address ' zookeeper://zk1:2181' is not HOST:PORT,HOST:PORT/CHROOT"),
        ("zk1:2181//replog", "store path '//replog' has a name ''"),
    ],
)
def test_a_bad_address_is_refused_with_what_is_wrong(address: Any, complaint: str) -> None:
    with pytest.raises(UsageError) as refused:
        store.ZooKeeperStore(address)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "user:S3cr@zk1:2181",
        "digest:user:S3cr@zk1",
        "zookeeper://user:S3cr/S3cr@zk1",
        "user:S3cr/x@zk1:2181",
        "user:[S3cr/x@zk1",
        "zk1:2181,user:S3cr@zk2:2181",
        "[user:S3cr@::1]:2181",
        "ZOOKEEPER://user:S3cr@zk1:2181/replog",
        "zk://user:S3cr@zk1:2181/replog",
        " zookeeper://user:S3cr@zk1:2181",
        "zookeeper:/user:S3cr@zk1:2181/",
        "user:21//S3cr@zk1:2181",
        "user/p//S3cr@zk1:2181",
        "zk1:2181/digest:user:S3cr@/",
        "zookeeper://user:12/S3cr@zk1:2181/r",
        "user:S3cr?S3cr@zk1:2181",
    ],
)
def test_credentials_in_an_address_are_refused_wherever_they_stand_and_are_not_shown(address: str) -> None:
    with pytest.raises(UsageError, match=r'has no place for credentials; give auth=\("digest", USER, PASSWORD\)') as refused:
        store.ZooKeeperStore(address)
    assert "S3cr" not in said(refused.value)


@pytest.mark.parametrize("address", ["zk1:2181?auth=user:S3cr", "zk1/replog?password=S3cr", "zk1/replog?password=S3cr//", "zk1?S3cr"])
def test_options_in_an_address_are_refused_and_not_shown(address: str) -> None:
    with pytest.raises(UsageError, match="has no place for options") as refused:
        store.ZooKeeperStore(address)
    assert "S3cr" not in said(refused.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("zookeeper://user:S3cr", "'zookeeper://user:***'"),
        ("user:S3cr/S3cr", "'user:***'"),
        ("zk1:2181,[::1]:2182,user:S3cr,zk3", "'zk1:2181,[::1]:2182,user:***'"),
        ("user:21S3cr//x", "'user:***'"),
        ("zookeeper:///user:S3cr/r", "'zookeeper:///user:***'"),
        ("zookeeper://[user:S3cr]/r", "'zookeeper://[user:***'"),
        ("zk1:2181,zk2:99999/x:y", "'zk1:2181,zk2:99999/x:y'"),
    ],
)
def test_what_stands_for_a_port_is_not_shown_unless_it_is_a_number(address: str, shown: str) -> None:
    """The end of a password with its @ may have been forgotten."""
    with pytest.raises(UsageError) as refused:
        store.ZooKeeperStore(address)
    assert f"where {shown} begins" in str(refused.value)
    assert "S3cr" not in said(refused.value)


def test_what_kazoo_says_of_a_port_is_not_told_with_the_error() -> None:
    with pytest.raises(UsageError, match="are not HOST:PORT") as refused:
        store.ZooKeeperStore("zk1:2l81")
    assert "cast to integer" not in said(refused.value)


@pytest.mark.parametrize(
    ("address", "hosts", "chroot"),
    [
        ("zk1", "zk1", ""),
        ("zk1:2181/", "zk1:2181", ""),
        ("zk1:2181,zk2:2182,zk3/replog/one", "zk1:2181,zk2:2182,zk3", "/replog/one"),
        ("zookeeper://[::1]:2181,[fe80::2]/a:b=c", "[::1]:2181,[fe80::2]", "/a:b=c"),
        ("ZooKeeper://zk1:2181/replog", "zk1:2181", "/replog"),
    ],
)
def test_a_good_address_is_hosts_and_a_chroot(address: str, hosts: str, chroot: str) -> None:
    assert store._parse(address) == (hosts, chroot)


def said(error: BaseException) -> str:
    """What a log has of it, without the lines of this file and of the library."""
    return "".join(line for line in traceback.format_exception(error) if not line.startswith("  File"))
