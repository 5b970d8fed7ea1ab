"""Compile `LocalFiles`, Spark's access to files of this machine, into a jar of the home (decision
114).
"""

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


def compile_local_files(layout: Layout, halt: threading.Event) -> None:
    """Write the jar if the home does not have it; PlatformError if the class does not compile."""
    jar = spark.local_files(layout.home)
    if jar.exists():
        return
    with tempfile.TemporaryDirectory() as classes, atomic_file(jar) as unfinished:
        hadoop = ":".join(map(str, layout.spark_jars.glob("hadoop-client-*.jar")))
        compiler = (next(layout.spark_jars.glob(f"{name}-*.jar")) for name in ("janino", "commons-compiler"))
        command = [str(JAVA), "-cp", ":".join(map(str, compiler)), COMPILER]
        arguments = ["-classpath", hadoop, "-d", classes, str(spark.LOCAL_FILES)]
        run_to_end([*command, *arguments], dict(os.environ), layout.logs / "compiler.log", halt, SECONDS)
        pack(Path(classes), sorted(Path(classes).rglob("*.class")), unfinished)
