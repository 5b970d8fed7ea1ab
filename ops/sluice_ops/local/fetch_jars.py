"""Fetch the jars that pyspark does not bring: Kafka's broker, Spark's Kafka connector, and S3's where a site uses it.

Ivy, which is among pyspark's jars, finds them as the machine's Ivy settings say. The checksums of `jars.lock` decide what is accepted.
"""

import hashlib
import os
import shutil
import threading
from pathlib import Path
from xml.sax.saxutils import quoteattr

from sluice_ops.local.layout import Layout
from sluice_ops.local.start.command import run_to_end
from sluice_ops.local.trust import trusting
from sluice_ops.site.installation import CHECKOUT, PlatformError
from sluice_ops.site.jars import LOCK, Jar, faulty, locked, needed
from sluice_ops.site.java import JAVA

FETCH_SECONDS = 600.0
CACHE = CHECKOUT / ".sluice" / "ivy"
"""Ivy's own, one for all homes of a checkout: the tests make many, and each jar is fetched once."""


def module(jars: list[Jar]) -> str:
    """Write the Ivy module that asks for exactly these, and nothing that they depend on."""
    folders = "".join(f"<conf name={quoteattr(folder)}/>" for folder in sorted({jar.folder for jar in jars}))
    wants = "".join(
        f"<dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.name)} rev={quoteattr(jar.revision)} "
        f'conf="{jar.folder}->master" transitive="false"/>\n'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="sluice" module="jars"/>\n'
        f"<configurations>{folders}</configurations>\n<dependencies>\n{wants}</dependencies></ivy-module>\n"
    )


def fetch(where: Layout, halt: threading.Event, lock: Path = LOCK, *, buckets: bool = False) -> None:
    """Bring the jars; those that are there already, and whole, are not asked for again. The benches have a lock of their own."""
    jars = needed(locked(lock.read_text()), buckets=buckets)
    wanted = hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()
    marker = where.home / "jars" / f".verified-{wanted}"
    if marker.exists() and all((where.home / "jars" / jar.folder / jar.file).exists() for jar in jars):
        return
    if faulty(jars, where.home) and where.home != CHECKOUT / ".sluice":
        borrow(jars, CHECKOUT / ".sluice", where.home)
    if faulty(jars, where.home):
        for folder in {jar.folder for jar in jars}:
            shutil.rmtree(where.home / "jars" / folder, ignore_errors=True)
        _retrieve(where, jars, halt)
    amiss = faulty(jars, where.home, lock)
    if amiss:
        listed = "; ".join(f"{jar.file} {why}" for jar, why in amiss.items())
        caches = f"{where.home / 'jars'} and {CACHE}"
        message = (
            f"jars: {listed}. Remove {caches} and try again; if it stays so, your mirror serves other files"
        )
        raise PlatformError(message)
    marker.touch()


def remove_others(jars: list[Jar], home: Path) -> None:
    """Remove what an older lock has left in the folders: every jar there comes onto a class path. Nothing may run from it any more."""
    for folder in {jar.folder for jar in jars}:
        kept = {jar.file for jar in jars if jar.folder == folder}
        for file in (home / "jars" / folder).glob("*.jar"):
            if file.name not in kept:
                file.unlink(missing_ok=True)


def borrow(jars: list[Jar], lender: Path, borrower: Path) -> None:
    """Copy what another home of this checkout has already: a second platform needs no network either."""
    for jar in jars:
        found, wanted = (home / "jars" / jar.folder / jar.file for home in (lender, borrower))
        if found.exists():
            wanted.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found, wanted)


def _retrieve(where: Layout, jars: list[Jar], halt: threading.Event) -> None:
    ivy = next(where.spark_jars.glob("ivy-*.jar"))
    description = where.conf / "ivy.xml"
    description.write_text(module(jars))
    pattern = f"{where.home / 'jars'}/[conf]/[artifact]-[revision].[ext]"
    command = [
        str(JAVA),
        *trusting(where.conf / "trusted.p12"),
        "-jar",
        str(ivy),
        "-ivy",
        str(description),
        "-cache",
        str(CACHE),
        "-retrieve",
        pattern,
    ]
    log = where.logs / "ivy.log"
    try:
        run_to_end(command, dict(os.environ), log, halt, FETCH_SECONDS)
    except PlatformError as error:
        told = [
            line.strip()
            for line in log.read_text().splitlines()
            if "not found" in line or "WARN" in line or "ERROR" in line
        ]
        message = f"jars: Ivy could not fetch them ({'; '.join(told[:3]) or 'see the log'}). Check the network or your Ivy settings; log: {log}"
        raise PlatformError(message) from error
