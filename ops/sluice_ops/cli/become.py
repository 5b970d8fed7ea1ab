"""Commands that another module of this environment carries out."""

import os
import sys
from typing import NoReturn


def become(module: str, *words: str) -> NoReturn:
    """Replace this process by the module, which then gets the signals and sets the exit code."""
    os.execvp(sys.executable, [sys.executable, "-m", module, *words])  # noqa: S606 - replaces this process
