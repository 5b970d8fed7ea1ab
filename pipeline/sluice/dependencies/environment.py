"""An environment in use: a process imports its packages, and Spark gets its packages and jars."""

import atexit
import shutil
import sys
import tempfile
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


def use(folder: Path) -> Environment:
    """Let this process import the packages of an environment, before its own of the same names.

    A process uses one environment: what it has imported stays.
    """
    if not (folder / ARCHIVE).exists():
        return Environment(folder, None)
    packages = Path(tempfile.mkdtemp(prefix="packages-"))
    atexit.register(shutil.rmtree, packages, ignore_errors=True)
    with zipfile.ZipFile(folder / ARCHIVE) as archive:
        archive.extractall(packages)
    sys.path.insert(0, str(packages))
    return Environment(folder, packages)
