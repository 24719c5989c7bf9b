"""Where a process is reached: "tcp://host:port", as people write it and as sockets want it."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final, NamedTuple

from replog.errors import UsageError
from replog.security.shown import shown_with_port

__all__ = ["Endpoint", "SocketAddress", "addresses_of", "advertised", "check_insecure", "known_addresses", "parse_endpoint"]

SCHEME: Final = "tcp://"
_LOCALHOST: Final = ("127.0.0.1", "::1")


class SocketAddress(NamedTuple):
    """What `connect` and `bind` take."""

    family: socket.AddressFamily
    host: str
    port: int


class Endpoint(NamedTuple):
    """A host (a name, an IPv4 or an IPv6 address without brackets) and a port; port 0: any, when listening."""

    host: str
    port: int

    def __str__(self) -> str:
        return SCHEME + self.place

    @property
    def place(self) -> str:
        """As URLs of any scheme have it: an IPv6 address is in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A name other than localhost may lead anywhere."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_unspecified(self) -> bool:
        """Whether it is every address of a machine: one can listen there, and nobody can be reached there."""
        try:
            return ip_address(self.host).is_unspecified
        except ValueError:
            return _means_nowhere(self.host)


def check_insecure(insecure: object) -> bool:
    """Whether it was written out that anybody may come. Raises UsageError for what is not True or False: "false" would be taken for yes."""
    if not isinstance(insecure, bool):
        raise UsageError(f"insecure is True or False, not {insecure!r}")
    return insecure


def parse_endpoint(text: str) -> Endpoint:
    """Take "tcp://host:port" or "tcp://[ipv6]:port" apart. Raises UsageError naming what is wrong with it."""
    if not isinstance(text, str) or not text.startswith(SCHEME):
        raise UsageError(f"an endpoint is written tcp://host:port, not {shown_with_port(text) if isinstance(text, str) else text!r:.120}")
    host, colon, port = text[len(SCHEME) :].rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        bad_host = ":" not in host
    else:
        bad_host = ":" in host
    if not colon or not host or bad_host or any(c in host for c in "/?#@[] "):
        raise UsageError(f"an endpoint is written tcp://host:port, with an IPv6 address in brackets, not {shown_with_port(text)!r:.120}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65_535):
        raise UsageError(f"the port of {shown_with_port(text)!r:.120} is {shown_with_port(port)!r:.20}; allowed are 0 to 65535")
    try:
        host.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the host of {shown_with_port(text)!r:.120} cannot be written in UTF-8") from None
    return Endpoint(host, int(port))


def advertised(bound: str, wish: str | None) -> str:
    """What others are told of a broker that listens at `bound`: `wish`, its port 0 standing for the one listened at; None: `bound`.

    Raises UsageError for an address that is every address of a machine: whoever is told of it would find himself there.
    """
    endpoint, listens = parse_endpoint(bound if wish is None else wish), parse_endpoint(bound)
    if endpoint.is_unspecified:
        what = f"listens at {bound}" if wish is None else f"is to be advertised as {wish}"
        raise UsageError(f"a broker {what}, which is every address of this machine; say by which one others reach it: advertise")
    return str(endpoint._replace(port=endpoint.port or listens.port))


def known_addresses(endpoint: Endpoint) -> list[SocketAddress] | None:
    """The socket addresses of an address or of localhost, in the order in which to try them; None: a name that has to be looked up."""
    host, port = endpoint
    if host.lower() == "localhost":
        return [SocketAddress(_family(one), one, port) for one in _LOCALHOST]
    return [SocketAddress(_family(host), host, port)] if _is_address(host) else None


def addresses_of(endpoint: Endpoint) -> list[SocketAddress]:
    """Every socket address to try, in order. A name is asked of the system's resolver, which may block as long as that is configured
    to. Raises OSError if it finds nothing."""
    known = known_addresses(endpoint)
    if known is not None:
        return known
    host, port = endpoint
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [SocketAddress(family, str(where[0]), port) for family, _, _, _, where in found if family in _FAMILIES]
    if not addresses:
        raise OSError(f"{host} has neither an IPv4 nor an IPv6 address")
    return list(dict.fromkeys(addresses))


def _means_nowhere(host: str) -> bool:
    """Whether the system's resolver takes this for 0.0.0.0, as it takes "0", "0.0" and "0x0"."""
    try:
        return socket.inet_aton(host) == bytes(4)
    except (OSError, ValueError):
        return False


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)


def _family(literal: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in literal else socket.AF_INET
