"""What the controller writes down about brokers and losses: round trips, and values that are not one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.errors import StoreCorrupt
from replog.metadata import judgements as j

IDS = st.integers(0, 2**31 - 1)
WIDE = st.integers(-1, 2**63 - 1)
CANDIDATES = st.builds(j.Candidate, IDS, st.integers(-1, 2**31 - 1), WIDE)


@given(st.builds(j.Admission, st.integers(0, 2**63 - 1), st.text(), st.text()))
def test_admissions_come_back(admission):
    assert j.decode_admission("/p", j.encode_admission(admission)) == admission


@given(
    st.builds(
        j.LossRecord,
        st.text(),
        st.sampled_from(("unclean", "last_known")),
        IDS,
        IDS,
        st.lists(CANDIDATES).map(tuple),
        st.lists(IDS, unique=True).map(tuple),
    )
)
def test_losses_come_back(loss):
    assert j.decode_loss("/p", j.encode_loss(loss)) == loss


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"version":2}', b'{"version":1}', b'{"version":1,"candidates":[3]}'])
def test_anything_else_is_refused_with_its_path(value):
    for decode in (j.decode_admission, j.decode_loss):
        with pytest.raises(StoreCorrupt, match="/some/path"):
            decode("/some/path", value)


def test_paths():
    assert j.admitted_path(3) == "/brokers/admitted/3"
    assert j.loss_path(b"\x01" * 16, 2) == "/admin/losses/" + "01" * 16 + "/2"
