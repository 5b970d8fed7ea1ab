"""The jars that pyspark lacks, as `jars.lock` lists them.

They are Kafka's broker, Spark's packages for Kafka and Avro, Protobuf's for Java, and S3's jars for
sites that use S3.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

LOCK = Path(__file__).with_name("jars.lock")
BUCKETS = "s3"
"""The folder of the jars for S3; only sites with `checkpoints` in a bucket need them."""


@dataclass(frozen=True)
class Jar:
    """One line of `jars.lock`."""

    folder: str
    organisation: str
    name: str
    revision: str
    sha256: str

    @property
    def file(self) -> str:
        """The jar's file name."""
        return f"{self.name}-{self.revision}.jar"


def locked(text: str) -> list[Jar]:
    """Parse the text of `jars.lock`."""
    jars = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            folder, coordinates, sha256 = line.split()
            organisation, name, revision = coordinates.split(":")
            jars.append(Jar(folder, organisation, name, revision, sha256))
    return jars


def faulty(jars: list[Jar], home: Path, lock: Path = LOCK) -> dict[Jar, str]:
    """Return the jars below `home` that are missing or differ from the lock, and their faults."""
    faults = {}
    for jar in jars:
        path = home / "jars" / jar.folder / jar.file
        if not path.exists():
            faults[jar] = "is missing"
        elif hashlib.sha256(path.read_bytes()).hexdigest() != jar.sha256:
            faults[jar] = f"differs from its checksum in {lock.name}"
    return faults


def needed(jars: list[Jar], *, buckets: bool) -> list[Jar]:
    """Return the jars that a site needs; `buckets`: its checkpoints are in S3."""
    return [jar for jar in jars if buckets or jar.folder != BUCKETS]
