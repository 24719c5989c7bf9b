"""Why a client reaches nobody: there are no brokers, or there are, and they refuse it. Pure, from what its core was told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from replog.client.core import ClientCore

__all__ = ["all_refuse", "nobody_serves", "refused_with"]

_REFUSED: Final = re.compile(r" refused with error (\d+): ")


def refused_with(core: ClientCore, code: int) -> bool:
    """Whether anybody that was not reached refused this client with this code."""
    return code in _refusals(core).values()


def nobody_serves(core: ClientCore) -> bool:
    """Whether everybody that the client knows was asked, and not reached."""
    return _known(core) <= _refusals(core).keys()


def all_refuse(core: ClientCore, code: int) -> bool:
    """Whether everybody that the client knows was asked, and refused it with this code."""
    if not core.unreached:
        return False
    refusals = _refusals(core)
    return all(refusals.get(endpoint) == code for endpoint in _known(core))


def _refusals(core: ClientCore) -> dict[object, int]:
    """Endpoint -> the code with which whoever is there refused the client when it was last dialed; 0: it was something else."""
    found: dict[object, int] = {}
    for address, why in core.unreached.items():
        told = _REFUSED.search(why)
        found[_endpoint(core, address)] = 0 if told is None else int(told[1])
    return found


def _known(core: ClientCore) -> set[object]:
    """Whom the client may ask: those that it was given, and those that the cluster has."""
    return {*core.bootstrap, *(_endpoint(core, number) for number, broker in core.view.brokers.items() if not broker.fenced)}


def _endpoint(core: ClientCore, address: object) -> object:
    """Two addresses may be one broker: its number, and where it was first met."""
    broker = core.view.brokers.get(address) if isinstance(address, int) else None
    return broker.endpoints[0] if broker is not None and broker.endpoints else address
