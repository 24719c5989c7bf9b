"""`replog cluster show|raise`: both formats, and what is refused."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.unit.cli.conftest import Run, run_with

import replog
from replog import FeatureLevels


def test_show(run: Run, cluster: replog.Cluster) -> None:
    shown = run("cluster", "show")
    assert shown.status == 0
    assert shown.lines[0].endswith(": feature level 1")
    assert [line.split() for line in shown.lines[1:]] == [["broker", "lowest", "highest"], *([str(n), "1", "1"] for n in (1, 2, 3))]
    assert shown.stderr == "", "there is nothing to raise"
    plain = run("cluster", "show", "--format", "json").json
    assert plain["brokers"] == [{"broker": n, "low": 1, "high": 1} for n in (1, 2, 3)]
    assert "controller" not in plain, "what waits there changes with every call"
    assert (plain["level"], plain["highest"], plain["cluster_id"]) == (1, 1, cluster.describe_features().cluster_id)


def test_raise(run: Run) -> None:
    assert run("cluster", "raise", "1").lines == ["the cluster has feature level 1"]
    assert run("cluster", "raise", "1", "--format", "json").json == {"level": 1}


@pytest.mark.parametrize(
    ("level", "status", "says"),
    [
        ("2", 3, "not supported by broker 1 (level 1), broker 2 (level 1), broker 3 (level 1)"),
        ("0", 2, "at least 1"),
        ("x", 2, "whole number"),
        ("3000000000", 2, "2147483647"),
    ],
)
def test_what_is_refused(run: Run, capsys: pytest.CaptureFixture[str], level: str, status: int, says: str) -> None:
    refused = run("cluster", "raise", level)
    assert refused.status == status
    assert says in refused.stderr + capsys.readouterr().err


class Upgraded:
    """A client of a cluster whose brokers are of a later version."""

    def describe_features(self, *, timeout_s: float | None) -> FeatureLevels:
        return FeatureLevels("c", 1, {1: (1, 3), 2: (1, 2)})

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_people_are_told_that_it_can_be_raised_and_how() -> None:
    shown = run_with(cast(replog.Client, Upgraded()), "cluster", "show")
    assert shown.stderr == "every broker supports level 2: replog cluster raise 2\n"
    assert shown.lines[-1].split() == ["2", "1", "2"]


@pytest.mark.parametrize(
    ("level", "brokers", "highest"), [(1, {}, 1), (2, {1: (2, 4), 2: (1, 3)}, 3), (3, {1: (1, 2)}, 3)], ids=["nobody", "least", "beyond"]
)
def test_the_highest_level_is_what_everybody_supports_and_never_lower_than_now(
    level: int, brokers: dict[int, tuple[int, int]], highest: int
) -> None:
    assert FeatureLevels("c", level, brokers).highest == highest
    assert FeatureLevels("c", level, brokers).to_dict()["highest"] == highest
