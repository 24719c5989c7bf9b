"""A client as a script plays it: appends named records, reads, asks; it remembers what was acknowledged and what it has read."""

from __future__ import annotations

from typing import Any

from attrs import define

from replog.broker.offsets import EARLIEST, LATEST
from replog.errors import UsageError
from replog.marks import WriterMark, framing
from replog.messages import (
    Epochs,
    EpochsEntry,
    Fetch,
    Fetched,
    FetchEntry,
    ListedOffsets,
    ListOffsets,
    ListOffsetsEntry,
    OffsetsForLeaderEpoch,
    Produce,
    Produced,
    ProduceEntry,
    Publish,
    Published,
    Stage,
    StagedAttempt,
)
from replog.model import ACKS_ALL, ACKS_LEADER, ACKS_NONE, PartitionId
from replog.partition.partition import Partition
from replog.records import RecordBatch, decode_records, encode_records, encode_values
from replog.testing.scenario.names import Command, code_name, letter, milliseconds
from replog.testing.scenario.play import CLIENT, Play

__all__ = ["Client", "batch_of"]

_ACKS = {"all": ACKS_ALL, "1": ACKS_LEADER, "0": ACKS_NONE}
_BYTES = 1 << 20


def batch_of(text: str, now_ms: int, *, producer: str = "", sequence: int = -1, lz4: bool = False) -> bytes:
    """The body of one batch: `m0+m1` is two records; `producer` is `id/epoch`."""
    producer_id, _, epoch = producer.partition("/")
    return encode_records(
        text.split("+"),
        now_ms=now_ms,
        compression="lz4" if lz4 else None,
        producer_id=int(producer_id) if producer else -1,
        producer_epoch=int(epoch or 0) if producer else -1,
        base_sequence=sequence,
    )


@define
class _Asked:
    label: str
    identity: PartitionId
    acks: int = 0
    offset: int = 0
    is_once: bool = False
    """What another attempt has stored may be acknowledged instead."""


class Client:
    """Speaks for the commands `append`, `once`, `stage`, `publish`, `read`, `latest` and their like."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._requests = 0
        self._asked: dict[int, _Asked] = {}
        self._bodies: dict[tuple[str, str, int], bytes] = {}
        """A retry sends the same bytes."""
        self.acknowledged: dict[tuple[PartitionId, int], str] = {}
        """(partition, offset) -> record of every append that acks=all has acknowledged."""
        self._read: dict[tuple[PartitionId, int], str] = {}

    def _number(self, asked: _Asked) -> int:
        self._requests += 1
        self._asked[self._requests] = asked
        return self._requests

    # --------------------------------------------------------------------------------------------------------- asking

    def append(self, to: int, identity: PartitionId, command: Command) -> None:
        """`append A m0 m1+m2 [acks=all] [producer=7/0 seq=0] [timeout=30s] [lz4]`: a batch per word, all in one request."""
        acks = _ACKS[command.take("acks", "all")]
        timeout_ms = milliseconds(command.take("timeout", "30s"))
        producer, sequence = command.take("producer", ""), command.number("seq", 0)
        lz4 = command.flag("lz4")
        entries = []
        for text in command.words:
            key = (text, producer, sequence)
            body = self._bodies.get(key) if producer else None
            if body is None:
                body = batch_of(text, self._play.clock.wall_ms(), producer=producer, sequence=sequence if producer else -1, lz4=lz4)
                self._bodies[key] = body
            entries.append(ProduceEntry(self._number(_Asked(text, identity, acks)), identity, body))
            sequence += text.count("+") + 1
        if not entries:
            raise UsageError("append: records are missing")
        command.words.clear()
        self._play.hand_over(to, CLIENT, Produce(acks, timeout_ms, entries))

    def once(self, to: int, identity: PartitionId, command: Command) -> None:
        """`once A m0+m1 writer=w version=1 [timeout=30s]`: one batch, unless that version is there."""
        text, made_ms = command.word("the records"), self._play.clock.wall_ms()
        mark = WriterMark(command.take("writer", "w"), command.number("version", 1), made_ms=made_ms)
        values = [record.encode() for record in text.split("+")]
        body = encode_values(values, now_ms=made_ms, **framing(mark))
        entry = ProduceEntry(self._number(_Asked(text, identity, ACKS_ALL, is_once=True)), identity, body)
        self._play.hand_over(to, CLIENT, Produce(ACKS_ALL, milliseconds(command.take("timeout", "30s")), [entry]))

    def stage(self, to: int, identity: PartitionId, command: Command) -> None:
        """`stage A m0+m1 m2 attempt=a writer=w version=1 [number=0]`: a piece per word, put aside."""
        writer, version, attempt = command.take("writer", "w"), command.number("version", 1), command.take("attempt", "a")
        for number, text in enumerate(command.words, command.number("number", 0)):
            body = encode_values([record.encode() for record in text.split("+")], now_ms=self._play.clock.wall_ms())
            entry = ProduceEntry(self._number(_Asked(f"{attempt}.{number}", identity)), identity, body)
            self._play.hand_over(to, CLIENT, Stage(writer, version, attempt, number, entry))
        command.words.clear()

    def publish(self, to: int, identity: PartitionId, command: Command) -> None:
        """`publish A a:2 b:1 writer=w version=1 [timeout=30s]`: two pieces of attempt a, one of b."""
        writer, version = command.take("writer", "w"), command.number("version", 1)
        attempts = [StagedAttempt(name, int(pieces)) for name, _, pieces in (text.partition(":") for text in command.words)]
        number = self._number(_Asked(f"publication of {'+'.join(command.words)}", identity))
        command.words.clear()
        timeout_ms = milliseconds(command.take("timeout", "30s"))
        self._play.hand_over(to, CLIENT, Publish(number, identity, writer, version, timeout_ms, attempts, self._play.clock.wall_ms()))

    def read(self, to: int, identity: PartitionId, offset: int, *, leader_epoch: int, wait_ms: int) -> None:
        """Fetch as a client does."""
        number = self._number(_Asked("read", identity, offset=offset))
        entry = FetchEntry(identity, leader_epoch, offset, -1, _BYTES)
        self._play.hand_over(to, CLIENT, Fetch(number, -1, -1, 0, -1, wait_ms, 1, _BYTES, [entry]))

    def offset(self, to: int, identity: PartitionId, at: str, leader_epoch: int) -> None:
        """Ask for the earliest or the latest offset."""
        number = self._number(_Asked(at, identity))
        entry = ListOffsetsEntry(identity, leader_epoch, {"earliest": EARLIEST, "latest": LATEST}[at])
        self._play.hand_over(to, CLIENT, ListOffsets(number, [entry]))

    def epoch_end(self, to: int, identity: PartitionId, epoch: int, leader_epoch: int) -> None:
        """Ask where an epoch ends."""
        number = self._number(_Asked(f"epoch {epoch}", identity))
        self._play.hand_over(to, CLIENT, OffsetsForLeaderEpoch(number, [EpochsEntry(identity, leader_epoch, epoch)]))

    # -------------------------------------------------------------------------------------------------------- answers

    def heard(self, sender: int, message: Any) -> None:
        """An answer has come."""
        match message:
            case Produced():
                for entry in message.entries:
                    self._produced(self._asked[entry.request], entry.error, entry.base_offset, entry.leader)
            case Published():
                self._published(self._asked[message.request], message)
            case Fetched():
                self._fetched(sender, message)
            case ListedOffsets():
                for listed in message.entries:
                    asked = self._asked[message.request]
                    self._play.say(f"{asked.label}: {code_name(listed.error) if listed.error else listed.offset}")
            case Epochs():
                for found in message.entries:
                    label = self._asked[message.request].label
                    end = "unknown" if found.epoch < 0 else f"epoch {found.epoch} ends at {found.end_offset}"
                    self._play.say(f"{label}: {code_name(found.error) if found.error else end}")
            case _:
                pass

    def _produced(self, asked: _Asked, error: int, base_offset: int, leader: int) -> None:
        if error:
            hint = f", try {letter(leader)}" if leader >= 0 else ""
            self._play.say(f"{asked.label}: {code_name(error)}{hint}")
            return
        self._play.say(f"{asked.label} acknowledged at {base_offset}" if base_offset >= 0 else f"{asked.label}: later work is there")
        if asked.acks == ACKS_ALL and not asked.is_once:
            for number, record in enumerate(asked.label.split("+")):
                self.acknowledged[asked.identity, base_offset + number] = record

    def _published(self, asked: _Asked, answer: Published) -> None:
        if answer.error:
            self._play.say(f"{asked.label}: {code_name(answer.error)}")
        elif answer.end_offset < 0:
            self._play.say(f"{asked.label} is put aside")
        elif answer.base_offset < 0:
            self._play.say(f"{asked.label}: later work is there")
        else:
            self._play.say(f"{asked.label} is done: {answer.base_offset} to {answer.end_offset}")

    def _fetched(self, sender: int, message: Fetched) -> None:
        asked = self._asked[message.request]
        if message.error:
            self._play.say(f"read at {asked.offset}: {code_name(message.error)}")
        for entry in message.entries:
            if entry.error:
                self._play.say(f"read at {asked.offset}: {code_name(entry.error)}")
                continue
            records = self._records(asked, entry.slices)
            below = f"below {entry.high_watermark}"
            self._play.say(f"{letter(sender)} gives {' '.join(records) or 'nothing'} {below}")
        if not message.entries and not message.error:
            self._play.say(f"{letter(sender)} gives nothing")

    def _records(self, asked: _Asked, slices: list[Any]) -> list[str]:
        records = []
        for piece in slices:
            data, at = piece.view(), 0
            while at < len(data):
                batch = RecordBatch.parse(data, at, identity=asked.identity)
                at += batch.length
                for record in decode_records(batch):
                    text = f"{(record.value or b'').decode()}.{batch.leader_epoch}"
                    before = self._read.setdefault((asked.identity, record.offset), text)
                    if before != text:
                        self._play.say(f"!! offset {record.offset} was {before} before, now it is {text}")
                        self._read[asked.identity, record.offset] = text
                    if record.offset >= asked.offset:
                        records.append(text)
        return records

    # ------------------------------------------------------------------------------------------------------ judgement

    def missing(self, leader: Partition) -> list[str]:
        """Records that were acknowledged, and that this leader does not have where they were."""
        have = {r.offset: (r.value or b"").decode() for r in leader.log.records()}  # type: ignore[attr-defined]
        promised = sorted((o, text) for (identity, o), text in self.acknowledged.items() if identity == leader.identity)
        return [f"{text} at {offset}" for offset, text in promised if have.get(offset) != text]
