"""Which transport a broker has: one that is made for it, or one that its application has made with limits of its own."""

from __future__ import annotations

import os
from collections.abc import Callable

from replog.config import BrokerConfig
from replog.errors import UsageError
from replog.security.quotas import Quotas, quotas_of
from replog.security.settings import Security
from replog.transport.tcp import TcpTransport
from replog.transport.tcp.endpoint import check_insecure
from replog.transport.tcp.limits import check_own, limits_of
from replog.transport.tcp.surroundings import Surroundings

__all__ = ["transport_of"]


def transport_of(
    given: object,
    broker_id: int,
    config: BrokerConfig,
    around: Surroundings,
    *,
    now_ms: Callable[[], int],
    security: Security | None,
    quotas: Quotas | str | os.PathLike[str] | None,
    insecure: bool,
) -> TcpTransport:
    """The transport of a broker, which hears what only the broker knows. What else there is to say of one that is `given` was said to it.

    Raises UsageError for what is no TcpTransport of this broker, and for what is said here and was to be said to it.
    """
    check_insecure(insecure)
    made = None if given is None else _checked(given, broker_id)
    if made is not None:
        check_own(config, security=security, quotas=quotas, insecure=insecure)
        security = made.security
    if security is not None:
        security.check_broker()
    if made is None:
        made = TcpTransport(
            role="broker",
            broker_id=broker_id,
            limits=limits_of(config),
            now_ms=now_ms,
            insecure=insecure,
            security=security,
            quotas=quotas_of(quotas),
        )
    made.surroundings.lend(around)
    return made


def _checked(given: object, broker_id: int) -> TcpTransport:
    if not isinstance(given, TcpTransport):
        raise UsageError(f"transport is {given!r}; it must be a TcpTransport, or None")
    if (given.role, given.broker_id) != ("broker", broker_id):
        of_whom = f"broker {given.broker_id}" if given.role == "broker" else "a client"
        raise UsageError(f"the transport that is given here is that of {of_whom}, and this is broker {broker_id}")
    return given
