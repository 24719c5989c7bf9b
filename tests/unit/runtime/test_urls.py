"""Stores by URL: what opens what, and what a bad URL is told."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from replog import BrokerProcess
from replog.errors import UsageError
from replog.metadata.file import FileStore
from replog.metadata.memory import MemoryStore
from replog.ports import Create, MetadataStore
from replog.runtime import urls
from replog.runtime.urls import open_store
from replog.security.shown import shown

Register = Callable[..., None]


def refuse_scan(**_: object) -> None:
    raise AssertionError("looked for entry points")


def test_memory_opens_a_new_tree_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "entry_points", refuse_scan)
    with open_store("memory://", session_ms=9_000) as one, open_store("memory://", session_ms=9_000) as two:
        one.commit([Create("/a", b"")])
        assert two.list("/") == []


@pytest.mark.parametrize(
    ("url", "name", "session_ms"),
    [
        ("file://{0}/store.db", "store.db", 5_000),
        ("FILE://{0}/store.db", "store.db", 5_000),
        ("file://{0}/store.db?session_ms=700", "store.db", 700),
        ("file://{0}/with%20a%3Fmark", "with a?mark", 5_000),
        ("file://{0}/with a space#1", "with a space#1", 5_000),
        ("file://store.db", "store.db", 5_000),
        ("file://./store.db", "store.db", 5_000),
    ],
)
def test_file_opens_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, name: str, session_ms: int) -> None:
    monkeypatch.setattr(urls, "entry_points", refuse_scan)
    monkeypatch.chdir(tmp_path)
    with open_store(url.format(tmp_path), session_ms=5_000) as store:
        assert isinstance(store, FileStore)
        assert store.path == str(tmp_path / name)
        assert store.session_ms == session_ms
        assert (tmp_path / name).is_file()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file://", "does not name a file"),
        ("file:///", "does not name a file"),
        ("file:///missing/folder/store.db", "No such file"),
        ("file:///%00", "does not name a file"),
        ("file:///tmp/x?session_ms=9s", "not '9s'"),
        ("file:///tmp/x?session_ms=-5", "not '-5'"),
        ("file:///tmp/x?session_ms=", "not ''"),
        ("file:///tmp/x?session_ms=5", "session_ms is 5; at least 100"),
        ("file:///tmp/x?session_ms=86400001", "at most 86400000"),
        ("file:///tmp/x?session_ms=500&session_ms=600", "given 2 times"),
        ("file:///tmp/x?sessionms=500", "no option 'sessionms'; session_ms is the only one"),
        ("file:///tmp/x?500", "NAME=VALUE"),
        ("memory://name", "has no name"),
        ("zookeeper://", "names no server"),
        ("zookeeper://localhost:1?timeout=5", "no option 'timeout'"),
        ("zookeeper://localhost:1?secure=yes", "true or false, not 'yes'"),
        ("zookeeper://localhost:1?secure=true", "needs auth"),
        ("zookeeper://localhost:1?secure=true&secure=true", "given 2 times"),
        ("zookeeper://localhost:1?key=k", "needs an authority"),
        ("zookeeper://localhost:1?authority=a&key=k", "belong together"),
        ("zookeeper://localhost:1?authority=/none", "No such file"),
        ("zookeeper://localhost:1?auth=/none", "cannot be read"),
        ("file:///tmp/x?auth=a", "no option 'auth'"),
        ("etcd://localhost:2379", "no store is registered for etcd://; known are memory://, file://PATH, zookeeper://HOSTS/CHROOT"),
        ("/var/lib/store.db", "not the URL of a store: known are memory://, file://PATH"),
        ("", "not the URL of a store"),
        ("file:/x", "not the URL of a store"),
        ("file:store.db", "'file:store.db' is not the URL of a store"),
    ],
)
def test_a_bad_url_is_named(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        open_store(url, session_ms=9_000)
    assert repr(shown(url)) in str(caught.value)


def test_what_is_neither_url_nor_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not 5"):
        open_store(5, session_ms=9_000)
    with pytest.raises(UsageError, match="Path"):
        open_store(tmp_path, session_ms=9_000)


@pytest.mark.parametrize(
    "url",
    [
        "zookeeper://user:S3cr@localhost:1/x", "zookeeper://user:S3cr/S3cr@localhost:1/x", "zookeeper://user:S3cr?S3cr@localhost:1/x",
        "zookeeper://localhost:1/x?password=S3cr", "zookeeper://localhost:1/x?auth=user:S3cr", "zookeeper://localhost:1/x?S3cr",
        "zookeeper://localhost:1/x?auth=S3cr&session_ms=9s", "zookeeper://user:S3cr@", "zookeeper://?auth=S3cr",
        "zookeeper://user:S3cr", "zookeeper://user:S3cr/x?nosuch=1", "zookeeper://localhost:1,user:S3cr/x", "user:S3cr",
        "zookeeper://user:12/S3cr@localhost:1/x", "zookeeper://localhost:1/S3cr@x", "user:S3cr//S3cr@localhost:1", "zk:/u:S3cr//S3cr@x",
        "etcd://user:S3cr@localhost:1/x", "memory://user:S3cr@", "memory://x?password=S3cr",
        "file:///no/such/folder/store.db?password=S3cr", "file:///store.db?key=S3cr", "memory://?key=S3cr", "file:///store.db?auth=/tmp/S3cr",
        "file:///?password=S3cr", "user:S3cr@localhost:1",
    ],
)  # fmt: skip
def test_credentials_are_not_shown(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(url, session_ms=9_000)
    assert "S3cr" not in "".join(traceback.format_exception(caught.value)), "nor is it in what led to the error"


def test_no_process_is_begun_with_credentials_in_an_error() -> None:
    with pytest.raises(UsageError) as caught:
        BrokerProcess(1, data=None, store="memory://user:S3cr@x")
    assert "S3cr" not in str(caught.value)


def test_a_missing_file_of_credentials_is_named_where_it_could_be_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"'{tmp_path}/none' cannot be read: No such file"):
        open_store(f"zookeeper://localhost:1?auth={tmp_path}/none", session_ms=9_000)


def test_a_store_gives_another_session_even_after_it_was_lost() -> None:
    with MemoryStore() as mine:
        one = open_store(mine, session_ms=9_000)
        assert one is not mine
        one.commit([Create("/a", b"", ephemeral=True)])
        assert mine.list("/") == ["a"]
        one.close()
        assert mine.list("/") == []
        mine.expire()
        with open_store(mine, session_ms=9_000) as two:
            two.commit([Create("/b", b"")])


def test_a_store_that_cannot_give_another_session_is_refused() -> None:
    class Single(MemoryStore):
        session = None  # type: ignore[assignment]

    with Single() as single, pytest.raises(UsageError, match=r"Single has no method session\(\)"):
        open_store(single, session_ms=9_000)


def test_zookeeper_without_kazoo_says_what_to_install() -> None:
    code = """
import sys
sys.modules["kazoo"] = None
from replog.errors import UsageError
from replog.runtime.urls import open_store
try:
    open_store("zookeeper://localhost:1", session_ms=9_000)
except UsageError as error:
    assert "replog[zookeeper]" in str(error) and "zookeeper://localhost:1" in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_it_imports_no_backend() -> None:
    code = """
import sys
import replog.runtime.urls
found = [name for name in ("kazoo", "sqlite3", "replog.metadata.file", "replog.metadata.zookeeper") if name in sys.modules]
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# --------------------------------------------------------------------------------------------------- other packages

opened: list[tuple[str, int]] = []


def open_theirs(url: str, *, session_ms: int) -> MetadataStore:
    opened.append((url, session_ms))
    return MemoryStore()


def open_nonsense(url: str, *, session_ms: int) -> object:
    return (url, session_ms)


NOT_CALLABLE = 5


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Pretends that packages are installed that registered these (name, object) pairs."""

    def pretend(*pairs: tuple[str, str]) -> None:
        entries = [metadata.EntryPoint(name, value, urls.STORES) for name, value in pairs]

        def entry_points(*, group: str, name: str | None = None) -> list[metadata.EntryPoint]:
            assert group == "replog.stores"
            return [entry for entry in entries if name is None or entry.name == name]

        monkeypatch.setattr(urls, "entry_points", entry_points)

    monkeypatch.setitem(sys.modules, "their_store", sys.modules[__name__])
    return pretend


def test_a_registered_scheme_gets_the_url_as_it_is(register: Register) -> None:
    register(("theirs", "their_store:open_theirs"), ("other", "their_store:open_nonsense"))
    open_store("theirs://somewhere/x?y=z", session_ms=700).close()
    assert opened[-1] == ("theirs://somewhere/x?y=z", 700)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("their_store:open_nonsense", "returned tuple"),
        ("their_store:NOT_CALLABLE", "cannot be called"),
        ("their_store:missing", "cannot be imported"),
        ("missing_package:x", "cannot be imported: No module named 'missing_package'"),
    ],
)
def test_mistakes_of_other_packages_are_named(register: Register, value: str, why: str) -> None:
    register(("theirs", value))
    with pytest.raises(UsageError, match=why) as caught:
        open_store("theirs://x", session_ms=700)
    assert "'theirs://x'" in str(caught.value)
    assert value in str(caught.value)


def test_two_packages_with_one_scheme_are_refused(register: Register) -> None:
    register(("theirs", "their_store:open_theirs"), ("theirs", "their_store:open_nonsense"))
    with pytest.raises(UsageError, match="several"):
        open_store("theirs://x", session_ms=700)


def test_registered_schemes_are_among_the_known_ones(register: Register) -> None:
    register(("theirs", "their_store:open_theirs"), ("file", "their_store:open_nonsense"))
    with pytest.raises(UsageError, match=r"zookeeper://HOSTS/CHROOT, theirs://$"):
        open_store("unknown://x", session_ms=700)


@pytest.mark.parametrize("text", ["", "me", "me:", ":secret-word", "me:secret-word\nmore", "\n"])
def test_credentials_that_are_none_are_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "auth"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="no line USER:PASSWORD") as caught:
        open_store(f"zookeeper://localhost:1?auth={path}", session_ms=9_000)
    assert "secret-word" not in str(caught.value)


def test_credentials_that_others_can_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "auth"
    path.write_text("me:secret-word")
    path.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        open_store(f"zookeeper://localhost:1?auth={path}", session_ms=9_000)


@pytest.mark.parametrize(
    ("given", "lasts_as"),
    [
        ("file://store.db", "file://{0}store.db"),
        ("FILE://./a%20b.db?session_ms=700", "FILE://{0}./a%20b.db?session_ms=700"),
        ("file:///x/store.db", None),
        ("file://%2Fx/store.db", None),
        ("zookeeper://a:1/x", None),
        ("zookeeper://a:1,b:2/x?auth=zk.auth&session_ms=7", "zookeeper://a:1,b:2/x?auth={0}zk.auth&session_ms=7"),
        (
            "zookeeper://a:1?authority=a+b.pem&certificate=./zk.auth&key=a%20b.pem",
            "zookeeper://a:1?authority={0}a+b.pem&certificate={0}./zk.auth&key={0}a%20b.pem",
        ),
        ("zookeeper://a:1?auth=/dev/null&secure=zk.auth&authority=", None),
        ("zookeeper://a:1?auth=user:password", None),
        ("memory://", None),
        ("store.db", None),
        (7, None),
    ],
)
def test_a_store_that_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any, lasts_as: str | None) -> None:
    """A broker opens its store again when it has lost its session, wherever its process has gone meanwhile."""
    folder = tmp_path / "100%?"
    folder.mkdir()
    for name in ("zk.auth", "a b.pem"):
        (folder / name).touch()
    monkeypatch.chdir(folder)
    assert urls.lasting(given) == (given if lasts_as is None else lasts_as.format(f"{tmp_path}/100%25%3F/./"))


def test_a_store_that_lasts_is_the_same_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "100%? \u00e4"
    folder.mkdir()
    monkeypatch.chdir(folder)
    url = urls.lasting("file://a%20b.db?session_ms=700")
    monkeypatch.chdir("/")
    with open_store(url, session_ms=5_000) as store:
        assert isinstance(store, FileStore)
        assert (store.path, store.session_ms) == (f"{folder}/a b.db", 700)
