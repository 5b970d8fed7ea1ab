"""Pytest in a user's project whose pipeline needs Spark while its module is imported."""

import subprocess
import sys

import pytest

PIPELINE = """\
from pyspark.sql import functions as F

@F.udf("string")
def loud(text):
    return text.upper()
"""


@pytest.mark.parametrize("importing", ["test_loud.py", "conftest.py"])
def test_pytest_shows_the_line_and_what_to_write_instead(tmp_path, importing):
    (tmp_path / "loud.py").write_text(PIPELINE)
    (tmp_path / "test_loud.py").write_text("def test_nothing():\n    pass\n")
    (tmp_path / importing).write_text("import loud\n")
    command = [sys.executable, "-m", "pytest", "-q"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"{tmp_path}/loud.py, line 3: Spark does not run yet" in done.stdout + done.stderr
    assert "give `@F.udf` its type as an object" in done.stdout + done.stderr
    assert "SESSION_OR_CONTEXT_NOT_EXISTS" not in done.stdout + done.stderr
