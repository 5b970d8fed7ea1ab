"""Sluice's own classes for Spark are compiled for a home."""

import threading
import zipfile
from pathlib import Path

import pytest

from sluice_ops.local import own_classes
from sluice_ops.local.layout import Layout
from sluice_ops.local.own_classes import compile_own_classes
from sluice_ops.site import spark
from sluice_ops.site.installation import PlatformError


def test_the_jar_is_compiled_once_and_is_the_same_in_each_home(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout.make_folders()
    jar = spark.own_classes(layout.home)
    compile_own_classes(layout, threading.Event())
    with zipfile.ZipFile(jar) as archive:
        assert archive.namelist() == [
            "sluice/LocalFiles$RawFiles.class",
            "sluice/LocalFiles.class",
            "sluice/RunningTasks.class",
        ]
    content = jar.read_bytes()
    jar.unlink()
    compile_own_classes(layout, threading.Event())
    assert jar.read_bytes() == content
    monkeypatch.setattr(own_classes, "run_to_end", None)
    compile_own_classes(layout, threading.Event())
    assert list(jar.parent.iterdir()) == [jar]


def test_a_class_that_does_not_compile_leaves_no_jar(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout.make_folders()
    broken = tmp_path / "Broken.java"
    broken.write_text("class Broken extends Absent {}")
    monkeypatch.setattr(spark, "OWN_CLASSES", (broken,))
    with pytest.raises(PlatformError, match="Absent"):
        compile_own_classes(layout, threading.Event())
    assert list(spark.own_classes(layout.home).parent.iterdir()) == []
