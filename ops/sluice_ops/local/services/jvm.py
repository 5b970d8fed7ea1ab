"""Options of the platform's small Java services: little memory, a fast start from an AOT cache."""

from pathlib import Path

from sluice_ops.local.layout import Layout
from sluice_ops.site.java import BUSY, STARTED_OFTEN, cache_options, cache_output_options

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


def log_config(layout: Layout, name: str = "log4j2", also: str = "") -> str:
    """Write a logging configuration, and return the JVM's option for it.

    Logs go to standard output; supervisord stores and rotates them. `also` adds lines for one
    service.
    """
    path, text = layout.conf / f"{name}.properties", LOG4J + also
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return f"-Dlog4j2.configurationFile={path}"


def options(
    layout: Layout, name: str, heap: int, *, busy: bool = False, logs: str | None = None
) -> list[str]:
    """Return the options of a small service: `heap` MiB and one collector thread.

    A busy service uses both compilers, other services only the first one. The first run writes an
    AOT cache when it ends; later runs start from the cache in half the time. `logs` is a result of
    `log_config`.
    """
    cache = layout.archives / f"{name}.aot"
    return [
        f"-Xms{heap // 2}m",
        f"-Xmx{heap}m",
        "-XX:+UseSerialGC",
        *(BUSY if busy else STARTED_OFTEN),
        "-Xss512k",
        "-XX:ReservedCodeCacheSize=48m",
        "-XX:+ExitOnOutOfMemoryError",
        *(cache_options(cache) if cache.exists() else cache_output_options(cache)),
        f"-Djava.io.tmpdir={layout.home / 'run'}",
        logs or log_config(layout),
    ]


def classpath(folder: Path, *patterns: str) -> str:
    """Return the class path of the jars that match the patterns, always in the same order."""
    return ":".join(str(jar) for pattern in patterns for jar in sorted(folder.glob(pattern)))
