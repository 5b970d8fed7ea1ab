"""The driver's JVM: the options that Spark needs, and the error when the JVM does not start."""

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


def test_the_options_are_those_of_spark_submit_without_vectors():
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jar = next((Path(spec.origin).parent / "jars").glob("spark-launcher_*.jar"))
    compiled = zipfile.ZipFile(jar).read("org/apache/spark/launcher/JavaModuleOptions.class")
    passed = {option.decode() for option in re.findall(rb"-(?:-[a-z]|D|XX:)[\w.:/+=-]+", compiled)}
    assert set(AS_SPARK_SUBMIT) == passed - {"--add-modules=jdk.incubator.vector"}


def jvm(script: str) -> Jvm:
    folder = tempfile.TemporaryDirectory()
    return Jvm(
        subprocess.Popen(["sh", "-c", script, "sh", f"{folder.name}/answer"], stdin=subprocess.PIPE), folder
    )


def test_pyspark_gets_the_port_and_the_secret_of_the_jvm(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    answer = tmp_path / "answer"
    answer.write_bytes(struct.pack("!ii", 4711, 6) + b"secret")
    started = jvm(f"cp {answer} $1.new; mv $1.new $1; cat > /dev/null")
    started.join()
    assert os.environ["PYSPARK_GATEWAY_PORT"] == "4711"
    assert os.environ["PYSPARK_GATEWAY_SECRET"] == "secret"
    started.end(10)
    assert started.process.returncode == 0


def test_a_jvm_that_ends_at_once_is_reported_with_its_exit_code():
    started = jvm("exit 3")
    with pytest.raises(JvmError, match="exit code 3 before it answered"):
        started.join()
    started.end(10)


def test_a_jvm_that_never_answered_is_killed(monkeypatch):
    monkeypatch.setattr("sluice.driver.spark.jvm.SECONDS", 0.1)
    started = jvm("sleep 600")
    with pytest.raises(JvmError, match="did not answer"):
        started.join()
    started.discard()
    started.end(10)
    assert started.process.returncode == -9
