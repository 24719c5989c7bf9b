"""Contexts of TLS 1.3 from files, made anew when a file has changed; and what TLS says, in words."""

from __future__ import annotations

import hashlib
import logging
import re
import ssl
import time
from collections.abc import Callable
from typing import Final

from attrs import frozen

from replog.errors import UsageError
from replog.security.private import check_secret_file, read_certificates
from replog.security.settings import Security, Tls
from replog.security.watched import Watched

__all__ = ["Loaded", "TlsFiles", "believe", "fingerprint", "show"]

_log = logging.getLogger("replog")

_FIRST: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_WHERE: Final = re.compile(r" \(_ssl\.c:[0-9]+\)")
"""Where in Python's own source."""


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
        self._files: Watched[dict[bool, Loaded]] | None = None

    def loaded(self, *, listens: bool) -> Loaded:
        """What a new connection is to use."""
        if self._files is None:
            tls = self._tls
            paths = (path for path in (tls.authority, tls.certificate, tls.key) if path is not None)
            self._files = Watched(paths, self._both, "certificates", look_s=0.0, now_s=self._now_s)
        return self._files.now()[listens]

    def _both(self) -> dict[bool, Loaded]:
        return {side: self._load(listens=side) for side in (False, True)}

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
    """Take the authority for one. UsageError naming the file, and what is wrong with it; also if others can change it."""
    text = read_certificates(tls.authority, "the authority")
    try:
        context.load_verify_locations(cadata=text)
    except (OSError, ValueError) as problem:
        raise UsageError(f"tls: no certificates of an authority in {tls.authority!r}: {_why(problem)}") from None


def show(context: ssl.SSLContext, tls: Tls) -> bytes:
    """Show the certificate from now on, if there is one; returns its fingerprint, or b"". UsageError as above."""
    if tls.certificate is None or tls.key is None:
        return b""
    check_secret_file(tls.key)
    text = read_certificates(tls.certificate, "the certificate")
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=_no_password)
        first = _FIRST.search(text)
        if first is None:
            raise ValueError("it begins with no -----BEGIN CERTIFICATE-----")
        return fingerprint(ssl.PEM_cert_to_DER_cert(first[0]))
    except (OSError, ValueError) as problem:
        raise UsageError(f"tls: {tls.certificate!r} and {tls.key!r} are no certificate with its key: {_why(problem)}") from None


def _no_password() -> str:
    """An encrypted key would have the process ask on its terminal, and wait."""
    raise ValueError("the key is encrypted; keep it plain, in a file that nobody else can read")


def _why(problem: Exception) -> str:
    if isinstance(problem, ssl.SSLError) and problem.reason:
        return str(problem.reason).lower().replace("_", " ")
    return _WHERE.sub("", getattr(problem, "strerror", None) or str(problem))
