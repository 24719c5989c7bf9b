"""A small authority of its own, for tests and first steps: certificates that name a role, made by the command `openssl`.

Keys are made where they stay, readable for nobody else. Nothing is written over: what is there already and can be used is left as it is.
An authority that nobody would accept, or that may be somebody else's, signs nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from replog.errors import UsageError
from replog.security.certificates import URI
from replog.security.identity import Identity, identity_from
from replog.security.private import check_folder, check_secret_file, read_certificates

__all__ = ["AUTHORITY", "DAYS", "DAYS_MAX", "Pair", "file_name", "make_authority", "make_certificate", "make_missing"]

AUTHORITY: Final = "authority"
"""What its files are called: authority.pem, authority.key."""
DAYS: Final = 365
"""How long what is made is good where nobody says so, or until the authority ends."""
DAYS_MAX: Final = 3_650
_DAY_S: Final = 86_400
_SECONDS: Final = 60
_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def file_name(identity: Identity) -> str:
    """What the files of a certificate are called, without their ends: "broker-3"."""
    return f"{identity.role}-{identity.name}"


class Pair(NamedTuple):
    """A certificate with its key."""

    certificate: Path
    is_new: bool
    """Whether it was made now. Else it was there."""

    @property
    def key(self) -> Path:
        """The file of its key, beside it."""
        return self.certificate.with_suffix(".key")


def make_missing(folder: Path, names: Iterable[str], *, days: int | None = None) -> list[Pair]:
    """Make the authority, and a certificate for each of these names, where they are not there yet; the authority comes first.

    What is there stays, if it is a pair that this authority has signed for this name. Raises UsageError if anything is in the way, may be
    somebody else's, or cannot be made, and if certificates would be good for `days` longer than the authority; then nothing is made.
    """
    if days is not None:
        _check_days(days)
    authority = folder / f"{AUTHORITY}.pem"
    check_folder(str(folder), "the folder", is_own=True)
    is_there = _is_there(authority)
    end_s = _end_of(authority) if is_there else None
    asked: dict[str, Pair] = {}
    for name in names:
        identity = _identity(name)
        certificate = folder / f"{file_name(identity)}.pem"
        asked[name] = Pair(certificate, is_new=not _is_there(certificate))
        if not asked[name].is_new:
            if not is_there:
                raise UsageError(f"{certificate} exists, and {authority}, which would have signed it, does not")
            _check_signed(certificate, identity, authority)
    if end_s is not None and any(pair.is_new for pair in asked.values()):
        days = _days_within(end_s, days, authority)
    days = days or DAYS
    with ExitStack() as undo:
        if not is_there:
            make_authority(folder, days=days)
            _undone(undo, authority)
        for name, pair in asked.items():
            if pair.is_new:
                make_certificate(folder, name, days=days)
                _undone(undo, pair.certificate)
        undo.pop_all()
    return [Pair(authority, is_new=not is_there), *asked.values()]


def make_authority(folder: Path, *, days: int) -> Path:
    """Make one in this folder, made if missing, unless it is there; returns its certificate. UsageError if it cannot be made."""
    certificate, key = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}.key"
    if certificate.exists() and key.exists():
        return certificate
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"{folder} cannot be made: {problem.strerror}") from None
    uses = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
    _make(certificate, key, days, ("-subj", "/CN=replog authority"), uses)
    return certificate


def make_certificate(folder: Path, name: str, *, days: int) -> Path:
    """Make a certificate for "broker/3", "client/billing" or "admin/anna", signed by the authority in this folder; returns it.

    Raises UsageError if there is no such role, or if it cannot be made.
    """
    identity = _identity(name)
    certificate, key = folder / f"{file_name(identity)}.pem", folder / f"{file_name(identity)}.key"
    signer = ("-CA", f"{folder / AUTHORITY}.pem", "-CAkey", f"{folder / AUTHORITY}.key", "-subj", f"/CN={file_name(identity)}"[:64])
    uses = (
        f"subjectAltName=URI:{URI}{identity}", "basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature",
        "extendedKeyUsage=serverAuth,clientAuth" if identity.is_broker else "extendedKeyUsage=clientAuth",
    )  # fmt: skip
    _make(certificate, key, days, signer, uses)
    return certificate


def _identity(name: str) -> Identity:
    identity = identity_from(name)
    if identity is None or not identity.name:
        raise UsageError(f"{name!r:.150} is no name for a certificate; write broker/3, client/billing or admin/anna")
    return identity


def _is_there(certificate: Path) -> bool:
    """Whether this certificate and its key are there, and belong together. Raises UsageError for one without the other."""
    key = certificate.with_suffix(".key")
    missing = [path for path in (certificate, key) if not os.path.lexists(path)]
    if len(missing) == 2:
        return False
    if missing:
        half = key if missing[0] == certificate else certificate
        raise UsageError(f"{half} exists, and is not written over, and {missing[0].name} is missing")
    check_secret_file(str(key))
    read_certificates(str(certificate), "the certificate")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except OSError as problem:  # ssl.SSLError is one
        why = getattr(problem, "reason", None) or problem.strerror
        raise UsageError(f"{certificate} and {key.name} exist, and are no certificate with its key: {why}") from None
    return True


def _end_of(authority: Path) -> float:
    """When it ends, by the wall clock. Raises UsageError unless it is one of its own, whose time has begun and is not over."""
    done = _openssl("verify", "-CAfile", str(authority), "-no-CApath", str(authority))
    if done.returncode:
        raise UsageError(f"{authority} signs nothing: nobody would accept it ({_why_not(done)}); make another in a new folder")
    words = _openssl("x509", "-in", str(authority), "-noout", "-enddate", "-ext", "basicConstraints,keyUsage").stdout
    if "CA:TRUE" not in words or ("Key Usage" in words and "Certificate Sign" not in words):
        raise UsageError(f"{authority} signs nothing: it is no certificate of an authority (CA:TRUE, which may sign certificates)")
    return ssl.cert_time_to_seconds(words.partition("notAfter=")[2].partition("\n")[0])


def _days_within(end_s: float, days: int | None, authority: Path) -> int:
    """For how many days a certificate is made: as was asked for. UsageError if that ends a day or more after the authority."""
    now_s = time.time()
    left = int(-((now_s - end_s) // _DAY_S))
    if days is not None and days > left:
        wanted, end = (datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC") for at_s in (now_s + days * _DAY_S, end_s))
        raise UsageError(f"days is {days}, until {wanted}, and {authority} ends on {end}; allowed are 1 to {left}")
    return min(DAYS, left) if days is None else days


def _why_not(done: subprocess.CompletedProcess[str]) -> str:
    said = re.search(r"lookup: *(.+)", done.stderr)
    return said[1] if said else "it cannot be read"


def _check_signed(certificate: Path, identity: Identity, authority: Path) -> None:
    """Raise UsageError unless the authority has signed it, for this identity and for a time that is not over."""
    done = _openssl("verify", "-CAfile", str(authority), "-no-CApath", str(certificate))
    if done.returncode:
        why = f"{certificate} exists, and is not accepted by {authority.name}: {_why_not(done)}"
        raise UsageError(f"{why}; move it and {certificate.with_suffix('.key').name} away, and the same command makes others")
    named = _openssl("x509", "-in", str(certificate), "-noout", "-ext", "subjectAltName").stdout
    if f"URI:{URI}{identity}" not in re.split(r"[\s,]+", named):
        raise UsageError(f"{certificate} exists, and is not of {identity}")


def _undone(undo: ExitStack, certificate: Path) -> None:
    for path in (certificate, certificate.with_suffix(".key")):
        undo.callback(path.unlink, missing_ok=True)


def _check_days(days: int) -> None:
    if not 1 <= days <= DAYS_MAX:
        raise UsageError(f"days is {days}; allowed are 1 to {DAYS_MAX}")


def _openssl(*words: str) -> subprocess.CompletedProcess[str]:
    openssl = shutil.which("openssl")
    if openssl is None:
        raise UsageError("certificates are made by the command openssl, which is not installed here")
    try:
        return subprocess.run(
            [openssl, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"openssl {words[0]} has not ended within {_SECONDS} s") from None
    except OSError as problem:
        raise UsageError(f"{openssl} cannot be run: {problem.strerror}") from None


def _make(certificate: Path, key: Path, days: int, who: tuple[str, ...], uses: tuple[str, ...]) -> None:
    _check_days(days)
    try:
        with ExitStack() as undo:
            for path, mode in ((key, 0o600), (certificate, 0o644)):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, mode))
                undo.callback(path.unlink, missing_ok=True)
            words = ["req", "-x509", *_KEY, "-sha256", "-days", str(days), "-keyout", str(key), "-out", str(certificate), *who]
            words += [word for use in uses for word in ("-addext", use)]
            done = _openssl(*words)
            if done.returncode:
                lines = done.stderr.strip().splitlines() or ["it said nothing"]
                raise UsageError(f"openssl could not make {certificate}: {lines[-1]}")
            undo.pop_all()
    except FileExistsError as problem:
        raise UsageError(f"{problem.filename} exists, and is not written over") from None
    except OSError as problem:
        raise UsageError(f"{problem.filename} cannot be made: {problem.strerror}") from None
