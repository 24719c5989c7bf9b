"""Whom a certificate names: a URI among its alternative names, replog://role/broker/3, replog://role/client/billing.

Host names are not looked at: an authority that gives them to whoever owns a domain would otherwise make brokers. A certificate
with several such URIs names nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from replog.security.identity import Identity, identity_from

__all__ = ["URI", "certified"]

URI: Final = "replog://role/"
"""What such a name begins with; the role and the name follow."""


def certified(certificate: Mapping[str, Any] | None) -> Identity | None:
    """Whom a verified certificate names, as `ssl.SSLSocket.getpeercert` describes it; None: nobody, or there is none."""
    names = [value for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "URI" and value.startswith(URI)]
    if len(names) != 1:
        return None
    found = identity_from(names[0][len(URI) :])
    return None if found is None or (found.is_broker and not found.name) else found
