"""What travels to Spark's workers says so in words where it cannot be unpacked.

An object travels as the name of its class: a worker without replog fails in the middle of unpacking, with a stack of frames that are
none of the user's. So the first thing that is unpacked is a function that travels as code, and explains.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["Shipped", "unpacked"]


def unpacked(module: str, name: str, packed: bytes) -> Any:
    """Make the object again, where its class can be imported. Uses nothing of this module: elsewhere there is none."""
    import importlib

    from pyspark import cloudpickle

    try:
        made = object.__new__(getattr(importlib.import_module(module), name))
        state = cloudpickle.loads(packed)
    except ImportError as error:
        raise ImportError(
            f"Spark's Python workers cannot import what they need ({error}): install replog[spark] where the executors run Python, "
            "ship an environment that has it, or set spark.executorEnv.PYTHONPATH"
        ) from None
    made.__dict__.update(state)
    return made


class Shipped:
    """An object whose state is its `__dict__`."""

    def _packed_state(self) -> dict[str, Any]:
        """What travels."""
        return self.__dict__

    def __reduce__(self) -> tuple[Any, ...]:
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
        packed = cloudpickle.dumps(self._packed_state())  # type: ignore[no-untyped-call]
        return unpacked, (type(self).__module__, type(self).__qualname__, packed)
