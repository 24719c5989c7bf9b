"""What every test shares: how Hypothesis runs, and the option that accepts new expectations."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every machine, and no test that fails because a machine was slow.
settings.register_profile(
    "replog", derandomize=True, deadline=None, max_examples=60, print_blob=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("replog")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`: scenario files take what the cluster says now as what is expected. Read the difference before keeping it."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the expectations of scenario files")


def pytest_collection_finish() -> None:
    """What thousands of collected tests are made of stays to the end: a search for garbage need not look at half a million objects."""
    if not gc.get_freeze_count():  # some tests run pytest inside this process
        gc.collect()
        gc.freeze()


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    """For tests of who freezes what. Garbage is collected before it could be frozen: what it raises is heard."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether expectations are to be rewritten instead of compared."""
    return bool(request.config.getoption("--rewrite"))
