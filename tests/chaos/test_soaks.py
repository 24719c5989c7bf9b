"""What a soak judges, and a short one."""

from __future__ import annotations

import os

import pytest
from tests.chaos.soaking import Sample, Soak, judge, look, slope, soak

MIB = 1 << 20


def samples(*, gains: float = 0.0, descriptors: int = 0, threads: int = 0, early: float = 0.0) -> list[Sample]:
    """A look each 18 s for an hour, with so much more in that hour; and as much as `early` MiB in the first third."""
    return [
        Sample(
            18.0 * n,
            int(60 * MIB + (gains * n / 200 + early * min(n, 60) / 60) * MIB),
            50 + descriptors * n // 200,
            9 + threads * n // 200,
        )
        for n in range(200)
    ]


def judged(found: list[Sample], seconds: float = 3_600) -> Soak:
    done = Soak("file", 1, seconds)
    judge(done, "1", found)
    return done


def test_what_grows_is_found() -> None:
    assert slope(samples(gains=3)) == pytest.approx(3, abs=0.01)
    flat = judged(samples(gains=0.9, early=20))
    assert (flat.broken, flat.descriptors, flat.threads) == ([], {"1": [50, 50]}, {"1": [9, 9]})
    assert flat.slopes["1"] == pytest.approx(0.9, abs=0.01)
    (grows,) = judged(samples(gains=1.2)).broken
    assert grows.startswith("broker 1 gains 1.2 MiB an hour")
    assert judged(samples(gains=1.2), 600).broken == [], "of ten minutes no slope is judged"
    assert judged(samples(descriptors=20)).broken == ["broker 1 has 68 descriptors, and had 57 when it was warm"]
    assert judged(samples(threads=20)).broken == ["broker 1 has 27 threads, and had 16 when it was warm"]
    assert judged(samples()[:12]).broken == ["broker 1 was looked at 8 times when it was warm"]


def test_a_look_at_a_process() -> None:
    seen = look(os.getpid(), 7.0)
    assert seen.at_s == 7.0
    assert seen.rss > MIB
    assert min(seen.descriptors, seen.threads) >= 1


@pytest.mark.processes
def test_a_short_soak() -> None:
    said: list[str] = []
    done = soak("file", 5, 10.0, every_s=5.0, say=said.append)
    assert done.broken == [], "\n".join(said)
    assert sum(done.faults.values()) == 2
    assert done.records >= done.acknowledged > 0
    assert set(done.slopes) == {"1", "2"}
