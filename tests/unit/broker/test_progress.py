"""What a broker is asked about the followers of what it leads: by anybody, hence with anything."""

from __future__ import annotations

from typing import Any

import pytest

from replog.broker.progress import PROGRESS, progress
from replog.errors import Code
from replog.messages import Admin


@pytest.mark.parametrize(
    "one", [None, [], "x", ["00" * 16], ["00" * 16, [], 0], ["00" * 16, 0, {}], ["00" * 16, True, 0], ["zz", 0, 0], [0, 0, 0], ["", 1.5, 0]]
)
def test_what_is_no_partition_is_not_there(one: Any) -> None:
    answer = progress({}, Admin(1, PROGRESS, {"partitions": [one]}))
    assert (answer.error, answer.result) == (Code.NONE, {"partitions": []})


@pytest.mark.parametrize("partitions", [None, "x", {}, [[]] * 1_001])
def test_what_is_no_list_of_them_is_refused(partitions: Any) -> None:
    assert progress({}, Admin(1, PROGRESS, {"partitions": partitions})).error == Code.INVALID_REQUEST
