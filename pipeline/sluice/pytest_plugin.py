"""Pytest shows one sentence where a pipeline's module needs Spark while a test imports it.

Pytest finds this module by its entry point. An import of Spark here would delay every run.
"""

import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from sluice.api import early_spark


def pytest_exception_interact(
    call: pytest.CallInfo[Any], report: pytest.CollectReport | pytest.TestReport
) -> None:
    """Replace the traceback of a test's module, or of a test, by the sentence."""
    sentence = None if call.excinfo is None else _sentence(call.excinfo.value)
    if sentence is not None:
        report.longrepr = sentence


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests() -> Generator[None]:
    """Refuse a conftest.py that imports such a module."""
    try:
        yield
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        raise pytest.UsageError(sentence) from error


def _sentence(error: BaseException) -> str | None:
    """Return the line of the author's code and the advice; None for other errors."""
    cause = error.__cause__ or error  # pytest raises an error of its own where a conftest.py fails
    frames = traceback.extract_tb(cause.__traceback__)
    advice = early_spark.advice(cause) if any(frame.name == "<module>" for frame in frames) else None
    authors = [frame for frame in frames if "pyspark" not in Path(frame.filename).parts]
    return None if advice is None else f"{authors[-1].filename}, line {authors[-1].lineno}: {advice}"
