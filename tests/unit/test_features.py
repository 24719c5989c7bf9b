"""Which brokers may serve at which feature level, and to which level a cluster may be raised (KIP-584)."""

from __future__ import annotations

import pytest

from replog.features import BRINGS, FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN, FIRST, SUPPORTED, Levels, unfit, unsupported


def test_every_level_says_what_it_brings():
    assert list(BRINGS) == list(range(1, FEATURE_LEVEL_MAX + 1))
    assert SUPPORTED == (FEATURE_LEVEL_MIN, FEATURE_LEVEL_MAX)
    assert FIRST == (1, 1)


@pytest.mark.parametrize("level", [2, 3, 4])
def test_a_broker_serves_at_both_ends_of_what_it_supports_and_between(level: int):
    assert unfit(level, Levels(2, 4)) is None


@pytest.mark.parametrize(
    ("level", "supports", "text"),
    [
        (2, Levels(1, 1), "the cluster has feature level 2; this version of replog supports level 1: start a newer version"),
        (5, Levels(2, 4), "the cluster has feature level 5; this version of replog supports levels 2 to 4: start a newer version"),
        (
            1,
            Levels(2, 4),
            "the cluster has feature level 1; this version of replog supports levels 2 to 4: "
            "start a version that supports level 1, and raise the cluster to 2 with it first",
        ),
    ],
)
def test_whoever_may_not_serve_is_told_both_levels_and_what_to_do(level: int, supports: Levels, text: str):
    assert unfit(level, supports) == text


def test_a_level_that_some_broker_does_not_support_names_it_and_its_range():
    brokers = {3: Levels(1, 1), 1: Levels(1, 2), 2: Levels(3, 4)}
    assert unsupported(2, brokers) == "feature level 2 is not supported by broker 2 (levels 3 to 4), broker 3 (level 1)"
    assert unsupported(2, {1: Levels(1, 2), 2: Levels(2, 3)}) is None
