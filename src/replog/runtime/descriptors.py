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


def within_descriptors(config: BrokerConfig, broker_id: int) -> BrokerConfig:
    """The same configuration, with an `open_files_max` of half the descriptors (`ulimit -n`) that connections leave, if it has more.

    Without room nothing could be flushed, nor a checkpoint be written. The log says so, as a warning.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return config
    most = max((allowed - min(config.connections_max, allowed * 3 // 4)) // 2, _LEAST)
    if config.open_files_max <= most:
        return config
    why = "broker %d keeps at most %d segment files open, not open_files_max (%d): of %d descriptors (ulimit -n) connections leave no more"
    _log.warning(why, broker_id, most, config.open_files_max, allowed)
    return evolve(config, open_files_max=most)
