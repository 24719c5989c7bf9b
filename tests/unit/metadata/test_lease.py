"""When a session may be ended by others: the rules as tables."""

from __future__ import annotations

import pytest

from replog.metadata.lease import GAP_MS_MIN, GAPS_MAX, NS_PER_MS, Lease, WriteWindow, has_expired, has_run_out, wants_write


def window(*writes_ms: int, gap_ms: int = 4_500) -> WriteWindow:
    made = WriteWindow(gap_ns=gap_ms * NS_PER_MS)
    for ms in writes_ms:
        made.wrote(ms * NS_PER_MS)
    return made


STEADY = (0, 3_000, 6_000, 9_000, 12_000)


@pytest.mark.parametrize(
    ("why", "lease", "writes_ms", "now_ms", "expired"),
    [
        ("renewed a full time ago", Lease("s", "boot", 0, 9_000), STEADY, 12_000, True),
        ("exactly a full time ago", Lease("s", "boot", 3_000 * NS_PER_MS, 9_000), STEADY, 12_000, False),
        ("renewed since", Lease("s", "boot", 6_000 * NS_PER_MS, 9_000), STEADY, 12_000, False),
        ("never by time", Lease("s", "boot", 0, None), STEADY, 12_000, False),
        ("another boot", Lease("s", "earlier", 12_000 * NS_PER_MS, 9_000), (), 12_000, True),
        ("another boot, private", Lease("s", "earlier", 0, None), (), 12_000, True),
        ("we never wrote", Lease("s", "boot", 0, 9_000), (), 100_000, False),
        ("we just came", Lease("s", "boot", 0, 9_000), (99_000,), 100_000, False),
        ("we could not write for a while", Lease("s", "boot", 0, 9_000), (0, 3_000, 60_000, 63_000), 66_000, False),
        ("we can again, long enough", Lease("s", "boot", 0, 9_000), (0, 60_000, 63_000, 66_000), 69_000, True),
        ("we were stopped until now", Lease("s", "boot", 0, 9_000), STEADY, 60_000, False),
        ("a longer session than ours", Lease("s", "boot", 0, 60_000), STEADY, 12_000, False),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_has_expired(why: str, lease: Lease, writes_ms: tuple[int, ...], now_ms: int, expired: bool) -> None:
    assert has_expired(lease, boot_id="boot", now_ns=now_ms * NS_PER_MS, window=window(*writes_ms)) is expired


@pytest.mark.parametrize(
    ("lease", "run_out"),
    [
        (Lease("s", "boot", 0, 9_000), True),
        (Lease("s", "boot", 3_000 * NS_PER_MS, 9_000), False),
        (Lease("s", "boot", 0, None), False),
        (Lease("s", "earlier", 12_000 * NS_PER_MS, None), True),
    ],
)
def test_a_session_has_run_out_whoever_may_end_it(lease: Lease, run_out: bool) -> None:
    assert has_run_out(lease, boot_id="boot", now_ns=12_000 * NS_PER_MS) is run_out


def test_a_failed_write_begins_the_window_anew() -> None:
    made = window(*STEADY)
    assert made.covers(12_000 * NS_PER_MS, 9_000)
    made.failed()
    assert not made.covers(12_000 * NS_PER_MS, 9_000)
    made.wrote(12_500 * NS_PER_MS)
    assert not made.covers(13_000 * NS_PER_MS, 9_000)


SLOW = (0, 15_000, 35_000)
"""Of somebody with a session of a minute, the last of which took twenty seconds."""


@pytest.mark.parametrize(
    ("why", "writes_ms", "now_ms", "session_ms", "covers"),
    [
        ("whoever has to write every second could not", SLOW, 35_000, 1_000, False),
        ("whoever has so much time could", SLOW, 35_000, 60_000, False),
        ("and long enough", (0, 20_000, 40_000), 60_000, 60_000, True),
        ("it has written often enough since", (*SLOW, 35_400, 35_800), 36_000, 1_000, True),
        ("but not for long enough", (*SLOW, 35_400, 35_800), 35_999, 1_000, False),
        ("not often enough since", (*SLOW, 35_501, 35_900), 36_000, 1_000, False),
        ("a longer gap after a shorter one", (*SLOW, 36_000, 40_000), 41_000, 6_000, False),
        ("a shorter gap after a longer one", (*SLOW, 37_000, 39_000, 41_000), 42_000, 6_000, True),
        ("not since a while", SLOW, 35_501, 1_000, False),
        ("nobody writes more often than that", (0, 300, 600), 700, 100, True),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_gaps_count_by_the_session_that_is_judged(
    why: str, writes_ms: tuple[int, ...], now_ms: int, session_ms: int, covers: bool
) -> None:
    assert window(*writes_ms, gap_ms=30_000).covers(now_ms * NS_PER_MS, session_ms) is covers


def test_gaps_that_get_shorter_and_shorter_are_not_all_remembered() -> None:
    """And the longest is not forgotten for that."""
    made, now_ms = window(0, gap_ms=30_000), 0
    for gap_ms in range(GAP_MS_MIN + GAPS_MAX + 50, GAP_MS_MIN, -1):
        now_ms += gap_ms
        made.wrote(now_ms * NS_PER_MS)
    assert len(made._gaps) == GAPS_MAX
    assert made._gaps[0][1] == (GAP_MS_MIN + GAPS_MAX + 50) * NS_PER_MS
    assert made.covers(now_ms * NS_PER_MS, 1_000)


@pytest.mark.parametrize(
    ("why", "lease", "writes_ms", "now_ms", "wanted"),
    [
        ("it may be ended", Lease("s", "boot", 0, 9_000), STEADY, 12_000, True),
        ("it lives", Lease("s", "boot", 3_000 * NS_PER_MS, 9_000), STEADY, 12_000, False),
        ("of another boot", Lease("s", "earlier", 0, None), STEADY, 12_000, True),
        ("we have just written", Lease("s", "boot", 0, 1_000), STEADY, 12_249, False),
        ("to be in a position to judge", Lease("s", "boot", 0, 1_000), STEADY, 12_250, True),
        ("our own renewal comes first", Lease("s", "boot", 0, 1_000), (), 12_250, False),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_whose_session_wants_a_write(why: str, lease: Lease, writes_ms: tuple[int, ...], now_ms: int, wanted: bool) -> None:
    assert wants_write(lease, boot_id="boot", now_ns=now_ms * NS_PER_MS, window=window(*writes_ms)) is wanted
