"""Contexts of TLS 1.3 from files, made anew when a file has changed; and what TLS says, in words."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import ssl
import time
from collections.abc import Callable
from math import inf
from typing import Final

from attrs import frozen

from replog.errors import UsageError
from replog.security.kept import LOOK_S
from replog.security.private import check_secret_file
from replog.security.settings import Security, Tls

__all__ = ["Loaded", "TlsFiles", "believe", "fingerprint", "show"]

_log = logging.getLogger("replog")

_FIRST: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@frozen(eq=False)
class Loaded:
    """A context, and how the certificate in it is told from any other (b"" if there is none)."""

    context: ssl.SSLContext
    fingerprint: bytes


def fingerprint(der: bytes) -> bytes:
    """How a certificate is told from any other."""
    return hashlib.sha256(der).digest()


class TlsFiles:
    """The files of one process. What is wrong with them raises UsageError at first; later the old ones are kept, and it is logged."""

    def __init__(self, security: Security, *, now_s: Callable[[], float] = time.monotonic) -> None:
        assert security.tls is not None
        self._now_s = now_s
        self._tls: Tls = security.tls
        self._asks_certificates = not security.secret
        self._looks: object = None
        self._again_s = inf
        """When what could not be used is tried again, as it is: why may be gone."""
        self._told: object = None
        self._contexts: dict[bool, Loaded] = {}

    def loaded(self, *, listens: bool) -> Loaded:
        """What a new connection is to use."""
        looks = self._look()
        if looks != self._looks or self._now_s() >= self._again_s:
            try:
                self._contexts = {side: self._load(listens=side) for side in (False, True)}
                self._again_s, self._told = inf, None
            except UsageError as problem:
                if not self._contexts:
                    raise
                self._keep(looks, str(problem))
            self._looks = looks
        return self._contexts[listens]

    def _keep(self, looks: object, problem: str) -> None:
        if self._told != (looks, problem):
            _log.warning("certificates that have changed are not used, the earlier ones are: %s", problem)
        self._told = looks, problem
        self._again_s = self._now_s() + LOOK_S

    def _look(self) -> object:
        found: list[object] = []
        for path in (self._tls.authority, self._tls.certificate, self._tls.key):
            try:
                seen = None if path is None else os.stat(path)
                found.append(seen and (seen.st_mtime_ns, seen.st_ino, seen.st_size, seen.st_mode))
            except OSError as problem:
                found.append(problem.errno)
        return found

    def _load(self, *, listens: bool) -> Loaded:
        tls = self._tls
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if listens else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the certificate names a role and a broker, and whoever has been greeted checks it
        context.verify_mode = ssl.CERT_REQUIRED if not listens or self._asks_certificates else ssl.CERT_OPTIONAL
        if listens:
            context.num_tickets = 0  # every connection proves anew
        believe(context, tls)
        return Loaded(context, show(context, tls))


def believe(context: ssl.SSLContext, tls: Tls) -> None:
    """Take the authority for one. UsageError naming the file, and what is wrong with it."""
    try:
        context.load_verify_locations(tls.authority)
    except OSError as problem:
        raise UsageError(f"tls: no certificates of an authority in {tls.authority!r}: {_why(problem)}") from None


def show(context: ssl.SSLContext, tls: Tls) -> bytes:
    """Show the certificate from now on, if there is one; returns its fingerprint, or b"". UsageError as above."""
    if tls.certificate is None or tls.key is None:
        return b""
    check_secret_file(tls.key)
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=_no_password)
        with open(tls.certificate, encoding="ascii", errors="replace") as file:
            first = _FIRST.search(file.read())
        if first is None:
            raise ValueError("it begins with no -----BEGIN CERTIFICATE-----")
        return fingerprint(ssl.PEM_cert_to_DER_cert(first[0]))
    except (OSError, ValueError) as problem:
        raise UsageError(f"tls: {tls.certificate!r} and {tls.key!r} are no certificate with its key: {_why(problem)}") from None


def _no_password() -> str:
    """An encrypted key would have the process ask on its terminal, and wait."""
    raise ValueError("the key is encrypted; keep it plain, in a file that nobody else can read")


def _why(problem: Exception) -> str:
    if isinstance(problem, ssl.SSLError):
        return str(problem.reason or problem).lower().replace("_", " ")
    return getattr(problem, "strerror", None) or str(problem)
