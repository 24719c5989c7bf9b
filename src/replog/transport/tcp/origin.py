"""Whom a connection is put down to where nobody has proven who it is: a host, however many addresses of its own it can come from."""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import Final

__all__ = ["origin_of"]

_OTHER_HALF: Final = (1 << 64) - 1


def origin_of(name: str) -> str:
    """Of the other end of a connection, "address:port": the address; of IPv6 its network of 64 bits ("2001:db8::/64"), all of which one
    host may have for itself (RFC 4291, section 2.5.1; RFC 6177); of this machine 127.0.0.1, for all of 127/8."""
    host = name.rpartition(":")[0]
    if ":" not in host:
        return "127.0.0.1" if host.startswith("127.") else host
    text, _, zone = host.strip("[]").partition("%")
    try:
        address = IPv6Address(text)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return origin_of(f"{address.ipv4_mapped}:")
    return f"{IPv6Address(int(address) & ~_OTHER_HALF)}/64{'%' if zone else ''}{zone}"
