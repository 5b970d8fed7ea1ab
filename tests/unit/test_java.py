"""Sluice's Java, or the site's own: its version, its launcher for Spark, and its caches."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluice_ops.agent.__main__ import main
from sluice_ops.doctor import java as check
from sluice_ops.doctor.finding import Verdict
from sluice_ops.site import java

PROGRAM = "from sluice_ops.site import java, spark; print(java.version(), *spark.worker(secret=None)[:1])"


def jdk(folder: Path, version: str) -> Path:
    """Make the folder of a JDK, which only prints its version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-09-16' >&2\n")
    program.chmod(0o755)
    return folder


def test_the_version_is_the_one_in_the_lock() -> None:
    assert (java.version() or "").startswith("25.")


def test_a_sites_own_jdk_is_the_java_of_all_jvms(tmp_path: Path) -> None:
    own = jdk(tmp_path / "jdk", "25.0.9")
    variables = {**os.environ, java.HOME: str(own)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["25.0.9", f"{own}/bin/java"]


@pytest.mark.parametrize(
    ("version", "sentence"), [("21.0.2", "{java} is Java 21.0.2, not Java 25"), (None, "{java} does not run")]
)
def test_an_unsuitable_own_jdk_is_refused_with_the_next_step(
    version: str | None,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = tmp_path if version is None else jdk(tmp_path, version)
    monkeypatch.setenv(java.HOME, str(own))
    monkeypatch.setattr(java, "JAVA", own / "bin" / "java")
    expected = sentence.format(java=java.JAVA)
    assert main(["--host", "h1"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"{expected}, so no JVM of Sluice can start: name the folder of a JDK 25")
    finding = check.check()
    assert (finding.verdict, finding.sentence) == (Verdict.BAD, expected)
    assert f"unset {java.HOME}" in finding.advice


def test_the_missing_module_is_tolerated_and_other_arguments_arrive(
    tmp_path: Path,
) -> None:
    program = java.home_for_spark(tmp_path) / "bin" / "java"
    arguments = ["--add-modules=jdk.incubator.vector", "-Da.b=c d", "-XshowSettings:properties", "-version"]
    completed = subprocess.run([program, *arguments], capture_output=True, text=True, check=True)
    assert "a.b = c d\n" in completed.stderr
    before = program.stat().st_mtime_ns
    assert java.home_for_spark(tmp_path) == program.parent.parent
    assert program.stat().st_mtime_ns == before, "the launcher is written once"


def test_the_name_of_a_cache_depends_on_its_class_path(tmp_path: Path) -> None:
    folder, single_jar = tmp_path / "jars", tmp_path / "alone.jar"
    folder.mkdir()
    for file in (single_jar, folder / "a.jar", folder / "readme.txt"):
        file.write_text("1")
    path = f"{single_jar}:{tmp_path}/conf:{folder}/*"
    cache = java.cache(tmp_path, "tier", path)
    assert cache == java.cache(tmp_path, "tier", path)
    assert cache.name.startswith("tier-")
    (folder / "readme.txt").write_text("longer")
    assert cache == java.cache(tmp_path, "tier", path), "a JVM takes only jars from a folder"
    caches = {
        cache,
        java.cache(tmp_path, "tier", f"{folder}/*:{single_jar}"),
        java.cache(tmp_path, "tier", f"{folder}/*"),
    }
    (folder / "b.jar").write_text("1")
    caches.add(java.cache(tmp_path, "tier", path))
    (folder / "b.jar").write_text("12")
    caches.add(java.cache(tmp_path, "tier", path))
    assert len(caches) == 5
