"""A driver's session has MLlib's vector functions if the pipeline imports MLlib, and starts sooner
without.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import ROOT

pytestmark = pytest.mark.timeout(300)
OPENED = """
import sys
from pathlib import Path
from sluice.driver.spark.jvm import launch
from sluice.driver.spark.session import open_session

config = {"spark.app.name": "test", "spark.driver.host": "127.0.0.1"}
config |= {"spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
session = open_session("local[1]", config, launch(512, Path(sys.argv[1])))
session.sparkContext.setLogLevel("OFF")
"""
USED = """
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.sql import functions as F

vectors = array_to_vector(F.array(F.col("id").cast("double")))
rows = session.range(3).select(vector_to_array(vectors).alias("parts"))
print("sum", rows.select(F.element_at("parts", 1).alias("part")).agg(F.sum("part")).first()[0])
"""


def run_program(folder: Path, program: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-c", program, str(folder)]
    return subprocess.run(words, env=os.environ, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_pipeline_that_imports_mllib_has_its_functions(tmp_path: Path) -> None:
    done = run_program(tmp_path, "import pyspark.ml" + OPENED + USED)
    assert "sum 3.0" in done.stdout, done.stderr[-3000:]


def test_without_mllib_a_session_has_all_other_functions(tmp_path: Path) -> None:
    done = run_program(
        tmp_path, OPENED + 'print("words", session.sql("select upper(\'a\') as word").first().word)' + USED
    )
    assert "words A" in done.stdout, done.stderr[-3000:]
    assert "vector" in done.stderr
    assert done.returncode == 1
