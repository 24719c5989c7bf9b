"""The client's picture of the cluster never goes back, and has no gaps."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.unit.client.fake import FakeCluster

from replog.client.view import NEWS, NOT_NEWER, STALE, Place, View
from replog.messages import ClusterView


def delta(view: ClusterView, since: int) -> ClusterView:
    return evolve(view, since=since)


def test_a_complete_view_replaces_everything() -> None:
    cluster, view = FakeCluster(), View()
    cluster.create("a", 2)
    assert view.merge(cluster.view()) == NEWS
    assert view.topics["a"].numbers() == [0, 1]
    cluster.delete("a")
    assert view.merge(cluster.view()) == NEWS
    assert not view.topics


def test_older_views_and_empty_ones_are_stale() -> None:
    cluster, view = FakeCluster(), View()
    old = cluster.view()
    cluster.create("a")
    view.merge(cluster.view())
    assert view.merge(old) == STALE
    assert view.merge(evolve(cluster.view(), brokers=[])) == STALE
    assert view.merge(evolve(cluster.view(), controller_epoch=0, version=99)) == STALE
    assert "a" in view.topics


def test_the_same_view_again_is_an_answer_without_news() -> None:
    cluster, view = FakeCluster(), View()
    view.merge(cluster.view())
    serial = view.serial
    assert view.merge(cluster.view()) == NOT_NEWER
    assert view.serial == serial


def test_a_complete_view_of_the_same_version_may_show_other_topics() -> None:
    """Rules say what is shown to whom (`security.door`): what a client may see changes while the cluster stands still."""
    cluster, view = FakeCluster(), View()
    cluster.create("a")
    cluster.create("b", 2)
    whole = cluster.view()
    shown = evolve(whole, topics=whole.topics[:1])
    assert view.merge(shown) == NEWS
    serial = view.serial
    assert view.merge(evolve(whole, since=whole.version, brokers=[], topics=[])) == NOT_NEWER
    assert view.merge(shown) == NOT_NEWER
    assert (sorted(view.topics), view.serial) == (["a"], serial)
    assert view.merge(whole) == NEWS
    assert (sorted(view.topics), view.serial) == (["a", "b"], serial + 1)
    place = view.place("a", 0)
    assert place is not None
    assert view.hint(place.identity, 2, 5)
    assert view.merge(shown) == NEWS
    assert (sorted(view.topics), view.place("a", 0)) == (["a"], Place(place.identity, 2, 5))


def test_deltas_apply_in_order_and_a_gap_is_no_answer() -> None:
    cluster, view = FakeCluster(), View()
    view.merge(cluster.view())
    cluster.create("a")
    cluster.create("b")
    assert view.merge(delta(cluster.view(), since=2)) == STALE
    assert view.merge(delta(cluster.view(), since=1)) == NEWS
    assert sorted(view.topics) == ["a", "b"]
    assert (list(view.gone or ()), view.merge(delta(cluster.view(), since=1)), view.gone) == ([], NOT_NEWER, {})
    gone = view.topics["a"].topic_id
    assert view.merge(ClusterView(1, 9, view.version, 1, [], [], removed_topics=[gone], removed_brokers=[3])) == NEWS
    assert sorted(view.topics) == ["b"]
    assert sorted(view.brokers) == [1, 2]
    assert view.gone == {("a", 0): None}
    assert view.merge(ClusterView(1, 10, 9, 1, [], [])) == NEWS
    assert view.gone == {}
    assert view.merge(evolve(cluster.view(), version=11)) == NEWS
    assert view.gone is None, "perhaps anything"
    assert view.merge(evolve(cluster.view(), version=11)) == NOT_NEWER
    assert view.gone == {}


def test_a_hidden_topic_stays_as_it_was_and_no_other() -> None:
    cluster, view = FakeCluster(), View()
    for name in ("a", "b", "c"):
        cluster.create(name)
    view.merge(cluster.view())
    place = view.place("a", 0)
    assert place is not None
    whole = cluster.view()
    partial = evolve(whole, version=whole.version + 1, topics=[one for one in whole.topics if one.topic == "b"], hidden=["a", "x"])
    assert view.merge(partial) == NEWS
    assert (sorted(view.topics), view.place("a", 0), view.hidden) == (["a", "b"], place, {"a", "x"})
    assert view.merge(partial) == NOT_NEWER
    assert view.hint(place.identity, 2, 50), "it is still known by its id"
    known = evolve(partial, topics=whole.topics, hidden=["a", "x"])
    assert view.merge(known) == NEWS, "another broker knows more in the same version"
    cluster.delete("a")
    cluster.create("a")
    again = evolve(cluster.view(), version=whole.version + 2, hidden=["x"])
    assert view.merge(again) == NEWS
    assert view.place("a", 0) not in (None, place), "another topic has its name"
    assert view.merge(evolve(again, version=whole.version + 3, topics=[], hidden=[])) == NEWS
    assert (view.topics, view.hidden) == ({}, frozenset())


def test_a_topic_created_again_has_another_identity() -> None:
    cluster, view = FakeCluster(), View()
    cluster.create("a")
    view.merge(cluster.view())
    before = view.place("a", 0)
    cluster.delete("a")
    cluster.create("a")
    view.merge(delta(cluster.view(), since=view.version))
    after = view.place("a", 0)
    assert before is not None
    assert after is not None
    assert before.identity != after.identity
    assert view.merge(ClusterView(1, 99, view.version, 1, [], [], removed_topics=[before.identity.topic_id])) == NEWS
    assert view.place("a", 0) is not None


def test_a_hint_counts_only_with_a_newer_leader_epoch() -> None:
    cluster, view = FakeCluster(), View()
    cluster.create("a")
    view.merge(cluster.view())
    place = view.place("a", 0)
    assert place is not None
    assert not view.hint(place.identity, 2, 0)
    assert not view.hint(place.identity, -1, 5)
    assert view.hint(place.identity, 2, 5)
    moved = view.place("a", 0)
    assert moved is not None
    assert (moved.leader, moved.leader_epoch) == (2, 5)


@pytest.mark.parametrize("since", [-1, 1])
def test_a_view_from_before_a_hint_does_not_bring_the_old_leader_back(since: int) -> None:
    """A client that is behind may hear of a leader from a refusal first, and then get news that are older than that (KIP-320)."""
    cluster, view = FakeCluster(), View()
    cluster.create("a")
    cluster.version = 1
    view.merge(cluster.view())
    place = view.place("a", 0)
    assert place is not None
    view.hint(place.identity, 2, 5)
    for version, (epoch, led) in enumerate([(4, (2, 5)), (5, (3, 5)), (6, (3, 6))], start=2):
        cluster.partition("a").leader, cluster.partition("a").epoch = 3, epoch
        assert view.merge(evolve(cluster.view(), version=version, since=since if since < 0 else version - 1)) == NEWS
        assert view.place("a", 0) == (place.identity, *led)
    again = evolve(cluster.view().topics[0], partitions=(evolve(cluster.view().topics[0].partitions[0], creation=1, leader_epoch=0),))
    view.merge(evolve(cluster.view(), version=9, topics=[again]))
    assert view.place("a", 0) == Place(place.identity._replace(creation=1), 3, 0)  # another log: its leader epochs begin anew
    cluster.delete("a")
    cluster.create("a")
    view.merge(evolve(cluster.view(), version=10))
    assert view.place("a", 0) == Place(cluster.partition("a").identity, 1, 0)


def test_partitions_beyond_the_end_of_their_topic_are_gone() -> None:
    """A delta that names some partitions, or none, says where the topic ends; one that does not say it takes nothing away."""
    cluster, view = FakeCluster(), View()
    cluster.create("a", 4)
    view.merge(cluster.view())
    news = cluster.view()
    (topic,) = news.topics
    for version, (end, left) in enumerate([(-1, [0, 1, 2, 3]), (4, [0, 1, 2, 3]), (2, [0, 1])], start=1):
        shrunk = evolve(topic, partitions=topic.partitions[:1], end=end)
        assert view.merge(evolve(news, version=news.version + version, since=view.version, topics=[shrunk])) == NEWS
        assert view.topics["a"].numbers() == left
    assert view.place("a", 2) is None
    assert view.unknown("a", 2) == "topic 'a' has no partition 2; it has 0, 1"
    again = evolve(topic.partitions[2], creation=1)
    view.merge(evolve(news, version=view.version + 1, since=view.version, topics=[evolve(topic, partitions=(again,), end=3)]))
    place = view.place("a", 2)
    assert place is not None
    assert place.identity.creation == 1
