"""What a run puts out has no hole: an executor ends with the first record that Kafka does not take (decision record 0033).

Spark has no place for that but a class of Kafka's producer, so this is Java, compiled by what Spark compiles its own code with.
"""

import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES = tuple(Path(__file__).with_name(f"{name}.java") for name in ("ProducerGuard", "WriterFence"))
GUARD = {"kafka.interceptor.classes": "sluice.WriterFence,sluice.ProducerGuard"}
"""The option of Kafka's sink, once the session has the classes; the fence does nothing without options of its own (`writers.py`)."""


def guard(session: "SparkSession") -> dict[str, str]:
    """Give the executors the class, and return the option that has their producers use it."""
    spark, jvm = session.sparkContext, session.sparkContext._jvm  # noqa: SLF001 — Python has no public way to
    with (
        tempfile.NamedTemporaryFile(prefix="sluice-holes-", suffix=".jar", delete=False) as jar,
        zipfile.ZipFile(jar, "w") as made,
    ):
        # a name of its own each time: Spark knows a jar by it
        for source in SOURCES:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.cook(source.read_text())
            for name, code in dict(compiler.getBytecodes()).items():
                made.writestr(f"{name.replace('.', '/')}.class", bytes(code))
    spark._jsc.sc().addJar(jar.name)  # noqa: SLF001
    return GUARD
