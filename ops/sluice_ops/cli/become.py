"""Commands that another module of this environment carries out."""

import os
import sys
from collections.abc import Mapping
from typing import NoReturn


def become(module: str, *words: str) -> NoReturn:
    """Replace this process by the module, which then gets the signals and sets the exit code."""
    os.execvp(sys.executable, [sys.executable, "-m", module, *words])  # noqa: S606 - replaces this process


def option_words(options: Mapping[str, object]) -> list[str]:
    """Return the options that have a value, as words of a command line."""
    return [f"{option}={value}" for option, value in options.items() if value is not None]
