"""Every plan that ever failed is replayed and violates nothing; and plans survive being written to a file and read again."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from replog.testing.simulator.corpus import Failure, add, from_json, load, replay_command, to_json, write, wrong_checks
from replog.testing.simulator.directions import draw_directed
from replog.testing.simulator.minimise import fails
from replog.testing.simulator.plan import Fault, Plan, Shape, draw

pytestmark = pytest.mark.simulation

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(CORPUS.glob("*.json"))
STORY = "A leader forgot what it had promised."


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_failed_once_does_not_fail_again(file: Path) -> None:
    failure = load(file)
    assert failure.story
    assert failure.invariant
    violation = fails(failure.plan)
    assert violation is None, f"{violation}\n{failure.story}\nreplay: {replay_command(file)}"


def test_there_is_a_corpus() -> None:
    assert len(FILES) >= 7


def test_it_says_what_was_a_mistake_of_which_simulator(tmp_path: Path) -> None:
    assert wrong_checks(tmp_path / "none") == frozenset()
    add(Failure(draw(3), "S1", STORY), tmp_path)
    add(Failure(draw(5), "L2", STORY, wrong_check="s1"), tmp_path)
    add(Failure(draw_directed(5, "long"), "L2", STORY, "s2", direction="long"), tmp_path)
    assert wrong_checks(tmp_path) == {(5, "", "L2", "s1"), (5, "long", "L2", "s2")}
    add(Failure(draw(5), "L2", "The same, told better."), tmp_path)
    assert wrong_checks(tmp_path) == {(5, "", "L2", "s1"), (5, "long", "L2", "s2")}, "nobody has said that it is right now"


@pytest.mark.parametrize("seed", range(1, 30))
def test_a_plan_survives_a_file(seed: int) -> None:
    failure = Failure(draw(seed), "S1", STORY)
    assert from_json(to_json(failure)) == failure
    wrong = attrs.evolve(failure, wrong_check="s1", direction="long")
    assert from_json(to_json(wrong)) == wrong


def test_every_field_is_written_out() -> None:
    data = json.loads(to_json(Failure(draw(1))))["plan"]
    assert set(data) == {field.name for field in attrs.fields(Plan)}
    assert set(data["shape"]) == {field.name for field in attrs.fields(Shape)}
    assert set(data["faults"][0]) == {field.name for field in attrs.fields(Fault)}


def test_a_plan_without_faults_and_a_bare_plan_can_be_read() -> None:
    calm = attrs.evolve(draw(1), faults=())
    text = to_json(Failure(calm))
    assert from_json(text).plan == calm
    assert from_json(json.dumps(json.loads(text)["plan"])) == Failure(calm)


def test_a_missing_field_has_its_default() -> None:
    data = json.loads(to_json(Failure(attrs.evolve(draw(1), faults=(Fault(1, "kill", "1", 5, other=3),)))))
    del data["plan"]["faults"][0]["other"]
    assert from_json(json.dumps(data)).plan.faults == (Fault(1, "kill", "1", 5),)


def test_what_cannot_be_understood_is_named(tmp_path: Path) -> None:
    text = to_json(Failure(draw(1)))
    assert draw(1).faults
    for old, new, complaint in (
        ('"brokers"', '"brokerz"', "shape of plan of the failure has an unknown field 'brokerz'"),
        ('"safety_ms"', '"other_ms"', "plan of the failure has an unknown field 'other_ms'"),
        (f'"safety_ms": {draw(1).safety_ms},', "", "plan of the failure lacks the field 'safety_ms'"),
        (f'"safety_ms": {draw(1).safety_ms},', '"safety_ms": "1",', "safety_ms of plan of the failure is '1', not of type int"),
        (f'"safety_ms": {draw(1).safety_ms},', '"safety_ms": true,', "safety_ms of plan of the failure is True, not of type int"),
        ('{"at_ms"', '5, {"at_ms"', "number 1 is 5, not an object"),
    ):
        assert old in text
        file = tmp_path / "plan.json"
        file.write_text(text.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(ValueError, match=complaint) as caught:
            load(file)
        assert str(file) in str(caught.value)


def test_a_share_may_be_written_as_a_whole_number() -> None:
    data = json.loads(to_json(Failure(draw(1))))
    data["plan"]["shape"]["drop"] = 0
    drop = from_json(json.dumps(data)).plan.shape.drop
    assert (drop, type(drop)) == (0.0, float)


def test_a_failure_is_written_under_the_seed_that_was_run(tmp_path: Path) -> None:
    file = write(Failure(draw(2), "S1"), tmp_path / "new", seed=1)
    assert file == tmp_path / "new" / "failure-1.json"
    assert load(file) == Failure(draw(2), "S1")


def test_the_corpus_grows_by_one_file_for_each_plan(tmp_path: Path) -> None:
    failure = Failure(draw(1), "S1", STORY)
    assert add(failure, tmp_path) == add(failure, tmp_path) == tmp_path / "S1-1.json"
    other = attrs.evolve(failure, plan=attrs.evolve(draw(1), faults=()))
    assert add(other, tmp_path) == tmp_path / "S1-1-2.json"
    assert [load(file).plan for file in sorted(tmp_path.iterdir())] == [other.plan, failure.plan]


def test_nothing_is_kept_without_a_story_an_invariant_or_a_folder(tmp_path: Path) -> None:
    for failure in (Failure(draw(1), "S1"), Failure(draw(1), story=STORY)):
        with pytest.raises(ValueError, match="what was wrong"):
            add(failure, tmp_path)
    with pytest.raises(FileNotFoundError, match="no corpus"):
        add(Failure(draw(1), "S1", STORY), tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []
