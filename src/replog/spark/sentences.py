"""Errors reach the driver as a sentence: Spark puts the stack of a worker before what was said, and nobody reads as far as that."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from replog.errors import ReplogError

__all__ = ["in_a_sentence"]


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """What replog itself has to say comes without a stack; any other exception keeps its own.

    A worker of Spark ends with the exception that leaves it, so nobody else's stack is hidden. Elsewhere this does nothing.
    """
    try:
        yield
    except ReplogError as error:
        main = getattr(sys.modules.get("__main__"), "__spec__", None)
        if main is not None and main.name.startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise error from None
