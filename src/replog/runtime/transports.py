"""Which transport a broker has: one that is made for it, or one that its application has made with limits of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from replog.config import BrokerConfig
from replog.errors import UsageError
from replog.runtime.pump import tell
from replog.security.quotas import Quotas, quotas_of
from replog.security.settings import Security
from replog.transport.tcp import TcpTransport
from replog.transport.tcp.endpoint import check_insecure
from replog.transport.tcp.limits import check_own, limits_of

__all__ = ["transport_of"]


def transport_of(
    given: object,
    broker_id: int,
    config: BrokerConfig,
    *,
    now_ms: Callable[[], int],
    endpoint_of: Callable[[int], str | None],
    throttled: Callable[[Any, str, int], None],
    topic_of: Callable[[bytes], str | None],
    security: Security | None,
    quotas: Quotas | str | os.PathLike[str] | None,
    insecure: bool,
) -> TcpTransport:
    """The transport of a broker. One that is `given` hears what only the broker knows; what else there is to say of it was said to it.

    Raises UsageError for what is no TcpTransport of this broker, and for what is said here and was to be said to it.
    """
    check_insecure(insecure)
    if given is None:
        _check(security)
        return TcpTransport(
            role="broker",
            broker_id=broker_id,
            limits=limits_of(config),
            now_ms=now_ms,
            endpoint_of=endpoint_of,
            on_event=tell,
            insecure=insecure,
            security=security,
            quotas=quotas_of(quotas),
            throttled=throttled,
            topic_of=topic_of,
        )
    if not isinstance(given, TcpTransport):
        raise UsageError(f"transport is {given!r}; it must be a TcpTransport, or None")
    if (given.role, given.broker_id) != ("broker", broker_id):
        of_whom = f"broker {given.broker_id}" if given.role == "broker" else "a client"
        raise UsageError(f"the transport that is given here is that of {of_whom}, and this is broker {broker_id}")
    check_own(config, security=security, quotas=quotas, insecure=insecure)
    _check(given.security)
    given.surroundings.lend(endpoint_of=endpoint_of, on_event=tell, throttled=throttled, topic_of=topic_of)
    return given


def _check(security: Security | None) -> None:
    if security is not None:
        security.check_broker()
