"""An environment in use: a process imports its packages, and Spark gets its packages and jars."""

import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from sluice.dependencies.lock import FOLDER

ENVIRONMENT = "environment"
"""The folder of an environment, in a build and in a release."""
ARCHIVE = "packages.zip"
"""The installed packages, in the folder of the environment."""


@dataclass(frozen=True)
class Environment:
    """The further packages and jars of a pipeline, in folders that only this process writes."""

    folder: Path
    packages: Path | None
    """The unpacked packages."""

    @property
    def archive(self) -> Path | None:
        """The packages in one file."""
        return None if self.packages is None else self.folder / ARCHIVE

    @property
    def jars(self) -> list[Path]:
        """The jars, in an order that is the same everywhere."""
        return sorted((self.folder / "jars" / FOLDER).glob("*.jar"))


def use(folder: Path, packages: Path) -> Environment:
    """Unpack the packages of an environment into `packages`, and let this process import them.

    They come before the process's own packages of the same names. A process uses one environment:
    what it has imported stays.
    """
    if not (folder / ARCHIVE).exists():
        return Environment(folder, None)
    with zipfile.ZipFile(folder / ARCHIVE) as archive:
        archive.extractall(packages)
    sys.path.insert(0, str(packages))
    return Environment(folder, packages)
