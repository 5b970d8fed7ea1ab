"""The class with which Spark writes files of this machine is compiled for a home."""

import threading
import zipfile
from pathlib import Path

import pytest

from sluice_ops.local import local_files
from sluice_ops.local.layout import Layout
from sluice_ops.local.local_files import compile_local_files
from sluice_ops.site import spark
from sluice_ops.site.installation import PlatformError


def test_the_jar_is_compiled_once_and_is_the_same_in_each_home(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout.make_folders()
    jar = spark.local_files(layout.home)
    compile_local_files(layout, threading.Event())
    with zipfile.ZipFile(jar) as archive:
        assert archive.namelist() == ["sluice/LocalFiles$RawFiles.class", "sluice/LocalFiles.class"]
    content = jar.read_bytes()
    jar.unlink()
    compile_local_files(layout, threading.Event())
    assert jar.read_bytes() == content
    monkeypatch.setattr(local_files, "run_to_end", None)
    compile_local_files(layout, threading.Event())
    assert list(jar.parent.iterdir()) == [jar]


def test_a_class_that_does_not_compile_leaves_no_jar(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout.make_folders()
    broken = tmp_path / "Broken.java"
    broken.write_text("class Broken extends Absent {}")
    monkeypatch.setattr(spark, "LOCAL_FILES", broken)
    with pytest.raises(PlatformError, match="Absent"):
        compile_local_files(layout, threading.Event())
    assert list(spark.local_files(layout.home).parent.iterdir()) == []
