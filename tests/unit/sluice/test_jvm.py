"""The driver's JVM: the options that Spark wants, and what is said when it does not come up."""

import os
import re
import struct
import subprocess
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from sluice.driver.spark.jvm import AS_SPARK_SUBMIT, Jvm, JvmError


def test_it_is_started_with_what_spark_submit_passes_but_for_vectors():
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jar = next((Path(spec.origin).parent / "jars").glob("spark-launcher_*.jar"))
    compiled = zipfile.ZipFile(jar).read("org/apache/spark/launcher/JavaModuleOptions.class")
    passed = {found.decode() for found in re.findall(rb"-(?:-[a-z]|D|XX:)[\w.:/+=-]+", compiled)}
    assert set(AS_SPARK_SUBMIT) == passed - {"--add-modules=jdk.incubator.vector"}


def jvm(script: str) -> Jvm:
    folder = tempfile.TemporaryDirectory()
    return Jvm(
        subprocess.Popen(["sh", "-c", script, "sh", f"{folder.name}/answer"], stdin=subprocess.PIPE), folder
    )


def test_pyspark_is_told_where_it_is(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    answer = tmp_path / "answer"
    answer.write_bytes(struct.pack("!ii", 4711, 6) + b"secret")
    mine = jvm(f"cp {answer} $1.new; mv $1.new $1; cat > /dev/null")
    mine.join()
    assert os.environ["PYSPARK_GATEWAY_PORT"] == "4711"
    assert os.environ["PYSPARK_GATEWAY_SECRET"] == "secret"
    mine.end(10)
    assert mine.process.returncode == 0


def test_one_that_ends_at_once_is_said_to_have_ended():
    mine = jvm("exit 3")
    with pytest.raises(JvmError, match="exit code 3 before it answered"):
        mine.join()
    mine.end(10)
