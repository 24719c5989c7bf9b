"""What benchmarks say of another process's memory: the most that it ever had, also when it has given that back."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.writers import forget_peak, peak_bytes, rss_bytes

MIB = 1 << 20
# Takes so many MiB at each line that it reads, and gives them back before it answers.
CHILD = """
import mmap, sys
for line in sys.stdin:
    taken = mmap.mmap(-1, int(line) << 20)
    for place in range(0, len(taken), 4096):
        taken[place] = 1
    taken.close()
    print("done", flush=True)
"""


def test_the_peak_is_what_there_was_at_most_since_it_was_forgotten() -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def takes(mib: int) -> None:
            print(mib, file=child.stdin, flush=True)
            child.stdout.readline()

        takes(1)  # it is up, and has all that it needs
        before = rss_bytes(child.pid)
        takes(64)
        assert rss_bytes(child.pid) - before < 16 * MIB
        assert peak_bytes(child.pid) - before > 60 * MIB
        forget_peak(child.pid)
        assert peak_bytes(child.pid) - before < 16 * MIB
        takes(32)
        assert 28 * MIB < peak_bytes(child.pid) - before < 48 * MIB
        child.stdin.close()
