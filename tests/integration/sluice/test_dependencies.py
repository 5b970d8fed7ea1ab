"""A tier whose release has a package and a jar of its own is handed over to a release with other
versions of both, while records flow.

The test makes the wheels and jars itself; the environment of the checkout has none of them.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sluice.kafka.reader import Streams
from sluice_ops.model import paths
from sluice_ops.model.incarnation import Phase, State
from sluice_ops.model.tier import TierSpec
from tests.integration.sluice.test_streams import once, records
from tests.lab import Lab, opened, until
from tests.made_packages import finding, make_jar, make_wheel

SHOP = """
import tinyword
from pyspark.sql import functions as F
from sluice import Kind, Pipeline, Quantum, Stream, Tier

RAW = Stream("raw")
SHOUTED = Stream("shouted", "n bigint, driver string, worker string, java string, number bigint")


def shouted(raw):
    n = F.get_json_object("value", "$.n").cast("bigint").alias("n")
    word = F.udf(lambda number: f"{tinyword.WORD} {number}", "string")
    java = F.expr("reflect('org.example.Shout', 'shout', get_json_object(value, '$.n'))")
    driver = F.lit(tinyword.WORD).alias("driver")
    number = driver.cast("bigint").alias("number")  # an error, unless the tier's setting says otherwise
    return raw.select(n, driver, word(n).alias("worker"), java.alias("java"), number, "lineage")


SHOUT = Tier(
    "shout",
    Kind.ENTRY,
    (RAW,),
    shouted,
    outputs=(SHOUTED,),
    quantum=Quantum(cpu=1, memory=750, threads=4),
    driver=Quantum(cpu=0.5, memory=800, threads=1),
    spark={"spark.sql.ansi.enabled": "false"},
)
PIPELINE = Pipeline((SHOUT,))
"""
JAVA = """package org.example;
public class Shout {{ public static String shout(String word) {{ return word + "{}"; }} }}
"""
TEST = """
from sluice.testing import run
from wordshop import SHOUT
(row,) = run(SHOUT, ['{"n": 7}']).rows
print(row["driver"], row["worker"], row["java"])
"""
WORDS = {1: ("one", "!"), 2: ("two", "?")}
STEP = 200

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def lock(folder: Path, version: int) -> None:
    """Name one version of the package and of the jar in the locks of the pipeline."""
    word, mark = WORDS[version]
    wheel = make_wheel(folder, "tinyword", f"{version}.0", {"tinyword.py": f"WORD = '{word}'\n"})
    jar = make_jar(
        folder / "repository", f"org.example:shout:{version}.0", "org.example.Shout", JAVA.format(mark)
    )
    (folder / "wordshop" / "requirements.lock").write_text(f"--no-index\n--find-links ..\n{wheel}\n")
    (folder / "wordshop" / "jars.lock").write_text(f"{jar}\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "wordshop").mkdir()
    (folder / "wordshop" / "__init__.py").write_text(SHOP)
    lock(folder, 1)
    return folder


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{folder}:{os.environ.get('PYTHONPATH', '')}")
        for name, value in finding(folder / "repository").items():
            patch.setenv(name, value)
        with opened(tmp_path_factory.mktemp("pipeline"), "wordshop", code=folder) as opened_lab:
            opened_lab.write_class_data()  # with the jar of the release, and then used beside other jars
            yield opened_lab


def published(lab: Lab, folder: Path) -> str:
    """Publish in the project, which has its own builds, and return what the command says."""
    command = [sys.executable, "-m", "sluice.commands.publish"]
    done = subprocess.run(command, env=lab.env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def release(lab: Lab) -> str:
    spec = lab.channel.read(paths.tier("shout"), TierSpec)
    assert spec is not None
    assert spec.value.release is not None
    return spec.value.release


def put(lab: Lab, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": lab.endpoints.kafka, "acks": "all"})
    for number in numbers:
        producer.produce("raw", json.dumps({"n": number}), partition=number % 4)
    assert producer.flush(30) == 0


def out(lab: Lab) -> int:
    streams = Streams(lab.endpoints.kafka)
    try:
        return sum(streams.bounds(["shouted"]).ends.values())
    finally:
        streams.close()


def test_a_pipelines_own_test_has_its_jars_and_the_authors_packages(folder: Path) -> None:
    (folder / "site.yaml").write_text("pipeline: wordshop\nhosts: []\n")
    own = folder / "own"
    own.mkdir()
    (own / "tinyword.py").write_text("WORD = 'mine'\n")
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    env |= finding(folder / "repository") | {"PYTHONPATH": f"{folder}:{own}"}
    done = subprocess.run(
        [sys.executable, "-c", TEST], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout == "mine mine 7 7!\n", done.stderr


def test_two_versions_of_a_package_and_a_jar_run_in_a_handover(lab: Lab, folder: Path) -> None:
    assert find_spec("tinyword") is None, "the checkout's own environment has the package"
    first = release(lab)
    again = published(lab, folder)
    assert f"release {first}: the code is unchanged" in again
    line = r"environment: tinyword 1\.0, org\.example:shout:1\.0; 0\.0 MB, built before"
    assert re.search(line, again), again

    lab.start_owner("shout", 1, "h1", 2, release=first)
    put(lab, range(STEP))
    until("the first release writes", lambda: out(lab) >= STEP)

    lock(folder, 2)
    assert re.search(r"tinyword 2\.0, org\.example:shout:2\.0; .* built in \d", published(lab, folder))
    second = release(lab)
    assert second != first
    lab.prepare("shout", 1, 2, "h2", release=second)
    put(lab, range(STEP, 2 * STEP))
    until("the first release writes beside the second one", lambda: out(lab) >= 2 * STEP)
    lab.set_owner("shout", 1, 2, Phase.CUT)
    put(lab, range(2 * STEP, 3 * STEP))
    lab.wait_caught_up("shout", 2)
    lab.set_owner("shout", 2)
    lab.wait_for("shout", 1, State.STOPPED)
    lab.stop("shout", 1)
    lab.kill_executor("shout", 2)  # the next executor gets packages and jars again
    put(lab, range(3 * STEP, 4 * STEP))
    until("each record is out", lambda: len(once(records(lab, "shouted"))) >= 4 * STEP)
    lab.driver("shout", 2).kill()
    lab.stop("shout", 2)
    put(lab, range(4 * STEP, 5 * STEP))
    lab.start_owner("shout", 3, "h3", release=second)
    until("each record is out again", lambda: len(once(records(lab, "shouted"))) >= 5 * STEP)

    written = once(records(lab, "shouted"))
    assert sorted(record.value["n"] for record in written) == list(range(5 * STEP))
    assert {record.value.get("number") for record in written} == {None}, "a cast gives null"
    versions = {record.value["n"]: version_of(record.value) for record in written}
    assert {versions[number] for number in range(STEP)} == {1}
    assert {versions[number] for number in range(3 * STEP, 5 * STEP)} == {2}


def version_of(value: dict[str, object]) -> int:
    """Return the version that wrote a record, with driver, Python worker and JVM of one version."""
    (version,) = [version for version, (word, _) in WORDS.items() if word == value["driver"]]
    word, mark = WORDS[version]
    assert (value["worker"], value["java"]) == (f"{word} {value['n']}", f"{value['n']}{mark}")
    return version
