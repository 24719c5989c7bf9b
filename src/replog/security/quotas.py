"""`Quotas`: how many bytes per second clients may send and fetch; in code, or in a file of settings.

Sources: KIP-13 (quotas per client), KIP-219 (who is over its quota is answered, and then not heard for a while).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

from attrs import Attribute, field, fields, frozen

from replog.errors import UsageError
from replog.security.identity import identity_from
from replog.security.keys import check_keys
from replog.security.private import settings_from

__all__ = ["BYTES_PER_S_MIN", "Quota", "Quotas", "quotas_of"]

BYTES_PER_S_MIN: Final = 64 << 10
"""The lowest limit. With less a client's kernel could stand still for so long that the client takes the broker for gone."""
_BYTES_PER_S_MAX: Final = 2**63 - 1
_BURST_MS_MAX: Final = 3_600_000


def _rate(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    if type(value) is not int or not (value == 0 or BYTES_PER_S_MIN <= value <= _BYTES_PER_S_MAX):
        allowed = f"0 (no limit) and {BYTES_PER_S_MIN} to {_BYTES_PER_S_MAX}"
        raise UsageError(f"{attribute.name} is {value!r:.80}; allowed are {allowed}")


def _burst(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    if type(value) is not int or not 0 <= value <= _BURST_MS_MAX:
        raise UsageError(f"burst_ms is {value!r:.80}; allowed are 0 to {_BURST_MS_MAX}")


@frozen(kw_only=True)
class Quota:
    """The limits of one client, in bytes per second; 0: no limit."""

    produce_bytes_per_s: int = field(default=0, validator=_rate)
    fetch_bytes_per_s: int = field(default=0, validator=_rate)


def _clients(given: Any) -> dict[str, Mapping[str, Any]]:
    if not isinstance(given, Mapping):
        raise UsageError(f"clients is a mapping of names to limits, not {given!r:.80}")
    found: dict[str, Mapping[str, Any]] = {}
    for name, limits in given.items():
        if not isinstance(limits, Mapping):
            raise UsageError(f"clients: {name!r:.80} has limits, {{'produce_bytes_per_s': 1_000_000}}, not {limits!r:.80}")
        if found.setdefault(_name(name), limits) is not limits:
            raise UsageError(f"clients: {name!r:.80} is given twice, in two ways of writing it")
    return found


def _name(text: Any) -> str:
    """As connections are named: a principal, or an address in its shortest form."""
    identity = identity_from(text) if isinstance(text, str) else None
    if identity is not None and not identity.is_broker:
        return str(identity)
    try:
        return str(ip_address(str(text)))
    except ValueError:
        known = "client/NAME, admin/NAME, client, admin, and IP addresses"
        raise UsageError(f"clients: {text!r:.80} is no client; there are {known}") from None


@frozen(kw_only=True, eq=False)
class Quotas:
    """What each client may send to one broker and fetch from it, in bytes per second; 0: no limit. Raises UsageError for a bad value.

    `produce_bytes_per_s` is about all that a client sends but its fetches, `fetch_bytes_per_s` about the answers to these, each with
    everything that goes along with the records. `burst_ms`: who was silent may be ahead of its limit by so much. `clients`: name -> limits
    of its own, in place of those for everybody. A name is who somebody has proven to be ("client/billing", "client", "admin"), and
    without security the address it comes from ("10.0.0.7"); all connections of one name share its limits, and so do all IPv6 addresses of
    one /64 (in it one host may have them all) and all of 127/8, but for those that have limits of their own. Brokers have none.
    """

    produce_bytes_per_s: int = field(default=0, validator=_rate)
    fetch_bytes_per_s: int = field(default=0, validator=_rate)
    burst_ms: int = field(default=1_000, validator=_burst)
    clients: Mapping[str, Any] = field(factory=dict, converter=_clients)
    _of: dict[str, Quota] = field(init=False, repr=False, factory=dict)
    _others: Quota = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        limits = {"produce_bytes_per_s": self.produce_bytes_per_s, "fetch_bytes_per_s": self.fetch_bytes_per_s}
        object.__setattr__(self, "_others", Quota(**limits))
        for name, own in self.clients.items():
            try:
                check_keys("it", own, limits)
                self._of[name] = Quota(**{**limits, **own})
            except UsageError as problem:
                raise UsageError(f"clients: {name}: {problem}") from None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Quotas:
        """Read a file of settings: TOML with the keys of this class, and a table [clients."NAME"] for each client with limits of its own.

        UsageError naming the file and what is wrong with it; also if others can change it.
        """

        def make(found: dict[str, Any], _: str) -> Quotas:
            check_keys("it", found, [one.name for one in fields(cls) if one.init])
            return cls(**found)

        return settings_from(path, make)

    def name_of(self, address: str, origin: str) -> str:
        """As whom a client counts that has not proven who it is: its address if that has limits of its own, else where it comes from."""
        return address if address in self._of else origin

    def of(self, name: str) -> Quota:
        """The limits of a client."""
        return self._of.get(name, self._others)


def quotas_of(given: Quotas | str | os.PathLike[str] | None) -> Quotas | None:
    """What was given as `quotas`: settings, or the path of a file of them. UsageError for anything else."""
    if given is None or isinstance(given, Quotas):
        return given
    if isinstance(given, str | os.PathLike) and os.fspath(given):
        return Quotas.from_file(given)
    raise UsageError("quotas is a replog.Quotas, or the path of a file of settings")
