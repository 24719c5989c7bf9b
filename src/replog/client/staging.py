"""`append_once`, `stage` and `publish`: for tasks that are run again, in parallel, or by somebody else, until they are done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from replog.client.arguments import check_count, check_list
from replog.client.once import AppendOnceOp, PublishOp, StageOp
from replog.client.operations import Operation
from replog.client.results import Receipt
from replog.config import check_partition_number, check_topic_name
from replog.errors import UsageError
from replog.marks import PIECES_MAX, WriterMark, check_attempt, check_attempts, check_writer, framing
from replog.messages import Published
from replog.payload import check_rows
from replog.records import Framing, Record, encode_records

if TYPE_CHECKING:
    from replog.client.driver import Driver

__all__ = ["Staging"]

Records = Sequence[Record | bytes | str | None]


class Staging:
    """What a `Client` can do for work that is repeated.

    A writer is whoever does the same work again under the same name; each piece of its work has a version, which grows. The leader of
    a partition keeps the last version of each writer, as a function of the log, for `writer_expiry_ms` after the call.
    """

    _driver: Driver

    def _do(self, op: Operation) -> Any:
        """Run an operation to its end."""
        raise NotImplementedError

    def _deadline(self, timeout_s: float | None) -> int:
        """When an operation that begins now is given up."""
        raise NotImplementedError

    def append_once(
        self, topic: str, partition: int, records: Records, *, writer: str, version: int, timeout_s: float | None = 30
    ) -> Receipt:
        """Append records as one batch, unless this version of the writer's work, or a later one, is in the partition; acknowledged by all
        in-sync replicas either way.

        The receipt is that of the first time, which may have had another number of records; its offsets are None if that is gone, or was a
        later version. Raises UsageError, naming
        value and limit, MessageTooLarge if the records do not fit into one batch (then `stage` and `publish`), InvalidTimestamp if the
        clock here is far from the leader's, or Unavailable (TimedOut, or a refusal of what may have been stored before): asked again, with
        any client, it is stored once.
        """
        topic = check_topic_name(topic)
        partition = check_partition_number(partition)
        wall_ms = self._driver.wall_ms()
        mark: Framing = {**framing(WriterMark(writer, check_count("version", version, 0), made_ms=wall_ms)), "compression": "lz4"}
        body = encode_records(_checked(records), now_ms=wall_ms, **mark)
        base, end = self._do(AppendOnceOp(topic, partition, body, self._deadline(timeout_s)))
        return _receipt(topic, partition, base, end - base)

    def stage(
        self,
        topic: str,
        partition: int,
        records: Records,
        *,
        writer: str,
        version: int,
        attempt: str,
        number: int,
        timeout_s: float | None = 30,
    ) -> bool:
        """Put records aside with the partition's leader, as piece `number` (from 0) of an attempt at this work. False if the work is
        published already: then nothing need be staged.

        Nobody reads them before they are published. They are kept for `stage_expiry_ms`, in one place only: if the leader changes they
        are gone, and `publish` raises UnknownStage. Raises MessageTooLarge if they do not fit into one batch: they take two pieces then.
        """
        topic = check_topic_name(topic)
        partition = check_partition_number(partition)
        check_writer(writer, check_count("version", version, 0))
        body = encode_records(_checked(records), now_ms=self._driver.wall_ms(), compression="lz4")
        check_attempt(attempt)
        number = check_count("number", number, 0, PIECES_MAX - 1)
        deadline_ms = self._deadline(timeout_s)
        op = StageOp(topic, partition, deadline_ms, writer=writer, version=version, attempt=attempt, number=number, body=body)
        said: Published = self._do(op)
        return said.end_offset < 0

    def publish(
        self,
        topic: str,
        partition: int,
        attempts: Sequence[tuple[str, int]],
        *,
        writer: str,
        version: int,
        timeout_s: float | None = 30,
    ) -> Receipt:
        """Append everything that these attempts have staged, (attempt, number of pieces) each, in this order: readers see all of it or
        nothing, however much it is. Whatever else was staged for this version is dropped.

        A version that was published already, or an earlier one, is done: its first receipt comes back, without offsets if they are
        gone. Raises UnknownStage if not all of it is with the leader: stage it again; or InvalidTimestamp and
        Unavailable like `append_once`.
        """
        topic = check_topic_name(topic)
        partition = check_partition_number(partition)
        check_writer(writer, check_count("version", version, 0))
        work: dict[str, Any] = {"writer": writer, "version": version, "made_ms": self._driver.wall_ms()}
        op = PublishOp(topic, partition, self._deadline(timeout_s), **work, attempts=_attempts(attempts))
        said: Published = self._do(op)
        return _receipt(topic, partition, said.base_offset, said.end_offset - said.base_offset)


def _attempts(given: object) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for one in check_list("attempts", given, "(attempt, number of pieces)"):
        if not isinstance(one, tuple | list) or len(one) != 2:
            raise UsageError(f"attempts has {one!r:.80}; each is (attempt, number of pieces)")
        found.append((check_attempt(one[0]), check_count("pieces", one[1], 1, PIECES_MAX)))
    check_attempts(found)
    return found


def _checked(records: Records) -> list[Record | bytes | str | None]:
    made = list(check_rows("records", records, "values or Records"))
    if not made:
        raise UsageError("records is empty; there is nothing to append")
    return made


def _receipt(topic: str, partition: int, base: int, count: int) -> Receipt:
    return Receipt(topic, partition, *((None, None) if base < 0 else (base, base + count - 1)))
