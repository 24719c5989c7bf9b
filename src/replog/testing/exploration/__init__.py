"""Exhaustive exploration: every state that a tiny cluster can reach, by the published rules and by the real code."""
