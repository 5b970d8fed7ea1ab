"""Debian packages that some long tests need on the machine."""

import os
import shutil
import subprocess
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")
SECONDS = 300


def needed(package: str, find: Callable[[], T | None]) -> T:
    """Return what a Debian package brings.

    A missing package is installed if the test runs as root on a machine with apt; otherwise the
    test fails.
    """
    result = find()
    if result is None and os.geteuid() == 0 and (apt := shutil.which("apt-get")) is not None:
        for words in (("update",), ("install", "--yes", "--no-install-recommends", package)):
            subprocess.run([apt, *words], check=False, timeout=SECONDS)
        result = find()
    if result is None:
        pytest.fail(f"this test needs a package: apt-get install {package}")
    return result


def program(name: str) -> str:
    """Return the path of a program that the package of its name brings."""
    return needed(name, lambda: shutil.which(name))
