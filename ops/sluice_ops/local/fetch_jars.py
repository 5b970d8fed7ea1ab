"""Fetch the jars that pyspark lacks: Kafka's broker, the packages for Kafka, Avro and Protobuf, and
S3's if needed.

Ivy, one of pyspark's jars, downloads them according to the machine's Ivy settings. Each jar must
have its checksum in `jars.lock`.
"""

import hashlib
import os
import shutil
import threading
from pathlib import Path

from sluice_ops.local.layout import Layout
from sluice_ops.local.own_classes import compile_own_classes
from sluice_ops.local.start.command import POLL_SECONDS, run_to_end
from sluice_ops.local.start.starting import HaltedError
from sluice_ops.site import ivy, project
from sluice_ops.site.installation import PlatformError
from sluice_ops.site.jars import LOCK, Jar, faulty, locked, needed

FETCH_SECONDS = 600.0


def fetch(layout: Layout, halt: threading.Event, lock: Path = LOCK, *, buckets: bool = False) -> None:
    """Fetch the jars of a lock that are missing or differ; PlatformError if Ivy cannot.

    `buckets`: fetch the jars for S3, too. Benches have their own lock.
    """
    compile_own_classes(layout, halt)
    jars = needed(locked(lock.read_text()), buckets=buckets)
    digest = hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()
    marker = layout.home / "jars" / f".verified-{digest}"
    if marker.exists() and all((layout.home / "jars" / jar.folder / jar.file).exists() for jar in jars):
        return
    if faulty(jars, layout.home) and layout.home != project.own_home():
        borrow(jars, project.own_home(), layout.home)
    if faulty(jars, layout.home):
        for folder in {jar.folder for jar in jars}:
            shutil.rmtree(layout.home / "jars" / folder, ignore_errors=True)
        _retrieve(layout, jars, halt)
    faults = faulty(jars, layout.home, lock)
    if faults:
        listed = "; ".join(f"{jar.file} {fault}" for jar, fault in faults.items())
        message = (
            f"the fetched jars are not those of {lock.name}: {listed}. "
            f"Remove {layout.home / 'jars'} and {ivy.cache()}, then try again; "
            "if the error stays, your mirror serves other files"
        )
        raise PlatformError(message)
    marker.touch()


def remove_others(jars: list[Jar], home: Path) -> None:
    """Remove the jars of an older lock; otherwise they would be on the class paths.

    No JVM may be running from these jars.
    """
    for folder in {jar.folder for jar in jars}:
        names = {jar.file for jar in jars if jar.folder == folder}
        for file in (home / "jars" / folder).glob("*.jar"):
            if file.name not in names:
                file.unlink(missing_ok=True)


def borrow(jars: list[Jar], lender: Path, borrower: Path) -> None:
    """Copy the jars that another home has, so that a second platform needs no network."""
    for jar in jars:
        source, target = (home / "jars" / jar.folder / jar.file for home in (lender, borrower))
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def _retrieve(layout: Layout, jars: list[Jar], halt: threading.Event) -> None:
    def pause() -> None:
        if halt.wait(POLL_SECONDS):
            raise HaltedError

    command, log = ivy.retrieval(jars, layout.home / "jars", layout.conf), layout.logs / "ivy.log"
    try:
        with ivy.cache_alone(pause):
            run_to_end(command, dict(os.environ), log, halt, FETCH_SECONDS)
    except PlatformError as error:
        message = (
            f"Ivy could not fetch the jars ({'; '.join(ivy.errors(log.read_text())) or 'see the log'}). "
            f"Check the network and your Ivy settings; log: {log}"
        )
        raise PlatformError(message) from error
