"""Real identifiers: from the operating system, never from a seed."""

from __future__ import annotations

import random
import secrets

__all__ = ["RandomIds"]


class RandomIds:
    """The `Ids` of every driver but the simulator. Safe after a fork: nothing is kept between calls."""

    def token(self) -> bytes:
        """16 random bytes."""
        return secrets.token_bytes(16)

    def number(self) -> int:
        """63 random bits."""
        return secrets.randbits(63)

    def jitter(self) -> float:
        """Uniform in [0, 1)."""
        return random.random()
