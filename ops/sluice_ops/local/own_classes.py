"""Compile Sluice's own classes for Spark into a jar of the home."""

import os
import tempfile
import threading
from pathlib import Path

from sluice_ops.local.layout import Layout
from sluice_ops.local.start.command import run_to_end
from sluice_ops.site import spark
from sluice_ops.site.files import atomic_file, pack
from sluice_ops.site.java import JAVA

COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"
"""Janino's command line. Spark has Janino; the installed Java has no compiler."""
SECONDS = 60.0


def compile_own_classes(layout: Layout, halt: threading.Event) -> None:
    """Write the jar if the home does not have it; PlatformError if a class does not compile."""
    jar = spark.own_classes(layout.home)
    if jar.exists():
        return
    with tempfile.TemporaryDirectory() as classes, atomic_file(jar) as unfinished:
        needed = ("hadoop-client", "spark-core_", "spark-common-utils_", "scala-library")
        path = [str(jar) for name in needed for jar in layout.spark_jars.glob(f"{name}*.jar")]
        compiler = (next(layout.spark_jars.glob(f"{name}-*.jar")) for name in ("janino", "commons-compiler"))
        command = [str(JAVA), "-cp", ":".join(map(str, compiler)), COMPILER]
        arguments = ["-classpath", ":".join(path), "-d", classes, *map(str, spark.OWN_CLASSES)]
        run_to_end([*command, *arguments], dict(os.environ), layout.logs / "compiler.log", halt, SECONDS)
        pack(Path(classes), sorted(Path(classes).rglob("*.class")), unfinished)
