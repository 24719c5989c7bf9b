"""What a disk takes to keep 100 bytes: one write and one fdatasync, and as many at once as there are files."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from time import perf_counter
from typing import Any, Self

__all__ = ["Disk"]

_BODY = b"x" * 100


class Disk:
    """Files of a folder that grow; `with` closes them. One thread stands by for each."""

    def __init__(self, folder: Path, *, files: int) -> None:
        self._files = [os.open(folder / f"bare-{number}", os.O_RDWR | os.O_CREAT | os.O_APPEND) for number in range(files)]
        self._threads = ThreadPoolExecutor(files)
        self._all_there = Barrier(files)

    def write_to_one(self) -> None:
        """A write and an fdatasync of the first file."""
        self._write(self._files[0])

    def seconds_of_all(self) -> float:
        """The same of every file at once, by threads that are there already: from the first one's begin to the last one's end."""
        times = list(self._threads.map(self._between, self._files))
        return max(end for _, end in times) - min(begin for begin, _ in times)

    def _between(self, file: int) -> tuple[float, float]:
        self._all_there.wait()
        begin = perf_counter()
        self._write(file)
        return begin, perf_counter()

    def _write(self, file: int) -> None:
        os.write(file, _BODY)
        os.fdatasync(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: Any) -> None:
        self._threads.shutdown()
        for file in self._files:
            os.close(file)
