"""When a session may be ended by others: the rules as tables."""

from __future__ import annotations

import pytest

from replog.metadata.lease import NS_PER_MS, Lease, WriteWindow, has_expired, has_run_out


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
