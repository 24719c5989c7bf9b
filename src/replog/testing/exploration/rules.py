"""The rules of replication as switches, the sizes of a world to explore, and rule sets that are known to be broken.

With every switch at its default the rules are those of `replog.partition` and `replog.controller`. Each broken set is one that
the field believed in for a while, or a guard that is easy to leave out; the search must find what is wrong with each.
"""

from __future__ import annotations

from attrs import evolve, field, frozen

from replog.testing.exploration.limits import whole

__all__ = ["BROKEN", "SOUND", "Bounds", "RuleSet", "Rules"]


@frozen
class Rules:
    """Which guards are in place."""

    truncate_by_epoch: bool = True
    """A follower cuts its log where epochs part from the leader's. Without: at its high watermark (M01, KIP-101)."""
    compare_on_each_fetch: bool = True
    """Divergence is looked for in each fetch. Without: once per leader epoch, and trusted from then on (KIP-320 as first specified)."""
    fence_fetch: bool = True
    """A fetch is answered with records only between replicas of one leader epoch (KIP-320, M05)."""
    fence_truncation: bool = True
    """Where to truncate is taken only from a leader of the follower's own epoch (KIP-320)."""
    fence_position: bool = True
    """Only a follower of this leader epoch counts for the high watermark and may join the ISR (KIP-320)."""
    enter_empty_epoch: bool = True
    """A leader enters its epoch in its table before the first write (KAFKA-7415). Without, no record is lost, see `SOUND`."""
    forget_diverging_offset: bool = True
    """The offset of a diverging fetch never counts (KAFKA-13141)."""
    forget_positions: bool = True
    """A new leadership knows nothing of its followers (M08). Shows only in a world with `positions`."""
    join_at_epoch_start: bool = True
    """Who joins the ISR must have reached the start of the leader's epoch (KAFKA-7128, M09)."""
    join_at_high_watermark: bool = True
    """Who joins the ISR must have reached the high watermark."""
    count_joining: bool = True
    """The high watermark counts who may have joined the ISR by now (M04). Shows only in a world with `proposals`."""
    count_leaving: bool = True
    """The high watermark counts who may still be in the ISR (M03). Shows only in a world with `proposals`."""
    check_version: bool = True
    """The store takes an ISR only from its present leader, who knows the present state (M07)."""
    refusal_is_final: bool = True
    """A proposal that was refused is not stored after all, as a copy that was late. Shows only in a world with `proposals`."""
    restart_costs_epoch: bool = True
    """A broker that restarts leaves the ISR, and its leadership is over (M13). Shows only in a world with `restarts`."""
    check_life: bool = True
    """A proposal says nothing about a later life of the broker that it adds (KIP-903, M15). Needs `restarts` and `proposals`."""


@frozen
class Bounds:
    """How large the world is. UsageError for what is too large, or nothing."""

    replicas: int = field(default=3, validator=whole(1, 4))
    records: int = field(default=2, validator=whole(1, 6))
    """So many records are ever written; a log is no longer than that."""
    epochs: int = field(default=4, validator=whole(1))
    """Leader epochs 0 to `epochs` - 1."""
    restarts: int = field(default=0, validator=whole(0))
    """So many times a broker loses its memory, and any part of the end of its log."""
    proposals: bool = False
    """An ISR change is sent, stored and answered in three steps, each of which may come late or never. Without: in one."""
    positions: bool = False
    """A leader knows how far a follower is from its last fetch. Without: it sees it, which is never less."""
    idle_steps: bool = False
    """Also steps that can enable nothing, as proposals that are bound to be refused; for comparing with the real code.

    With `positions` and `restarts` leaders then hear of a restart in a step of its own, and count until then what they knew."""

    def __str__(self) -> str:
        words = [f"{self.replicas} replicas, {self.records} records, {self.epochs} epochs"]
        words += [f"{self.restarts} restarts"] * bool(self.restarts) + ["proposals"] * self.proposals
        return ", ".join([*words, *["positions"] * self.positions, *["idle steps"] * self.idle_steps])


@frozen
class RuleSet:
    """Rules that are broken, and the smallest world in which that shows."""

    rules: Rules
    bounds: Bounds
    source: str
    """Who believed in them, or what the missing guard is for."""


_TINY = Bounds(3, 1, 2)
_LATER = Bounds(3, 1, 3)
_LONGER = Bounds(3, 2, 2)
_UNFENCED = Rules(fence_fetch=False, fence_truncation=False, fence_position=False)

BROKEN: dict[str, RuleSet] = {
    "truncate-to-high-watermark": RuleSet(evolve(_UNFENCED, truncate_by_epoch=False), _TINY, "M01, KIP-101"),
    "no-epoch-fence": RuleSet(evolve(_UNFENCED, compare_on_each_fetch=False), _LATER, "KIP-279"),
    "no-epoch-start": RuleSet(Rules(join_at_epoch_start=False), _TINY, "M09, KAFKA-7128"),
    "unfenced-fetch": RuleSet(Rules(compare_on_each_fetch=False, fence_fetch=False, fence_position=False), _LATER, "M05, KIP-320"),
    "unfenced-truncation": RuleSet(Rules(compare_on_each_fetch=False, fence_truncation=False), Bounds(3, 2, 3), "KIP-320"),
    "truncate-to-high-watermark, fenced": RuleSet(Rules(truncate_by_epoch=False), _TINY, "M01"),
    "unfenced-position": RuleSet(Rules(fence_position=False), _LATER, "M05"),
    "unfenced-fetch, compared each time": RuleSet(Rules(fence_fetch=False, fence_position=False), _LATER, "M05"),
    "no-fence, compared each time": RuleSet(_UNFENCED, _LATER, "M05"),
    "diverging-offset-counts": RuleSet(Rules(forget_diverging_offset=False), _LONGER, "KAFKA-13141"),
    "join-below-high-watermark": RuleSet(Rules(join_at_high_watermark=False), _TINY, "P-25"),
    "joining-not-counted": RuleSet(Rules(count_joining=False), evolve(_TINY, proposals=True), "M04, KIP-497"),
    "leaving-not-counted": RuleSet(Rules(count_leaving=False), evolve(_TINY, proposals=True), "M03, KIP-497"),
    "version-not-checked": RuleSet(Rules(check_version=False), _TINY, "M07"),
    "refused-and-stored-later": RuleSet(Rules(refusal_is_final=False), evolve(_TINY, proposals=True), "KIP-497, KIP-841"),
    "positions-kept": RuleSet(Rules(forget_positions=False), evolve(_LATER, positions=True), "M08"),
    "restart-is-free": RuleSet(Rules(restart_costs_epoch=False), evolve(_TINY, restarts=1), "M13"),
    "earlier-life-joins": RuleSet(Rules(check_life=False), evolve(_TINY, restarts=1, proposals=True), "M15, KIP-903"),
}
"""By name. The first five are those that every search of this model must find."""

SOUND: dict[str, Rules] = {
    "as-implemented": Rules(),
    "compared-once": Rules(compare_on_each_fetch=False),
    "empty-epoch-not-entered": Rules(enter_empty_epoch=False),
}
"""Rules that hold: those of the code, those of KIP-320 as first specified, and one that surprises.

A leader that does not know its own epoch before its first write (KAFKA-7415) cannot say where a follower parted from it. Here such a
question is answered "out of range", which counts for nothing: the follower waits for the first write, and nothing is lost.
"""
