"""The jars that pyspark does not bring, as `jars.lock` has them: Kafka's broker, Spark's Kafka connector, and S3's where a site uses it."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

LOCK = Path(__file__).with_name("jars.lock")
BUCKETS = "s3"
"""The folder of what Spark reads and writes buckets with: only a site whose checkpoints are in one needs it."""


@dataclass(frozen=True)
class Jar:
    """One locked jar."""

    folder: str
    organisation: str
    name: str
    revision: str
    sha256: str

    @property
    def file(self) -> str:
        """Its file name."""
        return f"{self.name}-{self.revision}.jar"


def locked(text: str) -> list[Jar]:
    """Read the lock."""
    jars = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            folder, coordinates, sha256 = line.split()
            organisation, name, revision = coordinates.split(":")
            jars.append(Jar(folder, organisation, name, revision, sha256))
    return jars


def wrong(jars: list[Jar], home: Path, lock: Path = LOCK) -> dict[Jar, str]:
    """Return the jars that are not as locked, and why."""
    found = {}
    for jar in jars:
        path = home / "jars" / jar.folder / jar.file
        if not path.exists():
            found[jar] = "is missing"
        elif hashlib.sha256(path.read_bytes()).hexdigest() != jar.sha256:
            found[jar] = f"differs from its checksum in {lock.name}"
    return found


def needed(jars: list[Jar], *, buckets: bool) -> list[Jar]:
    """Leave out what a site without buckets has no use for."""
    return [jar for jar in jars if buckets or jar.folder != BUCKETS]
