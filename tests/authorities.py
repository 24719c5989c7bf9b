"""Authorities and certificates for tests; such as nobody should have, too."""

from __future__ import annotations

import subprocess
from pathlib import Path

from replog.security.authority import make_authority, make_certificate
from replog.security.settings import Tls

__all__ = ["BROKER_SECRET", "CLIENT_SECRET", "OTHER_SECRET", "expired", "server", "tls_of", "unreadable"]

BROKER_SECRET = b"of all brokers" * 3
CLIENT_SECRET = b"of many clients" * 3
OTHER_SECRET = b"of somebody else" * 3


def tls_of(folder: Path, name: str) -> Tls:
    """The settings of who bears this name, made if they are not there yet."""
    authority = make_authority(folder, days=2)
    certificate = folder / f"{name.replace('/', '-')}.pem"
    if not certificate.exists():
        make_certificate(folder, name, days=2)
    return Tls(authority=str(authority), certificate=str(certificate), key=str(certificate.with_suffix(".key")))


def server(folder: Path, name: str) -> Tls:
    """A certificate that a listener may show, whomever it names; another one each time."""
    return _made(folder, f"subjectAltName=URI:replog://role/{name}")


def unreadable(folder: Path, name: bytes) -> Tls:
    """The same with a name of any bytes."""
    uri = b"replog://role/" + name
    assert len(uri) < 126
    return _made(folder, "subjectAltName=DER:" + bytes([0x30, len(uri) + 2, 0x86, len(uri), *uri]).hex(":"))


def _made(folder: Path, names: str) -> Tls:
    authority = make_authority(folder, days=2)
    made = folder / f"server-{len(list(folder.iterdir()))}.pem"
    key = made.with_suffix(".key")
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=x"]
    words += ["-CA", str(authority), "-CAkey", str(authority.with_suffix(".key")), "-keyout", str(key), "-out", str(made)]
    words += ["-addext", names, "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    made.chmod(0o644)  # whatever the umask
    return Tls(authority=str(authority), certificate=str(made), key=str(key))


def expired(folder: Path, name: str) -> Tls:
    """A certificate that was good for a day of long ago, from the same authority."""
    tls = tls_of(folder, name)
    (folder / "index.txt").write_text("")
    (folder / "ca.cnf").write_text(
        f"[ca]\ndefault_ca=a\n[a]\ndatabase={folder}/index.txt\nrand_serial=yes\nnew_certs_dir={folder}\ndefault_md=sha256\npolicy=p\n"
        f"x509_extensions=x\nunique_subject=no\n[p]\ncommonName=supplied\n[x]\nsubjectAltName=URI:replog://role/{name}\n"
    )
    old = folder / f"{name.replace('/', '-')}-old.pem"
    asked = folder / "asked.csr"
    words = ["openssl", "req", "-new", "-key", str(tls.key), "-subj", "/CN=old", "-out", str(asked)]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    words = ["openssl", "ca", "-batch", "-config", str(folder / "ca.cnf"), "-in", str(asked), "-out", str(old), "-notext"]
    words += ["-cert", f"{folder}/authority.pem", "-keyfile", f"{folder}/authority.key"]
    words += ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    old.chmod(0o644)
    return Tls(authority=tls.authority, certificate=str(old), key=tls.key)
