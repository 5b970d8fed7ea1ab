"""The JVM of a tier driver, started straight away: while Python is still importing Spark, and without spark-submit's own JVM before it.

PySpark joins a JVM that is there already when its environment names one (PYSPARK_GATEWAY_PORT and PYSPARK_GATEWAY_SECRET).
"""

import os
import shlex
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

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
"""What Spark is always started with, but for Java's vector module, which only linear algebra takes; a test compares them."""
SERVER = "org.apache.spark.api.python.PythonGatewayServer"
SECONDS = 120.0
"""How long a JVM may take until it answers, on a machine that does much else."""


class JvmError(Exception):
    """The JVM ended, or did not answer."""


@dataclass(frozen=True)
class Jvm:
    """A JVM that waits to be driven; it ends when this process does, or closes its standard input."""

    process: "subprocess.Popen[bytes]"
    folder: "tempfile.TemporaryDirectory[str]"

    def join(self) -> None:
        """Wait until it answers, and have PySpark use it."""
        with self.folder:
            port, secret = self._told()
        os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}

    def end(self, seconds: float) -> None:
        """Have it end, and return when it has."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(timeout=seconds)

    def _told(self) -> tuple[int, str]:
        """Read what the server writes once it listens: its port, then the secret with its length before it."""
        path, deadline = _where_it_tells(self.folder.name), time.monotonic() + SECONDS
        while not path.exists():
            if (code := self.process.poll()) is not None:
                message = f"the driver's JVM ended with exit code {code} before it answered; its own words are above in this log"
                raise JvmError(message)
            if time.monotonic() > deadline:
                message = f"the driver's JVM did not answer within {SECONDS:.0f} s; the machine is too busy, or short of memory"
                raise JvmError(message)
            time.sleep(0.02)
        port, length = struct.unpack("!ii", (told := path.read_bytes())[:8])
        return port, told[8 : 8 + length].decode()


def launch(heap: int, options: str, classpath: str) -> Jvm:
    """Start one with `heap` MiB, and `classpath` before Spark's own jars, in the very order that executors have."""
    spec = find_spec("pyspark")
    assert spec is not None  # noqa: S101 — this environment was installed with it
    assert spec.origin is not None  # noqa: S101
    home = Path(spec.origin).parent
    first = sorted((home / "jars").glob("slf4j-api-*.jar"))
    path = ":".join([classpath, f"{home}/conf", *map(str, first), f"{home}/jars/*"])
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else Path("java")
    folder = tempfile.TemporaryDirectory(prefix="sluice-jvm-")
    command = [
        str(java),
        *AS_SPARK_SUBMIT,
        f"-Xmx{heap}m",
        *shlex.split(options),
        "-cp",
        path,
        SERVER,
    ]
    environment = os.environ | {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(_where_it_tells(folder.name)), "SPARK_HOME": str(home)}
    return Jvm(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE), folder)


def _where_it_tells(folder: str) -> Path:
    return Path(folder) / "answer"
