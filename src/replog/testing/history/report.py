"""What the checker found."""

from __future__ import annotations

from typing import Final

from attrs import define, field, frozen

__all__ = ["EXPLAINED_MAX", "KINDS", "Broken", "Report"]

KINDS: Final = {
    "lost-write": "a confirmed record is not where readers passed it",
    "inconsistent-offsets": "one offset holds two values",
    "duplicate": "one value has two offsets",
    "aborted-read": "a value was read whose send had failed",
    "phantom-read": "a value was read that nobody had sent",
    "nonmonotonic-poll": "a reader's position moved back",
    "poll-skip": "a reader passed over a record that exists",
    "nonmonotonic-send": "sends of one process have offsets out of their order",
    "unseen": "a record that was confirmed or read is missing at the end",
    "offset-gap": "a reader passed over an offset that nobody knows",
    "hw-regress": "a later read shows a lower high watermark",
    "uncommitted-read": "a record was read at or above the high watermark",
    "realtime-order": "a send began after another process's was over, or was read, and has the lower offset",
    "spurious-zero": "offset 0 or -1 was given to a record that is not the first",
}
"""Every kind of error, and what it means. Names as in Jepsen's Kafka workload where that has one."""

EXPLAINED_MAX: Final = 20
"""Errors of one kind that are explained; the rest is counted."""


@frozen
class Broken:
    """One error."""

    kind: str
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.key}: {self.text}"


@define
class Report:
    """The judgement on a history."""

    operations: int = 0
    errors: list[Broken] = field(factory=list)
    """At most EXPLAINED_MAX of each kind; `counts` has them all."""
    counts: dict[str, int] = field(factory=dict)
    """Kind -> number of errors; kinds that did not occur are absent."""
    notes: dict[str, int] = field(factory=dict)
    """What is worth knowing and no error -> how often: "int-send-skip", "duplicate" (without idempotence), "uncovered" (keys with
    final polls that do not reach from the start to the end), "unread" (confirmed records that nobody read)."""

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.counts

    def add(self, kind: str, key: str, text: str) -> None:
        """Count an error, and keep its explanation if there are not too many."""
        seen = self.counts.get(kind, 0)
        self.counts[kind] = seen + 1
        if seen < EXPLAINED_MAX:
            self.errors.append(Broken(kind, key, text))

    def note(self, kind: str, number: int = 1) -> None:
        """Count something that is no error."""
        if number:
            self.notes[kind] = self.notes.get(kind, 0) + number

    def to_json(self) -> dict[str, object]:
        """The same as plain data."""
        errors = [{"kind": broken.kind, "key": broken.key, "text": broken.text} for broken in self.errors]
        return {"ok": self.ok, "operations": self.operations, "counts": self.counts, "notes": self.notes, "errors": errors}

    def __str__(self) -> str:
        lines = [f"{self.operations} operations: " + ("no errors" if self.ok else f"{sum(self.counts.values())} errors")]
        for kind in sorted(self.counts):
            lines.append(f"{kind}: {self.counts[kind]} ({KINDS.get(kind, 'see the rule')})")
            shown = [broken for broken in self.errors if broken.kind == kind]
            lines += [f"  {broken.key}: {broken.text}" for broken in shown]
            if len(shown) < self.counts[kind]:
                lines.append(f"  and {self.counts[kind] - len(shown)} more")
        lines += [f"note: {kind}: {self.notes[kind]}" for kind in sorted(self.notes)]
        return "\n".join(lines)
