"""Ivy, one of pyspark's jars, fetches jars according to the machine's Ivy settings."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import quoteattr

from sluice_ops.site import project, spark
from sluice_ops.site.jars import Jar
from sluice_ops.site.java import JAVA
from sluice_ops.site.trust import truststore_options

PAUSE_SECONDS = 0.1
"""Time between two looks whether the cache is free."""


def cache() -> Path:
    """Return the folder of Ivy's cache. All homes of a project share it, so that each jar is
    fetched once.
    """
    return project.own_home() / "ivy"


def module(jars: list[Jar]) -> str:
    """Return an Ivy module that requests exactly these jars, without their dependencies."""
    folders = "".join(f"<conf name={quoteattr(folder)}/>" for folder in sorted({jar.folder for jar in jars}))
    requests = "".join(
        f"<dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.name)} "
        f'rev={quoteattr(jar.revision)} conf="{jar.folder}->master" transitive="false"/>\n'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="sluice" module="jars"/>\n'
        f"<configurations>{folders}</configurations>\n"
        f"<dependencies>\n{requests}</dependencies></ivy-module>\n"
    )


def retrieval(jars: list[Jar], into: Path, scratch: Path) -> list[str]:
    """Return the command that fetches jars, each into the folder of its kind below `into`.

    Write its files into `scratch`, which exists.
    """
    description = scratch / "ivy.xml"
    description.write_text(module(jars))
    return [
        str(JAVA),
        *truststore_options(scratch / "trusted.p12"),
        "-jar",
        str(next((spark.home() / "jars").glob("ivy-*.jar"))),
        "-ivy",
        str(description),
        "-cache",
        str(cache()),
        "-retrieve",
        f"{into}/[conf]/[artifact]-[revision].[ext]",
    ]


def errors(output: str) -> list[str]:
    """Return the first lines of Ivy's output that tell why it failed."""
    words = ("not found", "WARN", "ERROR")
    return [line.strip() for line in output.splitlines() if any(word in line for word in words)][:3]


def _pause() -> None:
    time.sleep(PAUSE_SECONDS)


@contextmanager
def cache_alone(pause: Callable[[], None] = _pause) -> Iterator[None]:
    """Wait until no other process of the project uses Ivy's cache, and keep others out meanwhile.

    Two that fetch the same jar at once remove each other's unfinished file. `pause` waits for the
    next try; its exceptions end the wait.
    """
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pause()
        yield
