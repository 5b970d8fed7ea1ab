"""Where the checkpoints of tiers with state are: a folder that all hosts share, or a bucket. Files by name, with `/` between folders.

Spark reads and writes there by the URL; what the platform itself does there goes through this (decision record 0026).
"""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sluice_ops.site.files import atomic_file, make_folders, sync, sync_tree
from sluice_ops.site.site_file import S3Config, Site

MADE = ".made"
"""In a bucket, where there are no folders, the file that says that a folder was made."""
MISSING = frozenset({"NoSuchKey", "404"})
CREDENTIALS = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
"""The same places, in the same order, as boto3 looks into: the environment, its files, the machine's role."""
FILE_MANAGER = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
"""A file is there when its upload is complete, and not before. Spark's other one renames, which in S3 is a copy."""
CRC_HEAD, CRC = 8, 4
"""Bytes of a head in Hadoop's files of checksums, which ends with how many bytes each checksum is of; bytes of a checksum."""
PROBE = 64 * 1024
"""Bytes."""
AT_ONCE = 1000
"""The most files that S3 removes in one request."""


class Depot(ABC):
    """What a tier's checkpoints are made of."""

    session: dict[str, str] = {}  # noqa: RUF012 — never changed
    """What a Spark session that works there is opened with."""
    query: dict[str, str] = {}  # noqa: RUF012
    """What holds for a query that has its checkpoint there, and not for a warm-up, which has it on a local disk."""

    @abstractmethod
    def url(self, folder: str) -> str:
        """Return where Spark finds a folder."""

    @abstractmethod
    def make(self, folder: str) -> bool:
        """Make a folder; False where there is one already. Of two that try, one is told so."""

    @abstractmethod
    def folders(self) -> list[str]:
        """Name the folders."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Name the files below a folder, seen from there; without checksums and halves of files."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Tell whether a file is there."""

    @abstractmethod
    def read(self, name: str) -> str:
        """Return what a file says; FileNotFoundError where there is none."""

    @abstractmethod
    def write(self, name: str, content: str) -> None:
        """Write a file, all of it or nothing."""

    @abstractmethod
    def lend(self, name: str, to: str) -> None:
        """Give a file, which is never written again, a second name; FileNotFoundError where there is none."""

    @abstractmethod
    def is_whole(self, name: str) -> bool:
        """Tell whether a file is as long as when it was written, as far as that is known."""

    @abstractmethod
    def probe(self) -> None:
        """Write a small file and remove it; OSError where that fails."""

    @abstractmethod
    def sync(self, folder: str) -> None:
        """Return once a folder and all below it outlive a loss of power."""

    @abstractmethod
    def remove(self, folder: str) -> None:
        """Remove a folder and all below it; what cannot be removed stays."""


@dataclass(frozen=True)
class Folder(Depot):
    """On one file system that all hosts share and that has hard links."""

    path: Path

    def __str__(self) -> str:
        """Return the path."""
        return str(self.path)

    def url(self, folder: str) -> str:
        """Return a path."""
        return str(self.path / folder)

    def make(self, folder: str) -> bool:
        """Make it."""
        path = self.path / folder
        make_folders(path.parent)
        try:
            path.mkdir()
        except FileExistsError:
            return False
        sync(path.parent)
        return True

    def folders(self) -> list[str]:
        """Name those that are there."""
        return [each.name for each in self.path.iterdir() if each.is_dir()] if self.path.exists() else []

    def names(self, folder: str) -> list[str]:
        """Leave out what begins with a dot."""
        root = self.path / folder
        return [
            str(path.relative_to(root))
            for path in root.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        ]

    def exists(self, name: str) -> bool:
        """Look."""
        return (self.path / name).exists()

    def read(self, name: str) -> str:
        """Read it."""
        return (self.path / name).read_text()

    def write(self, name: str, content: str) -> None:
        """Write it beside, and give it its name."""
        with atomic_file(self.path / name) as unfinished:
            unfinished.write_text(content)

    def lend(self, name: str, to: str) -> None:
        """Link it, with its checksum, which Hadoop keeps beside it."""
        source, target = self.path / name, self.path / to
        target.parent.mkdir(parents=True, exist_ok=True)
        checksum = source.with_name(f".{source.name}.crc")
        if checksum.exists():
            os.link(checksum, target.with_name(f".{target.name}.crc"))
        os.link(source, target)

    def is_whole(self, name: str) -> bool:
        """Compare its length with how many checksums Hadoop has kept of it; a loss of power cuts files short that were not synced."""
        path = self.path / name
        try:
            checksums, size = path.with_name(f".{path.name}.crc").read_bytes(), path.stat().st_size
        except FileNotFoundError:
            return path.exists()  # without checksums: nobody knows
        each = int.from_bytes(checksums[4:CRC_HEAD])
        return each > 0 and len(checksums) == CRC_HEAD + CRC * -(-size // each)

    def probe(self) -> None:
        """Write as much as the files of a small batch have."""
        make_folders(self.path)
        probe = self.path / f"probe-{os.getpid()}"
        try:
            probe.write_bytes(bytes(PROBE))
            sync(probe)
        finally:
            probe.unlink(missing_ok=True)

    def sync(self, folder: str) -> None:
        """Sync each."""
        sync_tree(self.path / folder)

    def remove(self, folder: str) -> None:
        """Remove it."""
        shutil.rmtree(self.path / folder, ignore_errors=True)


class Bucket(Depot):
    """In S3, or what speaks like it. Copies are made there, and no record passes through here."""

    def __init__(self, url: str, s3: S3Config) -> None:
        """Use the folder of a bucket that `s3a://bucket/folder` names; credentials are those of the environment or of its files."""
        import boto3  # noqa: PLC0415 — half a second that only who needs it should wait
        from botocore.config import Config  # noqa: PLC0415

        parts = urlsplit(url)
        self._url, self._bucket, self._below = url.rstrip("/"), parts.netloc, parts.path.strip("/")
        config = Config(
            s3={"addressing_style": "path" if s3.endpoint else "auto"},
            retries={"max_attempts": 5, "mode": "standard"},
        )
        self._client: Any = boto3.client("s3", endpoint_url=s3.endpoint, region_name=s3.region, config=config)
        self.session = {
            "spark.hadoop.fs.s3a.aws.credentials.provider": CREDENTIALS,
            "spark.hadoop.fs.s3a.endpoint.region": s3.region,
            # the SDK's asynchronous client, which that takes, stands still with the Netty that Spark has
            "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
            **(
                {}
                if s3.endpoint is None
                else {
                    "spark.hadoop.fs.s3a.endpoint": s3.endpoint,
                    "spark.hadoop.fs.s3a.path.style.access": "true",
                }
            ),
        }
        self.query = {"spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER}

    def __str__(self) -> str:
        """Return the URL."""
        return self._url

    def url(self, folder: str) -> str:
        """Return a URL for Hadoop."""
        return f"{self._url}/{folder}"

    def make(self, folder: str) -> bool:
        """Leave a file that is written once."""
        from botocore.exceptions import ClientError  # noqa: PLC0415

        try:
            self._client.put_object(
                Bucket=self._bucket, Key=self._key(f"{folder}/{MADE}"), Body=b"", IfNoneMatch="*"
            )
        except ClientError as error:
            if error.response["Error"]["Code"] in {"PreconditionFailed", "ConditionalRequestConflict"}:
                return False
            raise
        return True

    def folders(self) -> list[str]:
        """Name what has a file below it."""
        return sorted({key.removeprefix(self._key("")).partition("/")[0] for key in self._keys("")})

    def names(self, folder: str) -> list[str]:
        """Leave out what begins with a dot, and what stands for a folder."""
        seen = (key.removeprefix(self._key(f"{folder}/")) for key in self._keys(f"{folder}/"))
        return [
            name for name in seen if not name.rpartition("/")[2].startswith(".") and not name.endswith("/")
        ]

    def exists(self, name: str) -> bool:
        """Ask."""
        from botocore.exceptions import ClientError  # noqa: PLC0415

        try:
            self._client.head_object(Bucket=self._bucket, Key=self._key(name))
        except ClientError as error:
            if error.response["Error"]["Code"] in MISSING:
                return False
            raise
        return True

    def read(self, name: str) -> str:
        """Fetch it."""
        with self._found(name):
            content: bytes = self._client.get_object(Bucket=self._bucket, Key=self._key(name))["Body"].read()
        return content.decode()

    def write(self, name: str, content: str) -> None:
        """Put it: S3 shows all of it or nothing."""
        self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=content.encode())

    def lend(self, name: str, to: str) -> None:
        """Have S3 copy it; there are no links."""
        with self._found(name):
            self._client.copy({"Bucket": self._bucket, "Key": self._key(name)}, self._bucket, self._key(to))

    def is_whole(self, name: str) -> bool:  # noqa: ARG002 - the same of each
        """Tell that it is: an upload is there as a whole or not at all."""
        return True

    def probe(self) -> None:
        """Do nothing: a bucket is never full, and what is slow there is tried again by S3A."""

    def sync(self, folder: str) -> None:
        """Do nothing: what S3 has taken stays."""

    def remove(self, folder: str) -> None:
        """Remove them, many at once."""
        keys = self._keys(f"{folder}/")
        for first in range(0, len(keys), AT_ONCE):
            objects = [{"Key": key} for key in keys[first : first + AT_ONCE]]
            self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True})

    def _key(self, name: str) -> str:
        return f"{self._below}/{name}" if self._below else name

    def _keys(self, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._key(prefix)
        )
        return [each["Key"] for page in pages for each in page.get("Contents", ())]

    @contextmanager
    def _found(self, name: str) -> Iterator[None]:
        from botocore.exceptions import ClientError  # noqa: PLC0415

        try:
            yield
        except ClientError as error:
            if error.response["Error"]["Code"] in MISSING:
                raise FileNotFoundError(self.url(name)) from error
            raise


def depot_of(tier: str, known: Site, home: Path) -> Depot:
    """Return where a tier's checkpoints are at this site: below the home that all hosts share, or in its bucket."""
    if known.checkpoints is None:
        return Folder(home / "checkpoints" / tier)
    return Bucket(f"{known.checkpoints.rstrip('/')}/{tier}", known.s3)
