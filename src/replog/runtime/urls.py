"""Metadata stores by URL: `memory://`, `file://PATH`, `zookeeper://HOSTS/CHROOT`, and what other packages register.

A package registers a scheme as an entry point of the group `replog.stores`: its name is the scheme, its object is called as
`opener(url, session_ms=...)` and returns a `MetadataStore`. The built-in schemes never look there, so that opening one
costs no scan of what is installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, unquote_plus

from replog.errors import UsageError
from replog.log.files import check_path
from replog.ports import MetadataStore
from replog.security.shown import is_place, shown

__all__ = [
    "STORES", "ZOOKEEPER_OPTIONS", "check_store", "is_in_memory", "lasting", "open_file", "open_memory", "open_store", "open_zookeeper",
    "zookeeper_arguments",
]  # fmt: skip

STORES: Final = "replog.stores"
"""The group of entry points."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

Opener = Callable[..., MetadataStore]


def open_store(url_or_store: object, *, session_ms: int) -> MetadataStore:
    """A new session on a metadata store, whoever calls closes it.

    A URL is opened; `?session_ms=` in it goes before the argument. A store object gives another session (its `session()`,
    with the session time it was made with) and stays its owner's: after a lost session the next one can be had the same way.
    Raises UsageError naming the URL if it is malformed, its scheme is unknown or what it needs is not installed, and whatever
    opening the store raises.
    """
    if not isinstance(url_or_store, MetadataStore):
        return _opener(url_or_store)(url_or_store, session_ms=session_ms)
    session = _another(url_or_store)()
    if not isinstance(session, MetadataStore):
        raise UsageError(f"session() of {type(url_or_store).__name__} returned {session!r}, which is no MetadataStore")
    return session


def check_store(url_or_store: object) -> object:
    """The same again. Raises the UsageError that `open_store` would raise before it opens anything."""
    if isinstance(url_or_store, MetadataStore):
        _another(url_or_store)
    else:
        _opener(url_or_store)
    return url_or_store


def _another(store: MetadataStore) -> Callable[[], object]:
    another: Callable[[], object] | None = getattr(store, "session", None)
    if not callable(another):
        raise UsageError(f"{type(store).__name__} has no method session() that opens another session; give its URL instead of an object")
    return another


def _opener(url: object) -> Opener:
    if not isinstance(url, str):
        raise UsageError(f"a store is an object of a MetadataStore or a URL like file:///PATH, not {url!r}")
    found = _SCHEME.match(url)
    if found is None:
        raise UsageError(f"{shown(url)!r} is not the URL of a store: {_known()}")
    scheme = found.group(1).lower()
    return _BUILT_IN.get(scheme) or _registered(scheme, url)


def lasting(url_or_store: Any) -> Any:
    """What `open_store` takes, so that each session is one on the same store wherever the process goes (`os.chdir`): a relative
    `file://PATH` becomes an absolute one, and so do the files that a `zookeeper://` URL names. What is no such URL is left as it is."""
    found = _SCHEME.match(url_or_store) if isinstance(url_or_store, str) else None
    if found is None:
        return url_or_store
    match found.group(1).lower():
        case "file" if not unquote(url_or_store[found.end() :]).startswith("/"):
            return f"{found.group()}{_here()}{url_or_store[found.end() :]}"
        case "zookeeper":
            rest, mark, query = url_or_store.partition("?")
            return rest + mark + "&".join(map(_lasting_option, query.split("&")))
    return url_or_store


def _lasting_option(option: str) -> str:
    name, equals, value = option.partition("=")
    path = unquote_plus(value, errors="surrogateescape")
    is_relative = name in ZOOKEEPER_FILES and is_place(path) and not path.startswith("/")
    return f"{name}{equals}{_here()}{value}" if is_relative else option


def _here() -> str:
    """The present folder, with a slash at its end, as part of a URL."""
    return quote(check_path(".", "store", "name a file"), errors="surrogateescape") + "/"


def is_in_memory(store: object) -> bool:
    """Whether it is a URL of which each opening is a new and empty store that only this process sees."""
    return isinstance(store, str) and store.lower().startswith("memory://")


def open_memory(url: str, *, session_ms: int) -> MetadataStore:
    """`memory://`: a new and empty tree in memory, which only this process sees. Its sessions never end by time."""
    from replog.metadata.memory import MemoryStore

    rest, _ = _parts(url, session_ms)
    if rest:
        raise UsageError(f"{shown(url)!r}: a store in memory has no name; write memory://")
    return MemoryStore()


def open_file(url: str, *, session_ms: int) -> MetadataStore:
    """`file://PATH`: a file that processes of one host share. Three slashes begin an absolute path; %XX stands for a byte."""
    from replog.metadata.file import FileStore

    rest, session_ms = _parts(url, session_ms)
    path = unquote(rest, errors="surrogateescape")
    if not path or path.endswith("/") or "\0" in path:
        raise UsageError(f"{shown(url)!r} does not name a file; write file:///PATH/TO/store.db")
    try:
        return FileStore(path, session_ms=session_ms)
    except UsageError as error:
        raise UsageError(f"{shown(url)!r}: {error}") from error


def open_zookeeper(url: str, *, session_ms: int) -> MetadataStore:
    """`zookeeper://HOST:PORT,HOST:PORT/CHROOT`. Needs the extra `zookeeper`.

    Behind a ?: `auth=FILE` (0600, one line USER:PASSWORD), `authority=FILE`, `certificate=FILE` and `key=FILE` for TLS, `secure=true`.
    """
    rest, session_ms, options = _taken(url, session_ms, ZOOKEEPER_OPTIONS)
    if not rest:
        raise UsageError(f"{shown(url)!r} names no server; write zookeeper://HOST:PORT,HOST:PORT/CHROOT")
    try:
        from replog.metadata.zookeeper import ZooKeeperStore
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        raise UsageError(f"{shown(url)!r} needs kazoo: pip install 'replog[zookeeper]'") from error
    try:
        return ZooKeeperStore(rest, session_ms=session_ms, **zookeeper_arguments(url, options))
    except UsageError as error:
        if "@" in rest:  # whatever is wrong, what is said of it may show a password
            raise UsageError(f"{shown(url)!r}: ZooKeeper's address has no place for credentials; auth=FILE names a file of them") from None
        raise UsageError(f"{shown(url)!r}: {error}") from error


_BUILT_IN: Final[dict[str, Opener]] = {"file": open_file, "memory": open_memory, "zookeeper": open_zookeeper}


ZOOKEEPER_FILES: Final = ("auth", "authority", "certificate", "key")
ZOOKEEPER_OPTIONS: Final = (*ZOOKEEPER_FILES, "secure")


def zookeeper_arguments(url: str, options: dict[str, str]) -> dict[str, Any]:
    """What `ZooKeeperStore` takes, from files that a URL names. UsageError for what is wrong with them."""
    from replog.security.settings import Tls

    if options.get("secure", "false") not in ("true", "false"):
        raise UsageError(f"{shown(url)!r}: secure is true or false, not {options['secure']!r}")
    files = {key: options[key] for key in ("authority", "certificate", "key") if key in options}
    if files and "authority" not in files:
        raise UsageError(f"{shown(url)!r}: TLS needs an authority")
    return {
        "auth": ("digest", *_credentials(url, options["auth"])) if "auth" in options else None,
        "tls": Tls(**files) if files else None,
        "secure": options.get("secure") == "true",
    }


def _credentials(url: str, path: str) -> tuple[str, str]:
    from replog.security.private import read_credentials

    if not is_place(path):
        raise UsageError(
            f"{shown(url)!r}: the credentials cannot be read: auth names no file; it is not shown, as it may be the password itself: put "
            "USER:PASSWORD into a file"
        )
    return read_credentials(path)


def _parts(url: str, session_ms: int) -> tuple[str, int]:
    """What stands between the scheme and the query, and the session time."""
    return _taken(url, session_ms, ())[:2]


def _taken(url: str, session_ms: int, more: tuple[str, ...]) -> tuple[str, int, dict[str, str]]:
    """What stands between the scheme and the query, the session time, and `more` options, as they are."""
    rest, _, query = url.partition("://")[2].partition("?")
    try:
        options = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="surrogateescape") if query else []
    except ValueError:
        raise UsageError(f"{shown(url)!r}: after the ? stand NAME=VALUE pairs") from None  # it shows them
    known = ("session_ms", *more)
    for name, _ in options:
        if name not in known:
            allowed = "session_ms is the only one" if not more else f"there are {', '.join(known)}"
            raise UsageError(f"{shown(url)!r}: a store has no option {name!r}; {allowed}")
        times = sum(name == other for other, _ in options)
        if times > 1:
            raise UsageError(f"{shown(url)!r}: {name} is given {times} times")
    found = dict(options)
    if "session_ms" in found:
        value = found.pop("session_ms")
        if not re.fullmatch(r"[0-9]{1,12}", value):
            raise UsageError(f"{shown(url)!r}: session_ms is a whole number of milliseconds, not {value!r}")
        session_ms = int(value)
    return rest, session_ms, found


def _registered(scheme: str, url: str) -> Opener:
    """What another package registered for a scheme."""
    found = sorted(entry_points(group=STORES, name=scheme), key=lambda entry: entry.value)
    if not found:
        raise UsageError(f"{shown(url)!r}: no store is registered for {scheme}://; {_known()}")
    if len({entry.value for entry in found}) > 1:
        names = ", ".join(entry.value for entry in found)
        raise UsageError(f"{shown(url)!r}: several stores are registered for {scheme}://: {names}; remove all but one")
    try:
        opener = found[0].load()
    except Exception as error:
        raise UsageError(f"{shown(url)!r}: the store {found[0].value} cannot be imported: {error}") from error
    return _checked(opener, found[0].value)


def _checked(opener: object, name: str) -> Opener:
    """An opener of another package, whose mistakes are named."""

    def opened(url: str, *, session_ms: int) -> MetadataStore:
        if not callable(opener):
            raise UsageError(f"{shown(url)!r}: {name} cannot be called as opener(url, session_ms=...)")
        store = opener(url, session_ms=session_ms)
        if not isinstance(store, MetadataStore):
            raise UsageError(f"{shown(url)!r}: {name} returned {type(store).__name__}, which is no MetadataStore")
        return store

    return opened


def _known() -> str:
    registered = sorted({entry.name for entry in entry_points(group=STORES)} - set(_BUILT_IN))
    return "known are memory://, file://PATH, zookeeper://HOSTS/CHROOT" + "".join(f", {name}://" for name in registered)
