"""One target under atheris, in a process of its own, which atheris ends.

    python -m tests.fuzz.session TARGET OPTIONS CORPUS

Nothing of replog is imported here before atheris watches it being imported.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["session"]


def session(name: str, words: Sequence[str], atheris: Any) -> None:
    """Run a target until the engine ends: its `words` say when. Raises what the target raises, or Finding for what hangs."""
    with atheris.instrument_imports(include=["replog"]):
        from tests.fuzz import counting
    target = counting.TARGETS[name]

    def once(data: bytes) -> None:
        if target.seal is not None and data and data[-1] & 15:  # of sixteen one as it is
            sealed = bytearray(data)
            target.seal(sealed)
            data = bytes(sealed)
        begun = time.perf_counter()
        target.run(data)
        if time.perf_counter() - begun > counting.HANG_S:
            counting.look_again(name, data)

    atheris.Setup([f"tests.fuzz {name}", *words], once)
    # To watch all imports takes half a minute, which is no fuzzing.
    print(f"stat::begun_cpu_ms: {int(time.process_time() * 1_000)}", file=sys.stderr, flush=True)
    atheris.Fuzz()


if __name__ == "__main__":
    import atheris  # only this needs it

    session(sys.argv[1], sys.argv[2:], atheris)
