"""How many of the process's file descriptors a log directory may have: connections, stores and slices that wait need some as well."""

from __future__ import annotations

import logging
import resource
from typing import Final

from attrs import evolve

from replog.config import BrokerConfig

__all__ = ["within_descriptors"]

_log = logging.getLogger("replog")
_LEAST: Final = 8
"""As in `BrokerConfig.open_files_max`."""


def within_descriptors(config: BrokerConfig, broker_id: int, *, brokers: int = 1, listens: bool = True) -> BrokerConfig:
    """The same configuration, with an `open_files_max` of half the descriptors (`ulimit -n`) that connections leave, if it has more.

    Without room nothing could be flushed, nor a checkpoint be written. So many `brokers` of one process share that half; where none of them
    `listens` there are no connections. The log says so: as a warning where somebody deploys brokers, else as information.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return config
    connections = min(config.connections_max, allowed * 3 // 4) if listens else 0
    most = max((allowed - connections) // 2 // brokers, _LEAST)
    if config.open_files_max <= most:
        return config
    why = "broker %d keeps at most %d segment files open, not open_files_max (%d): of %d descriptors (ulimit -n) there are no more for it"
    _log.log(logging.WARNING if listens else logging.INFO, why, broker_id, most, config.open_files_max, allowed)
    return evolve(config, open_files_max=most)
