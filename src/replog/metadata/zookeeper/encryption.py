"""TLS to the servers of ZooKeeper: only the authority that is named is believed, and a server's certificate must name its host.

kazoo's own option would believe every authority that the machine knows, for whatever host.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

from replog.security.settings import Tls
from replog.security.tls import believe, show

__all__ = ["context_of", "encrypted"]


def context_of(tls: Tls) -> ssl.SSLContext:
    """For these files. UsageError if one of them cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which checks host names, and believes nobody yet
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    believe(context, tls)
    show(context, tls)
    return context


def encrypted(plain: socket.socket, context: ssl.SSLContext, host: str) -> Any:
    """The connection, encrypted. Raises OSError if the server cannot show who it is."""
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
