"""`Security`: how the connections of one process are protected, and who is let in; in code, or in a file of settings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import field, frozen

from replog.errors import UsageError
from replog.messages import BROKER, CLIENT
from replog.security.identity import ADMIN, identity_from
from replog.security.kept import KeptSecrets
from replog.security.keys import check_keys, shown_key
from replog.security.private import check_secret, read_secret, settings_from
from replog.security.shown import is_place

__all__ = ["VARIABLE", "Authorizer", "Security", "Tls", "security_of"]

VARIABLE: Final = "REPLOG_SECURITY"
"""The environment variable that names the file of settings of a command."""

Authorizer = Callable[[str, str, str | None], bool]
"""`allow(principal, action, topic)`: whether it may; the topic is None for what is about the whole cluster."""

_ROLE_LIKE: Final = re.compile(r"[a-z]{1,12}\Z|(broker|admin|client)/")
_FILE_KEYS: Final = {"tls": ("certificate", "key", "authority"), "secret": None, "authorizer": ("rules",)}


def _path(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _lasting(value: Any) -> Any:
    """The same file wherever the process goes (`os.chdir`); what is no path is for others to refuse."""
    path = _path(value)
    if not isinstance(path, str) or not path or os.path.isabs(path):
        return path
    try:
        return os.path.join(os.getcwd(), path)
    except FileNotFoundError:
        raise UsageError(f"{path!r:.300} is a relative path, and the current folder is gone; name it from the root") from None


@frozen(kw_only=True)
class Tls:
    """Files in PEM; a relative path begins at the folder that is the current one now. Renewed ones are used for later connections.

    `authority`: whose certificates are believed, those of both ends. `certificate` (with what it is signed by, if that is not the
    authority) and its `key`: who this process is; a client that proves itself by a secret needs neither. UsageError for half of them.
    """

    authority: str = field(converter=_lasting)
    certificate: str | None = field(default=None, converter=_lasting)
    key: str | None = field(default=None, converter=_lasting)

    def __attrs_post_init__(self) -> None:
        for name in ("authority", "certificate", "key"):
            value = getattr(self, name)
            if value is None and name != "authority":
                continue
            if value is not None and (not isinstance(value, str) or "-----BEGIN" in value or "\n" in value):
                raise UsageError(f"tls: {name} is no path; it is not shown, as it may be a key itself: put that into a file, and name that")
            if not value or "\0" in value:
                raise UsageError(f"tls: {name} is {value!r}; name a file")
        if (self.certificate is None) != (self.key is None):
            raise UsageError("tls: a certificate and its key belong together, and only one of them is given")


def _secrets(given: Any) -> Mapping[str, tuple[bytes, ...]]:
    """Identity -> its secrets; those in files as they are there whenever one is needed."""
    if isinstance(given, KeptSecrets):
        return given
    _read_secrets(given)  # what is wrong with them is said without showing any
    some = {name: tuple(map(_path, value if isinstance(value, list | tuple) else [value])) for name, value in given.items()}
    return KeptSecrets(some, _read_secrets)


def _read_secrets(given: Any) -> dict[str, tuple[bytes, ...]]:
    """Identity -> its secrets. No message shows any of them."""
    if not isinstance(given, Mapping):
        raise UsageError("secret is a mapping of roles to secrets: {'broker': 'PATH', 'client': b'...'}")
    found: dict[str, tuple[bytes, ...]] = {}
    for name, value in given.items():
        _check_owner(name)
        some = value if isinstance(value, list | tuple) else [value]
        if not some:
            raise UsageError(f"secret: {name} has none")
        found[name] = tuple(_secret(name, one) for one in some)
    owners = [(secret, name) for name, some in found.items() for secret in some]
    for at, (secret, name) in enumerate(owners):
        for other, another in owners[:at]:
            if secret == other and name != another:
                raise UsageError(f"secret: {another} and {name} have the same; then one could pass for the other")
    return found


def _check_owner(name: object) -> None:
    """UsageError if this is nobody who has secrets. What could be a secret that stands where a role belongs is not shown."""
    identity = identity_from(name) if isinstance(name, str) else None
    if identity is None or (identity.is_broker and identity.name):
        may_show = isinstance(name, str) and _ROLE_LIKE.match(name)
        who = f"{name!r:.80}" if may_show else "a role (not shown: it may be the secret itself)"
        raise UsageError(f"secret: {who} is nobody; there are {BROKER}, {ADMIN}, {CLIENT}, {ADMIN}/NAME and {CLIENT}/NAME")


def _secret(name: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return check_secret(value, f"the secret of {name}")
    path = _path(value)
    if not isinstance(path, str) or not path:
        raise UsageError(f"secret: that of {name} is bytes, or the path of a file")
    _check_named(name, path, path)
    return read_secret(path)


def _check_named(name: str, text: str, path: str) -> None:
    """UsageError, which does not show it, for a text that may be the secret itself: neither such a file is there nor its folder."""
    if os.path.lexists(path) if not os.path.dirname(text).strip("/") else is_place(path):
        return
    raise UsageError(
        f"secret: that of {name} names no file; it is not shown, as it may be the secret itself: put that into a file, or give bytes"
    )


def _tls(given: Any) -> Tls | None:
    if given is None or isinstance(given, Tls):
        return given
    if not isinstance(given, Mapping) or not set(given) <= {"authority", "certificate", "key"} or "authority" not in given:
        found = ", ".join(sorted(shown_key(key) for key in given)) if isinstance(given, Mapping) else type(given).__name__
        raise UsageError(f"tls has authority, certificate and key, files each; given are {found}")
    return Tls(**given)


def _shown(secrets: Mapping[str, tuple[bytes, ...]]) -> str:
    return f"<of {', '.join(sorted(secrets))}>" if secrets else "<none>"


@frozen(kw_only=True, eq=False)
class Security:
    """What a process asks of whoever it speaks with, and how it proves who it is itself. Raises UsageError for what cannot work.

    `tls`: a `Tls`, or a mapping of its keys. `secret`: role -> a secret of at least 32 bytes, the path of a file (0600) with one, or a list
    of them: the first is what this process proves itself with, each is accepted; of a file that has changed, whatever is in it when a
    connection is made. Roles are "broker", "admin" (whatever a client may, and
    changes of the cluster) and "client"; "client/NAME" and "admin/NAME" have secrets of their own. `authorizer(principal, action,
    topic)` says what clients and admins may do with a topic; a path names a file of rules. Sources: DESIGN, section 9.
    """

    tls: Tls | None = field(default=None, converter=_tls)
    secret: Mapping[str, tuple[bytes, ...]] = field(factory=dict, converter=_secrets, repr=_shown)
    authorizer: Authorizer | str | None = field(default=None, converter=_lasting)

    def __attrs_post_init__(self) -> None:
        if self.tls is None and not self.secret:
            raise UsageError("security has neither tls nor a secret: nobody could prove anything")
        if self.authorizer is not None and not callable(self.authorizer) and not (isinstance(self.authorizer, str) and self.authorizer):
            raise UsageError(f"authorizer is {self.authorizer!r}; give a function allow(principal, action, topic), or a file of rules")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Security:
        """Read a file of settings (TOML: [tls], [secret], [authorizer]); paths in it are relative to it. It holds no secret itself.

        UsageError naming the file and what is wrong with it; also if others can change it.
        """
        return settings_from(path, lambda found, name: cls(**_from_tables(found, os.path.dirname(os.path.abspath(name)))))

    def check_broker(self) -> None:
        """UsageError if a broker could not prove that it is one."""
        if BROKER not in self.secret and (self.tls is None or self.tls.certificate is None):
            raise UsageError("a broker proves that it is one by a certificate (tls) or by the secret of brokers; it has neither")
        if self.tls is not None and self.tls.certificate is None:
            raise UsageError("a broker that uses tls needs a certificate and its key")

    def check_client(self) -> None:
        """UsageError if a client could not prove anything."""
        if self.claim() is None and (self.tls is None or self.tls.certificate is None):
            raise UsageError("a client proves who it is by a certificate (tls), or by a secret of client or admin; it has neither")

    def claim(self) -> str | None:
        """As whom a client with these settings introduces itself: the most that it has a secret for; None: it has none."""
        names = [name for name in self.secret if name != BROKER]
        return min(names, key=lambda name: (not name.startswith(ADMIN), "/" in name, name), default=None)

    def as_broker(self) -> Security:
        """The same for a client in a broker's own process, which asks as that broker: no rules hide anything from it."""
        return _AsBroker(tls=self.tls, secret=self.secret)


@frozen(kw_only=True, eq=False)
class _AsBroker(Security):
    def claim(self) -> str | None:
        """The certificate of a broker says enough; one without has the secret of brokers."""
        return BROKER if self.tls is None else None


def _from_tables(found: Mapping[str, Any], folder: str) -> dict[str, Any]:
    for table, value in found.items():
        if table not in _FILE_KEYS or not isinstance(value, Mapping):
            raise UsageError(f"{shown_key(table, 'a table', '[{}]')} is no part of it; there are [tls], [secret] and [authorizer]")
        known = _FILE_KEYS[table]
        if known is not None:
            check_keys(f"[{table}]", value, known)
    arguments: dict[str, Any] = {}
    if "tls" in found:
        arguments["tls"] = {key: _beside(folder, f"tls: {key}", value) for key, value in found["tls"].items()}
    if "authorizer" in found:
        if "rules" not in found["authorizer"]:
            raise UsageError("[authorizer] has no rules; name a file of them, or leave the table out: then every topic is for everybody")
        arguments["authorizer"] = _beside(folder, "authorizer: rules", found["authorizer"]["rules"])
    if "secret" in found:
        for name in found["secret"]:
            _check_owner(name)  # before anything is said of it
        arguments["secret"] = {name: _listed(folder, name, value) for name, value in found["secret"].items()}
    return arguments


def _listed(folder: str, name: str, value: Any) -> list[str]:
    some = value if isinstance(value, list) else [value]
    paths = [_beside(folder, f"secret: {name}", one) for one in some]
    for text, path in zip(some, paths, strict=True):
        _check_named(name, text, path)
    return paths


def _beside(folder: str, what: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{what} names a file, as a text")
    return os.path.join(folder, value)


def security_of(given: Security | str | os.PathLike[str] | None) -> Security | None:
    """What was given as `security`: settings, or the path of a file of them. UsageError for anything else."""
    if given is None or isinstance(given, Security):
        return given
    if isinstance(given, str | os.PathLike) and os.fspath(given):
        return Security.from_file(given)
    raise UsageError("security is a replog.Security, or the path of a file of settings")
