"""The guarantee that a writer asks for: whether it can be had together with what else was asked for, and the strategy that gives it."""

from __future__ import annotations

from typing import Final, Literal

from replog.client.arguments import check_choice
from replog.errors import UsageError
from replog.marks import check_writer
from replog.model import ACKS_ALL
from replog.spark.at_least_once import AtLeastOnce
from replog.spark.atomic import Atomic
from replog.spark.connections import Connection
from replog.spark.delivery import GUARANTEES, Attempt, Delivery, Guarantee
from replog.spark.exactly_once import ExactlyOnce
from replog.spark.work import key_of_slice

__all__ = ["BATCH_BYTES", "batch_bytes_of", "check_guarantee", "check_identity", "delivery_of"]

BATCH_BYTES: Final = 1 << 20
"""What a batch holds unless the configuration says otherwise: tasks write in bulk, and wait for nobody's single record."""
_SLICE_MAX: Final = 2**31 - 1


def check_guarantee(name: str, guarantee: object, acks_name: str, acks: int) -> Guarantee:
    """One that can be had with these acknowledgements; `name` and `acks_name` are what the user calls the two. Raises UsageError."""
    chosen: Guarantee = check_choice(name, guarantee, GUARANTEES)
    if chosen != "at-least-once" and acks != ACKS_ALL:
        text = f"{acks_name} is {acks}; {chosen} needs 'all': what one broker alone has may be gone when its version is asked for again"
        raise UsageError(f"{text}. {name} 'at-least-once' takes any")
    return chosen


def check_identity(names: tuple[str, str], app_id: str | None, version: int | None, guarantee: Guarantee) -> None:
    """What a job that may be run again is called; `names` are those of the two arguments. Both are given, or none. Raises UsageError."""
    if (app_id is None) != (version is None):
        given, missing = names if version is None else names[::-1]
        raise UsageError(f"{given} needs {missing} beside it: a run is told from another one by both")
    if app_id is None or version is None:
        return
    if guarantee == "at-least-once":
        raise UsageError(f"{names[0]} is for 'exactly-once' and 'atomic'; at-least-once writes again all it is given")
    try:
        check_writer(key_of_slice(Attempt(app_id, version, _SLICE_MAX, 0)), version)
    except UsageError as error:
        raise UsageError(f"{names[0]} with the number of a Spark partition behind it, or {names[1]}: {error}") from None


def batch_bytes_of(connection: Connection) -> int:
    """Cells that a batch is to hold."""
    return dict(connection.settings).get("batch_bytes", BATCH_BYTES)


def delivery_of(guarantee: Guarantee, *, acks: int, compression: Literal["lz4"] | None, batch_bytes: int) -> Delivery:
    """The strategy of a guarantee that was checked."""
    if guarantee == "at-least-once":
        return AtLeastOnce(acks, compression, batch_bytes)
    if guarantee == "atomic":
        return Atomic(compression, batch_bytes)
    return ExactlyOnce(compression, batch_bytes)
