"""Records of elections that may have lost something go with what they are about: a topic that is deleted, a partition that is removed.

Else they would pile up, and a partition that is added again under the same number would be told to have lost what its predecessor lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from replog.controller.changes import LossNoted, Topic
from replog.controller.cluster import Cluster
from replog.controller.decision import Piece
from replog.metadata import judgements
from replog.ports import Delete

__all__ = ["ends_of_losses"]


def ends_of_losses(cluster: Cluster, topic: Topic, numbers: Collection[int]) -> Iterator[Piece]:
    """What forgets the records about these partitions; one that cannot be removed stays."""
    for number in numbers:
        path = judgements.loss_path(topic.topic_id, number)
        version = cluster.losses.get(path)
        if version is not None and not cluster.is_stuck(path, version):
            yield Piece((Delete(path, version),), (LossNoted(path, -1),))
