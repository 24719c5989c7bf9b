"""Repairing a log whose files are damaged, while no broker has them open: what would be cut, and cutting just that."""

from __future__ import annotations

from replog.log.repair.cutting import carry_out
from replog.log.repair.planning import Cut, LogPlan, Plan, plan_of

__all__ = ["Cut", "LogPlan", "Plan", "carry_out", "plan_of"]
