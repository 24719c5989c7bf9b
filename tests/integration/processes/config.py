"""The configuration of brokers that are to notice soon what befalls them."""

from __future__ import annotations

SESSION_MS = 1_500
CONFIG = {"session_ms": SESSION_MS, "heartbeat_ms": 300, "replica_lag_ms_max": 2_000, "ack_timeout_ms": 1_000, "reconcile_ms": 3_000}
