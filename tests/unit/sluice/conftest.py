"""Temporary files of the code under test lie in a folder that is removed after the tests."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="package", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make Python's temporary folder one of these tests' own.

    Simulated runs die, as drivers do, and leave files that the agent would remove.
    """
    before, folder = tempfile.tempdir, tmp_path_factory.mktemp("temporary")
    tempfile.tempdir = str(folder)
    yield folder
    tempfile.tempdir = before
    shutil.rmtree(folder)
