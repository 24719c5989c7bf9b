"""Shipped test tools: contract suites for backends, simulated disks and clocks, and waiting without guessing."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["SUITES"]

SUITES = (
    "contract_sessions",
    "lasting_contract",
    "log_contract",
    "log_directory_contract",
    "log_flush_contract",
    "log_samples",
    "race_contract",
    "session_contract",
    "store_contract",
    "transport_contract",
    "watch_contract",
)
"""The modules of the contract suites: pytest explains the assertions in them as it explains those of test files."""

_pytest: Any = sys.modules.get("pytest")
if _pytest is not None:  # nothing else here needs it
    _pytest.register_assert_rewrite(*(f"{__name__}.{suite}" for suite in SUITES))
