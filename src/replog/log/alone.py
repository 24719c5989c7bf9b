"""A log on its own: a directory that holds just this one, made, opened and closed with it."""

from __future__ import annotations

from collections.abc import Callable
from errno import EACCES, EINVAL, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM, EROFS
from typing import Final

from replog.config import BrokerConfig, TopicConfig
from replog.errors import LogDamaged, LogFull, UsageError
from replog.log.directory import FileLogDirectory
from replog.log.files import Fs
from replog.log.segmented import PASSING
from replog.log.shared import SharedLog
from replog.model import PartitionId
from replog.ports import Location, LogStart

__all__ = ["LoneDirectory", "open_alone"]

_TOPIC: Final = "(alone)"
"""No topic can have this name, so that a broker's directory is never taken for a log on its own, nor the other way round."""
_NO_PLACE: Final = frozenset({EACCES, EINVAL, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM, EROFS})
"""What says that no log can be at this path: nothing is damaged."""


class LoneDirectory(FileLogDirectory):
    """Its log is used by the threads of an application, and not by one broker alone."""

    _log_class = SharedLog


def open_alone(
    path: str | Location, config: TopicConfig | None, fs: Fs, limits: BrokerConfig | None
) -> tuple[SharedLog, Callable[..., None]]:
    """The log under `path`, and what closes its directory (`clean` or not). `config` None keeps the configuration it has."""
    try:
        directory = LoneDirectory(path, limits=limits, fs=fs)
    except OSError as error:
        kind = LogFull if error.errno in PASSING else UsageError if error.errno in _NO_PLACE else LogDamaged
        said = error.strerror or str(error)
        where = "" if error.filename in (None, path) else f" ({error.filename})"
        raise kind(f"{path} cannot be opened: {said}{where}") from error
    try:
        identities = directory.identities()
        if identities and (len(identities) > 1 or directory.topic_of(identities[0]) != _TOPIC):
            raise UsageError(f"{path} is the log directory of a broker, not a log on its own")
        identity = identities[0] if identities else PartitionId(fs.random_bytes(16), 0, 0)
        log = directory.get(identity)
        if log is None or (config is not None and log.config != config):
            directory.create([LogStart(identity, _TOPIC, config or TopicConfig())])
            log = directory.get(identity)
        assert isinstance(log, SharedLog)
        log.loss = directory.loss
        if log.loss.lossy:
            directory.registered(0)  # the caller has the report: it is told once
    except BaseException:
        directory.close(clean=False)
        raise
    return log, directory.close
