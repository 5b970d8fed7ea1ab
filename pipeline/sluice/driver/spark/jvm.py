"""Options of a tier's JVMs, and the start of the driver's JVM, which comes before everything else.

Python imports the driver's code while the JVM starts, so this module imports little. It needs no
spark-submit, which would start a JVM of its own. PySpark joins a running JVM that its environment
names (PYSPARK_GATEWAY_PORT and PYSPARK_GATEWAY_SECRET).
"""

import os
import shlex
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sluice_ops.site import spark
from sluice_ops.site.java import BUSY, JAVA, STARTED_OFTEN, cache_options, cache_output_options

CHOSEN = ("-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:ReservedCodeCacheSize=64m")
AVRO_LIMITS = (
    "-Dorg.apache.avro.limits.bytes.maxLength=16777216",
    "-Dorg.apache.avro.limits.string.maxLength=16777216",
    "-Dorg.apache.avro.limits.collectionItems.maxLength=1000000",
)
"""The largest parts of an Avro record.

The lengths in a broken record may be anything, and the JVM would end for lack of memory.
"""
LOGGING = Path(__file__).with_name("log4j2.properties")
AS_SPARK_SUBMIT = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.invoke=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
"""The options with which Spark always starts, without Java's vector module, which only linear
algebra uses.

A test compares them with Spark's.
"""
SERVER = "org.apache.spark.api.python.PythonGatewayServer"
SECONDS = 120.0
"""How long a JVM may take to answer, even on a busy machine."""


class JvmError(Exception):
    """The JVM ended, or did not answer."""


@dataclass
class Jvm:
    """A JVM that waits for PySpark.

    It ends when this process ends, or closes the JVM's standard input.
    """

    process: "subprocess.Popen[bytes]"
    folder: "tempfile.TemporaryDirectory[str]"
    joined: bool = False
    """Whether PySpark uses it, and ends it."""

    def join(self) -> None:
        """Wait until the JVM answers, and make PySpark use it; JvmError if it ends or does not
        answer.
        """
        with self.folder:
            port, secret = self._address()
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        self.joined = True

    def discard(self) -> None:
        """Kill the JVM if PySpark has not joined it.

        A JVM that still starts does not notice that this process has ended.
        """
        if not self.joined:
            self.process.kill()
            self.folder.cleanup()

    def end(self, seconds: float) -> None:
        """End the JVM, and return when it has ended."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(timeout=seconds)

    def _address(self) -> tuple[int, str]:
        """Return port and secret, which the server writes once it listens: port, length of the
        secret, secret.
        """
        path, deadline = _answer_path(self.folder.name), time.monotonic() + SECONDS
        while not path.exists():
            if (code := self.process.poll()) is not None:
                message = (
                    f"the driver's JVM ended with exit code {code} before it answered; "
                    "its own messages are above in this log"
                )
                raise JvmError(message)
            if time.monotonic() > deadline:
                message = (
                    f"the driver's JVM did not answer within {SECONDS:.0f} s; "
                    "the machine is too busy, or short of memory"
                )
                raise JvmError(message)
            time.sleep(0.02)
        port, length = struct.unpack("!ii", (answer := path.read_bytes())[:8])
        return port, answer[8 : 8 + length].decode()


def java_options(*, busy: bool = False) -> str:
    """Return the options of a driver's or executor's JVM, without its class data cache, which its
    host chooses.

    A `busy` JVM, which processes records, compiles hot code once more, to need half the time.
    """
    return shlex.join(
        [*CHOSEN, *AVRO_LIMITS, *(BUSY if busy else STARTED_OFTEN), f"-Dlog4j2.configurationFile={LOGGING}"]
    )


def launch(heap: int, shared: Path, leaves: Path | None = None, says: IO[bytes] | None = None) -> Jvm:
    """Start a driver's JVM with `heap` MiB, before tier and incarnation are known.

    It starts from the class data cache of tiers, or writes one to `leaves` at its end. Its class
    path is below the folder that all hosts share. Its output goes to this process's output, or into
    `says`.
    """
    starts = cache_options(spark.cache_of_tiers(shared)) if leaves is None else cache_output_options(leaves)
    folder = tempfile.TemporaryDirectory(prefix="sluice-jvm-")
    options = [*AS_SPARK_SUBMIT, f"-Xmx{heap}m", *shlex.split(java_options()), *starts]
    command = [str(JAVA), *options, "-cp", spark.path_of_tiers(shared), SERVER]
    environment = os.environ | {
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(_answer_path(folder.name)),
        "SPARK_HOME": str(spark.home()),
    }
    try:
        return Jvm(
            subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=says, stderr=says),
            folder,
        )
    except OSError:
        folder.cleanup()
        raise


def add_to_class_path(gateway: Any, jars: Iterable[Path]) -> None:
    """Append jars to the class path of a driver's JVM, which runs before its release is known.

    Java documents this method of its class loader for the same purpose (java.lang.instrument).
    Opening its package with an option would make the JVM ignore its class data.
    """
    lang = gateway.jvm.java.lang
    base, loader = lang.Class.forName("java.lang.Object").getModule(), lang.ClassLoader.getSystemClassLoader()
    _call(gateway, base, "implAddOpensToAllUnnamed", "jdk.internal.loader")
    for jar in jars:
        _call(gateway, loader, "appendToClassPathForInstrumentation", str(jar))


def _call(gateway: Any, target: Any, name: str, word: str) -> None:
    """Call a method of Java that is not public."""
    lang = gateway.jvm.java.lang
    types, words = gateway.new_array(lang.Class, 1), gateway.new_array(lang.Object, 1)
    types[0], words[0] = lang.Class.forName("java.lang.String"), word
    method = target.getClass().getDeclaredMethod(name, types)
    method.setAccessible(True)
    method.invoke(target, words)


def _answer_path(folder: str) -> Path:
    return Path(folder) / "answer"
