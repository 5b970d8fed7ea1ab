"""The Java that Sluice installs: its version, its launcher for Spark, and its caches."""

import subprocess
from pathlib import Path

from sluice_ops.site import java


def test_the_version_is_the_one_in_the_lock() -> None:
    assert (java.version() or "").startswith("25.")


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
