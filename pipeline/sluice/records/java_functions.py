"""Functions in Java for a Spark session: Sluice compiles them as Spark compiles its own code."""

import hashlib
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice.api.declarations import DeclarationError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def registered(
    session: "SparkSession", source: Path, class_name: str, kind: "StructType", *arguments: object
) -> str:
    """Return the name of a function, which the session gets with it.

    `arguments` are those of the class's constructor; `kind` is the type that the function returns.
    """
    digest = hashlib.sha256(repr((class_name, arguments)).encode()).hexdigest()[:12]
    name = f"sluice_{source.stem.lower()}_{digest}"
    if not session.catalog.functionExists(name):
        jvm: Any = session._jvm  # noqa: SLF001 — no public API
        gateway = session.sparkContext._gateway  # noqa: SLF001 — as above
        constructor_arguments = gateway.new_array(jvm.java.lang.Object, len(arguments))
        for number, argument in enumerate(arguments):
            constructor_arguments[number] = argument
        loaded = _class_loader(session.sparkContext, source).loadClass(class_name)
        function = loaded.getConstructors()[0].newInstance(constructor_arguments)
        returned = jvm.org.apache.spark.sql.types.DataType.fromJson(kind.json())
        session._jsparkSession.udf().register(name, function, returned)  # noqa: SLF001
    return name


@cache
def _class_loader(context: "SparkContext", source: Path) -> Any:
    """Compile a file; return the loader of its classes, and give them to executors."""
    jvm: Any = context._jvm  # noqa: SLF001 — no public API
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(source.read_text())
    with (
        tempfile.NamedTemporaryFile(prefix="sluice-", suffix=".jar", delete=False) as jar,
        zipfile.ZipFile(jar, "w") as archive,
    ):
        for name, code in dict(compiler.getBytecodes()).items():
            archive.writestr(f"{name.replace('.', '/')}.class", bytes(code))
    context._jsc.sc().addJar(jar.name)  # noqa: SLF001
    return compiler.getClassLoader()


def refuse_missing(java_class: Any, package: str) -> None:
    """Raise DeclarationError if the JVM lacks a class of a package in `jars/connector`."""
    from py4j.java_gateway import JavaClass  # noqa: PLC0415 — only where Spark runs

    if not isinstance(java_class, JavaClass):
        message = (
            f"{package} is not in jars/connector of this home (SLUICE_HOME); "
            "`sluice up` fetches it there, once"
        )
        raise DeclarationError(message)
