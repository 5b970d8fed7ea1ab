"""A real schema registry for tests: Apicurio, by its interface that is Confluent's.

`schema_registry.lock` has its version and checksum.
"""

import json
import os
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice_ops.site.java import JAVA
from tests.fetched import fetch
from tests.lab import free_ports, until

LOCK = Path(__file__).with_suffix(".lock")
HEAP = 320
"""Unit: MiB."""


@dataclass
class Registry:
    """A registry that runs."""

    address: str
    process: subprocess.Popen[bytes]

    def ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        request = urllib.request.Request(
            f"{self.address}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def register(self, subject: str, schema: str) -> int:
        return int(self.ask(f"/subjects/{subject}/versions", {"schema": schema})["id"])

    def answers(self) -> bool:
        assert self.process.poll() is None, "the registry has ended"
        try:
            return isinstance(self.ask("/subjects"), list)
        except OSError:
            return False


def program(folder: Path) -> Path:
    """Unpack the registry into `folder`, and return its jar."""
    archive = fetch(LOCK, folder, "tar.gz", "all")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
    return folder / "quarkus-run.jar"


@contextmanager
def registry(folder: Path) -> Iterator[Registry]:
    """Run a registry that refuses schemas that are not backward compatible, as Confluent's does."""
    port, management = free_ports(2)
    options = [f"-Xmx{HEAP}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options += [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    options += [f"-Dquarkus.management.port={management}", "-Dquarkus.management.host=127.0.0.1"]
    with (folder / "registry.log").open("wb") as log:
        command = [JAVA, *options, "-jar", program(folder)]
        process = subprocess.Popen(command, env=os.environ, cwd=folder, stdout=log, stderr=log)
    try:
        running = Registry(f"http://127.0.0.1:{port}/apis/ccompat/v7", process)
        until("the registry answers", running.answers)
        running.ask("/config", {"compatibility": "BACKWARD"}, "PUT")
        yield running
    finally:
        process.kill()
        process.wait()
