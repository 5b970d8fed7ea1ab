"""The JVMs of a tier: their options, and the driver's own, which is started before all else.

Python imports what drives it meanwhile, so this module imports little; spark-submit's own JVM is left out. PySpark joins a JVM that is
there already when its environment names one (PYSPARK_GATEWAY_PORT and PYSPARK_GATEWAY_SECRET).
"""

import os
import shlex
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sluice_ops.site import spark
from sluice_ops.site.java import BUSY, JAVA, STARTED_OFTEN, cache_options, cache_output_options

CHOSEN = ("-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:ReservedCodeCacheSize=64m")
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


def java_options(*, busy: bool = False) -> str:
    """Return the options of a driver's or executor's JVM, but for the cache that it starts from, which is its host's affair.

    A `busy` one, which takes each record by itself, compiles what is hot once more, to run in half the time.
    """
    return shlex.join([*CHOSEN, *(BUSY if busy else STARTED_OFTEN), f"-Dlog4j2.configurationFile={LOGGING}"])


def launch(heap: int, shared: Path, leaves: Path | None = None, says: IO[bytes] | None = None) -> Jvm:
    """Start a driver's, with `heap` MiB, from the cache of tiers, or to leave one; it needs to know nothing of tier or incarnation.

    What it has on its class path is below the folder that all hosts share. What it says goes where this process's words go, or into `says`.
    """
    starts = cache_options(spark.cache_of_tiers(shared)) if leaves is None else cache_output_options(leaves)
    folder = tempfile.TemporaryDirectory(prefix="sluice-jvm-")
    options = [*AS_SPARK_SUBMIT, f"-Xmx{heap}m", *shlex.split(java_options()), *starts]
    command = [str(JAVA), *options, "-cp", spark.path_of_tiers(shared), SERVER]
    environment = os.environ | {
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(_where_it_tells(folder.name)),
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


def _where_it_tells(folder: str) -> Path:
    return Path(folder) / "answer"
