"""How large this process has been, as the system counts it: what getrusage says begins with the size of whoever started it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["forget_peak", "peak_bytes"]


def forget_peak() -> None:
    """From now on the peak is that of what follows."""
    with suppress(OSError):  # some containers do not allow it: then the peak is that of the whole life, which is more
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """The most memory that was resident."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) << 10
