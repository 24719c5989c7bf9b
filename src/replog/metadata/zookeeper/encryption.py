"""TLS to the servers of ZooKeeper: only the authority that is named is believed, and a server's certificate must name its host.

kazoo's own option would believe every authority that the machine knows, for whatever host.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

from replog.errors import UsageError
from replog.security.private import check_secret_file
from replog.security.settings import Tls

__all__ = ["context_of", "encrypted"]


def context_of(tls: Tls) -> ssl.SSLContext:
    """For these files. UsageError if one of them cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which checks host names, and believes nobody yet
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(tls.authority)
        if tls.certificate is not None and tls.key is not None:
            check_secret_file(tls.key)
            context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    except OSError as problem:
        why = getattr(problem, "reason", None) or problem.strerror or problem
        raise UsageError(f"the files for TLS to ZooKeeper cannot be used: {why}") from None
    return context


def encrypted(plain: socket.socket, context: ssl.SSLContext, host: str) -> Any:
    """The connection, encrypted. Raises OSError if the server cannot show who it is."""
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
