"""A small authority of its own, for tests and first steps: certificates that name a role, made by the command `openssl`.

Keys are made where they stay, readable for nobody else. Nothing is written over.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from replog.errors import UsageError
from replog.security.certificates import URI
from replog.security.identity import Identity, identity_from

__all__ = ["AUTHORITY", "DAYS_MAX", "file_name", "make_authority", "make_certificate"]

AUTHORITY: Final = "authority"
"""What its files are called: authority.pem, authority.key."""
DAYS_MAX: Final = 3_650
_SECONDS: Final = 60
_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def file_name(identity: Identity) -> str:
    """What the files of a certificate are called, without their ends: "broker-3"."""
    return f"{identity.role}-{identity.name}"


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
    identity = identity_from(name)
    if identity is None or not identity.name:
        raise UsageError(f"{name!r:.150} is no name for a certificate; write broker/3, client/billing or admin/anna")
    certificate, key = folder / f"{file_name(identity)}.pem", folder / f"{file_name(identity)}.key"
    signer = ("-CA", f"{folder / AUTHORITY}.pem", "-CAkey", f"{folder / AUTHORITY}.key", "-subj", f"/CN={file_name(identity)}"[:64])
    uses = (
        f"subjectAltName=URI:{URI}{identity}", "basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature",
        "extendedKeyUsage=serverAuth,clientAuth" if identity.is_broker else "extendedKeyUsage=clientAuth",
    )  # fmt: skip
    _make(certificate, key, days, signer, uses)
    return certificate


def _make(certificate: Path, key: Path, days: int, who: tuple[str, ...], uses: tuple[str, ...]) -> None:
    if not 1 <= days <= DAYS_MAX:
        raise UsageError(f"days is {days}; allowed are 1 to {DAYS_MAX}")
    openssl = shutil.which("openssl")
    if openssl is None:
        raise UsageError("certificates are made by the command openssl, which is not installed here")
    try:
        with ExitStack() as undo:
            for path, mode in ((key, 0o600), (certificate, 0o644)):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, mode))
                undo.callback(path.unlink, missing_ok=True)
            words = [openssl, "req", "-x509", *_KEY, "-sha256", "-days", str(days), "-keyout", str(key), "-out", str(certificate), *who]
            words += [word for use in uses for word in ("-addext", use)]
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False)
            if done.returncode:
                lines = done.stderr.strip().splitlines() or ["it said nothing"]
                raise UsageError(f"openssl could not make {certificate}: {lines[-1]}")
            undo.pop_all()
    except FileExistsError as problem:
        raise UsageError(f"{problem.filename} exists, and is not written over") from None
    except OSError as problem:
        raise UsageError(f"{problem.filename} cannot be made: {problem.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"openssl has not made {certificate} within {_SECONDS} s") from None
