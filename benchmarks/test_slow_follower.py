"""What a follower at a hundredth of its speed does to the healthy pair (RELIABILITY R24).

Run with `pytest benchmarks/test_slow_follower.py --benchmark-enable -s`; MINUTES=10 for as long as the rule asks (else 1).
Three broker processes, each behind a proxy; one leads, one follows, and what the third gets of the leader is a hundredth of what it got
before, while other processes write as fast as they can with acks=all, more at once than the slow one can get within the lag limit. (Whoever
has less under way is held back to its speed: a follower that reaches the end in time is in sync.) `grown_mib`: the most memory that the
leader had at any time from before the follower gets slow until it has rejoined, less what it had before; `grown_until_left_mib`: the same
until the slow one has left the ISR, while appends wait for it; `left_s`: how long that takes. `pair_to_three`: what the pair acknowledges,
of what all three did before. The slow one catches up and rejoins once it is let go.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.measuring import report
from benchmarks.targets import at_least, at_most
from benchmarks.writers import Writers, forget_peak, peak_bytes, rss_bytes
from tests.chaos.brokers import Brokers
from tests.chaos.stores import FileUnderTest

import replog
from replog.testing.eventually import eventually

pytestmark = [pytest.mark.processes, pytest.mark.long]

MINUTES: Final = float(os.environ.get("MINUTES", "1"))
HEALTHY_S: Final = 15.0
LAG_MS: Final = 4_000
CONFIG: Final = {"replica_lag_ms_max": LAG_MS}
SIZE: Final = 10_000


def test_a_slow_follower(tmp_path: Path, benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    running = Brokers.running(tmp_path, FileUnderTest(tmp_path), 3, seed=0, config=CONFIG)
    with running as brokers, replog.connect(brokers.bootstrap) as client:
        client.create_topic("t", assignment={0: [1, 2, 3]}, min_isr=2, config={"retention_bytes": 1 << 30})
        leader = brokers.processes[1].pid

        def isr() -> set[int]:
            return set(client.describe("t").partitions[0].isr)

        eventually(lambda: isr() == {1, 2, 3})
        with Writers(brokers.bootstrap, "t", 1, processes=2, size=SIZE) as writers:
            writers.per_second(3)
            healthy = writers.per_second(HEALTHY_S)
            forget_peak(leader)
            before = rss_bytes(leader)
            brokers.links.change([(1, 3)], bytes_per_s=healthy * SIZE / 100)
            begun = time.monotonic()
            eventually(lambda: isr() == {1, 2}, 60)
            left_s = time.monotonic() - begun
            grown_until_left = peak_bytes(leader) - before
            pair = writers.per_second(MINUTES * 60)
        brokers.links.mend()
        begun = time.monotonic()
        eventually(lambda: isr() == {1, 2, 3}, 300)
        rejoined_s = time.monotonic() - begun
        grown = peak_bytes(leader) - before
    benchmark.pedantic(lambda: None)
    figures = {
        "minutes": MINUTES, "left_s": left_s, "pair_to_three": pair / healthy, "healthy_per_s": healthy, "pair_per_s": pair,
        "grown_mib": grown / (1 << 20), "grown_until_left_mib": grown_until_left / (1 << 20), "rejoined_s": rejoined_s,
        "failed": writers.failed,
    }  # fmt: skip
    targets = [at_most("grown_mib", 64), at_most("left_s", LAG_MS / 1_000 + 2), at_least("pair_to_three", 0.9)]
    report(benchmark, capsys, "a follower at a hundredth of its speed", figures, *targets)
    assert writers.failed == 0
