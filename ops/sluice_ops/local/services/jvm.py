"""How the platform's own small Java services are started: little memory, quick to start, class data kept from the first run."""

from pathlib import Path

from sluice_ops.local.layout import Layout
from sluice_ops.site.java import BUSY, STARTED_OFTEN, cached, leaving

LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
logger.quiet.name = org.apache.zookeeper.server.NIOServerCnxn
logger.quiet.level = warn
"""


def log_config(where: Layout, name: str = "log4j2", also: str = "") -> str:
    """Write the logging configuration of all of them: to standard output, which supervisord keeps and rotates; `also` is one's own."""
    path, text = where.conf / f"{name}.properties", LOG4J + also
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return f"-Dlog4j2.configurationFile={path}"


def options(where: Layout, name: str, heap: int, *, busy: bool = False, logs: str | None = None) -> list[str]:
    """Return the options of a small service: `heap` MiB, one collector thread, and the first compiler only, unless it has much to do.

    The first run leaves a cache when it ends, from which later ones start in half the time. `logs` is what `log_config` has given.
    """
    cache = where.archives / f"{name}.aot"
    return [
        f"-Xms{heap // 2}m",
        f"-Xmx{heap}m",
        "-XX:+UseSerialGC",
        *(BUSY if busy else STARTED_OFTEN),
        "-Xss512k",
        "-XX:ReservedCodeCacheSize=48m",
        "-XX:+ExitOnOutOfMemoryError",
        *(cached(cache) if cache.exists() else leaving(cache)),
        f"-Djava.io.tmpdir={where.home / 'run'}",
        logs or log_config(where),
    ]


def classpath(folder: Path, *patterns: str) -> str:
    """Name the jars that a service needs, in an order that stays the same."""
    return ":".join(str(jar) for pattern in patterns for jar in sorted(folder.glob(pattern)))
