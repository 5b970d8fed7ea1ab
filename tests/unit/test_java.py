"""The Java that comes along: it runs, for Spark too."""

import subprocess
from pathlib import Path

from sluice_ops.site import java


def test_it_is_the_one_that_the_lock_names() -> None:
    assert (java.version() or "").startswith("25.")


def test_the_missing_jvm_module_is_tolerated_and_all_other_words_arrive(
    tmp_path: Path,
) -> None:
    program = java.home_for_spark(tmp_path) / "bin" / "java"
    asked = ["--add-modules=jdk.incubator.vector", "-Da.b=c d", "-XshowSettings:properties", "-version"]
    done = subprocess.run([program, *asked], capture_output=True, text=True, check=True)
    assert "a.b = c d\n" in done.stderr
    before = program.stat().st_mtime_ns
    assert java.home_for_spark(tmp_path) == program.parent.parent
    assert program.stat().st_mtime_ns == before, "it is written once"


def test_what_a_jvm_says_of_its_cache_is_told_from_the_rest() -> None:
    assert java.is_about_cache("AOTCache creation is complete: kafka.aot 79470592 bytes")
    assert not java.is_about_cache("java.io.IOException: No space left on device")


def test_a_cache_is_called_by_what_it_is_made_of(tmp_path: Path) -> None:
    folder, alone = tmp_path / "jars", tmp_path / "alone.jar"
    folder.mkdir()
    for file in (alone, folder / "a.jar", folder / "readme.txt"):
        file.write_text("1")
    path = f"{alone}:{tmp_path}/conf:{folder}/*"
    kept = java.cache(tmp_path, "tier", path)
    assert kept == java.cache(tmp_path, "tier", path)
    assert kept.name.startswith("tier-")
    (folder / "readme.txt").write_text("longer")
    assert kept == java.cache(tmp_path, "tier", path), "a JVM takes jars alone from a folder"
    other = {
        kept,
        java.cache(tmp_path, "tier", f"{folder}/*:{alone}"),
        java.cache(tmp_path, "tier", f"{folder}/*"),
    }
    (folder / "b.jar").write_text("1")
    other.add(java.cache(tmp_path, "tier", path))
    (folder / "b.jar").write_text("12")
    other.add(java.cache(tmp_path, "tier", path))
    assert len(other) == 5
