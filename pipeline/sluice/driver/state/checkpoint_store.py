"""Stores checkpoints of tiers with state in a folder that all hosts share, or in a bucket (decision
record 0026).

Spark reads and writes there by URL, the driver through a `Depot`. Files have names with `/` between
folders.
"""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluice.s3 import bucket_and_prefix, client
from sluice_ops.site.files import atomic_file, make_folders, sync, sync_tree
from sluice_ops.site.site_file import S3Config, Site

MADE = ".made"
"""The file that marks a folder in a bucket, which has no folders of its own."""
MISSING = frozenset({"NoSuchKey", "404"})
CREDENTIALS = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
"""Looks for credentials in the same order as boto3: the environment, its files, the
machine's role.
"""
FILE_MANAGER = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
"""Shows a file once its upload is complete.

Spark's other manager renames files, which in S3 is a copy.
"""
CRC_HEAD, CRC = 8, 4
"""Hadoop's checksum files: bytes of the head, whose last four give the length of a block; bytes of
a checksum.
"""
PROBE = 64 * 1024
"""Size of the probe file. Unit: bytes."""
AT_ONCE = 1000
"""The most files that S3 removes in one request."""


class Depot(ABC):
    """The storage of a tier's checkpoints."""

    session: dict[str, str] = {}  # noqa: RUF012 — never changed
    """Settings of Spark sessions that use the storage."""
    query: dict[str, str] = {}  # noqa: RUF012
    """Settings of queries with a checkpoint there; not of a warm-up, whose checkpoint is on a local
    disk.
    """

    @abstractmethod
    def url(self, folder: str) -> str:
        """Return the URL of a folder for Spark."""

    @abstractmethod
    def make(self, folder: str) -> bool:
        """Make a folder; return False if it exists. Of two processes that try, one gets False."""

    @abstractmethod
    def folders(self, below: str = "") -> list[str]:
        """Return the names of all folders directly below a folder, by default at the top."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the files below a folder, relative to it, without checksums and
        unfinished files.
        """

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Tell whether a file exists."""

    @abstractmethod
    def read(self, name: str) -> str:
        """Return the content of a file; FileNotFoundError if it does not exist."""

    @abstractmethod
    def write(self, name: str, content: str) -> None:
        """Write a file completely or not at all."""

    @abstractmethod
    def lend(self, name: str, to: str) -> None:
        """Link or copy a file that is never written again; FileNotFoundError if it does
        not exist.
        """

    @abstractmethod
    def is_whole(self, name: str) -> bool:
        """Tell whether a file still has the length with which it was written; True if that is
        unknown.
        """

    @abstractmethod
    def probe(self) -> None:
        """Write a small file and remove it; OSError if that fails."""

    @abstractmethod
    def sync(self, folder: str) -> None:
        """Return once a folder and all files below it outlive a loss of power."""

    @abstractmethod
    def remove(self, folder: str) -> None:
        """Remove a folder and all files below it, as far as possible."""


@dataclass(frozen=True)
class Folder(Depot):
    """Checkpoints on one file system with hard links that all hosts share."""

    path: Path

    def __str__(self) -> str:
        """Return the path."""
        return str(self.path)

    def url(self, folder: str) -> str:
        """Return the path of a folder."""
        return str(self.path / folder)

    def make(self, folder: str) -> bool:
        """Make a folder; return False if it exists."""
        path = self.path / folder
        make_folders(path.parent)
        try:
            path.mkdir()
        except FileExistsError:
            return False
        sync(path.parent)
        return True

    def folders(self, below: str = "") -> list[str]:
        """Return the names of all folders directly below a folder."""
        root = self.path / below
        return [path.name for path in root.iterdir() if path.is_dir()] if root.exists() else []

    def names(self, folder: str) -> list[str]:
        """Return the files below a folder, without those whose names begin with a dot."""
        root = self.path / folder
        return [
            str(path.relative_to(root))
            for path in root.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        ]

    def exists(self, name: str) -> bool:
        """Tell whether a file exists."""
        return (self.path / name).exists()

    def read(self, name: str) -> str:
        """Return the content of a file."""
        return (self.path / name).read_text()

    def write(self, name: str, content: str) -> None:
        """Write a file under another name, and rename it."""
        with atomic_file(self.path / name) as unfinished:
            unfinished.write_text(content)

    def lend(self, name: str, to: str) -> None:
        """Link a file and its checksum, which Hadoop keeps beside it."""
        source, target = self.path / name, self.path / to
        target.parent.mkdir(parents=True, exist_ok=True)
        checksum = source.with_name(f".{source.name}.crc")
        if checksum.exists():
            os.link(checksum, target.with_name(f".{target.name}.crc"))
        os.link(source, target)

    def is_whole(self, name: str) -> bool:
        """Compare a file's length with the number of Hadoop's checksums.

        A loss of power cuts files short that were not synced.
        """
        path = self.path / name
        try:
            checksums, size = path.with_name(f".{path.name}.crc").read_bytes(), path.stat().st_size
        except FileNotFoundError:
            return path.exists()  # without checksums the length is unknown
        block = int.from_bytes(checksums[4:CRC_HEAD])
        return block > 0 and len(checksums) == CRC_HEAD + CRC * -(-size // block)

    def probe(self) -> None:
        """Write as many bytes as a small batch does, and remove them."""
        make_folders(self.path)
        probe = self.path / f"probe-{os.getpid()}"
        try:
            probe.write_bytes(bytes(PROBE))
            sync(probe)
        finally:
            probe.unlink(missing_ok=True)

    def sync(self, folder: str) -> None:
        """Sync a folder and all files below it."""
        sync_tree(self.path / folder)

    def remove(self, folder: str) -> None:
        """Remove a folder and all files below it."""
        shutil.rmtree(self.path / folder, ignore_errors=True)


class Bucket(Depot):
    """Checkpoints in S3, or in a service with its API.

    S3 copies files itself; their content does not pass through the driver.
    """

    def __init__(self, url: str, s3: S3Config) -> None:
        """Use the folder of a bucket, `s3a://bucket/folder`; credentials come from the environment
        or its files.
        """
        self._url = url.rstrip("/")
        self._bucket, self._below = bucket_and_prefix(url)
        self._client = client(s3)
        self.session = {
            "spark.hadoop.fs.s3a.aws.credentials.provider": CREDENTIALS,
            "spark.hadoop.fs.s3a.endpoint.region": s3.region,
            # this option uses the SDK's asynchronous client, which hangs with Spark's version of
            # Netty
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
        """Return the URL of a folder for Hadoop."""
        return f"{self._url}/{folder}"

    def make(self, folder: str) -> bool:
        """Write the folder's mark, which S3 accepts only once."""
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

    def folders(self, below: str = "") -> list[str]:
        """Return the names of all folders with a file, directly below a folder."""
        prefix = f"{below}/" if below else ""
        return sorted({key.removeprefix(self._key(prefix)).partition("/")[0] for key in self._keys(prefix)})

    def names(self, folder: str) -> list[str]:
        """Return the files below a folder, without marks of folders and names that begin with a
        dot.
        """
        seen = (key.removeprefix(self._key(f"{folder}/")) for key in self._keys(f"{folder}/"))
        return [
            name for name in seen if not name.rpartition("/")[2].startswith(".") and not name.endswith("/")
        ]

    def exists(self, name: str) -> bool:
        """Tell whether a file exists."""
        from botocore.exceptions import ClientError  # noqa: PLC0415

        try:
            self._client.head_object(Bucket=self._bucket, Key=self._key(name))
        except ClientError as error:
            if error.response["Error"]["Code"] in MISSING:
                return False
            raise
        return True

    def read(self, name: str) -> str:
        """Return the content of a file."""
        with self._missing_as_file_not_found(name):
            content: bytes = self._client.get_object(Bucket=self._bucket, Key=self._key(name))["Body"].read()
        return content.decode()

    def write(self, name: str, content: str) -> None:
        """Upload a file, which S3 shows once it is complete."""
        self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=content.encode())

    def lend(self, name: str, to: str) -> None:
        """Let S3 copy a file; a bucket has no links."""
        with self._missing_as_file_not_found(name):
            self._client.copy({"Bucket": self._bucket, "Key": self._key(name)}, self._bucket, self._key(to))

    def is_whole(self, name: str) -> bool:  # noqa: ARG002 - the same for each file
        """Return True: S3 has complete uploads only."""
        return True

    def probe(self) -> None:
        """Do nothing: a bucket is never full, and S3A retries slow requests."""

    def sync(self, folder: str) -> None:
        """Do nothing: an upload that S3 accepted outlives a loss of power."""

    def remove(self, folder: str) -> None:
        """Remove all files of a folder, up to AT_ONCE in a request."""
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
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    @contextmanager
    def _missing_as_file_not_found(self, name: str) -> Iterator[None]:
        from botocore.exceptions import ClientError  # noqa: PLC0415

        try:
            yield
        except ClientError as error:
            if error.response["Error"]["Code"] in MISSING:
                raise FileNotFoundError(self.url(name)) from error
            raise


def depot_of(tier: str, site: Site, home: Path) -> Depot:
    """Return the storage of a tier's checkpoints at this site: below the home that all hosts share,
    or a bucket.
    """
    if site.checkpoints is None:
        return Folder(home / "checkpoints" / tier)
    return Bucket(f"{site.checkpoints.rstrip('/')}/{tier}", site.s3)
