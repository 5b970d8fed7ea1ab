"""Build the environment of a pipeline from its lock files, once for each content of these files.

pip installs the packages and Ivy fetches the jars, according to the machine's settings. Builds are
kept in the project's own home, which no host writes, and `sluice.releases` copies them into
releases (decision 110).
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sluice.api.declarations import DeclarationError
from sluice.dependencies import provided
from sluice.dependencies.environment import ARCHIVE, ENVIRONMENT
from sluice.dependencies.lock import JARS, REQUIREMENTS, Lock, read
from sluice_ops.model.release import Contents
from sluice_ops.site import project
from sluice_ops.site.files import pack, sync_tree
from sluice_ops.site.jars import faulty

KEEP = 3
"""How many builds are kept, the newest ones."""
SECONDS = 600.0
"""How long pip or Ivy may take."""
PIP = (
    "-P",  # the pipeline's modules must not replace modules of pip
    "-m",
    "pip",
    "install",
    "--quiet",
    "--disable-pip-version-check",
    "--no-input",
    "--no-deps",
    "--require-hashes",
    "--only-binary=:all:",
    "--no-compile",
)
COMPILED = "Root-Is-Purelib: false"
"""A line of the file WHEEL of a package for one Python and processor."""
CONTENTS = "contents.json"
UNFINISHED = ".partial-"
"""How the name of a folder begins in which a build is made or removed."""
ADVICE = {
    "DO NOT MATCH": "The file is not the one that was locked: find out why the registry changed it, or lock "
    "the file that you trust",
    "different python": "Publish with the Python of the hosts, and lock packages for it: `uv pip compile "
    "--python-version VERSION`",
    "Retrying": "The registry does not answer: check the network and pip's settings (`pip config list`)",
    "No matching distribution": "Only wheels are installed. If a package has none for this Python, make one "
    "with `pip wheel NAME`, name its folder in the lock (`--find-links FOLDER`) and lock its checksum; or "
    "let pip build it: write `--no-binary NAME` into the lock",
}
"""What to do, by words of pip; the first ones that it says count."""
_FIND_LINKS = re.compile(r"(--find-links|-f)[ =]\s*(?P<folder>\S+)")


@dataclass(frozen=True)
class Build:
    """A built environment."""

    folder: Path
    contents: Contents
    seconds: float | None
    """How long the build took; None: it was built before."""


def python_here() -> str:
    """Name the Python and processor of this machine, for which packages are compiled."""
    return f"{sys.implementation.cache_tag} {platform.machine()}"


def build(code: Path) -> Build | None:
    """Return the environment of the pipeline in this folder; None if its locks name nothing more.

    Raise DeclarationError if a lock cannot be built.
    """
    lock = provided.beyond(read(code)) if code.is_dir() else Lock()
    return _build(code, lock) if lock.packages or lock.jars else None


@cache
def _build(code: Path, lock: Lock) -> Build:
    builds = project.own_home() / "environments"
    place = builds / hashlib.sha256(f"{python_here()} {lock}".encode()).hexdigest()[:16]
    builds.mkdir(parents=True, exist_ok=True)
    with _alone(builds):
        if place.exists():
            os.utime(place)
            contents = Contents.model_validate_json((place / CONTENTS).read_text(), extra="ignore")
            return Build(place / ENVIRONMENT, contents, None)
        began = time.monotonic()
        named = [*(package.name for package in lock.packages), *(jar.name for jar in lock.jars)]
        sys.stderr.write(f"building the environment, once for this lock: {', '.join(named)}\n")
        partial = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=builds))
        contents = _make(code, lock, partial)
        (partial / CONTENTS).write_text(contents.model_dump_json(indent=1))
        sync_tree(partial)
        partial.rename(place)
        _remove_old(builds)
    return Build(place / ENVIRONMENT, contents, time.monotonic() - began)


@contextmanager
def _alone(builds: Path) -> Iterator[None]:
    """Wait until no other process builds, and remove what one that ended has left unfinished."""
    with (builds / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            for left in builds.glob(f"{UNFINISHED}*"):
                shutil.rmtree(left, ignore_errors=True)


def _remove_old(builds: Path) -> None:
    """Rename old builds, which `_alone` then removes: a build has all its files, or is none."""
    by_age = sorted(builds.glob(f"*/{CONTENTS}"), key=lambda path: path.parent.stat().st_mtime)
    for old in by_age[:-KEEP]:
        old.parent.rename(builds / f"{UNFINISHED}{old.parent.name}")


def _make(code: Path, lock: Lock, partial: Path) -> Contents:
    folder = partial / ENVIRONMENT
    folder.mkdir()
    packages, is_compiled = dict[str, str](), False
    with tempfile.TemporaryDirectory(prefix="sluice-build-") as scratch:
        if lock.packages:
            installed = _install(code, lock, Path(scratch))
            packages = {name: own.version for name, own in sorted(installed.items())}
            is_compiled = any(COMPILED in (own.read_text("WHEEL") or "") for own in installed.values())
            _pack(Path(scratch) / "packages", folder / ARCHIVE)
        if lock.jars:
            _fetch(code, lock, folder, Path(scratch))
    return Contents(
        packages=packages,
        jars=tuple(f"{jar.organisation}:{jar.name}:{jar.revision}" for jar in lock.jars),
        bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        python=python_here() if is_compiled else None,
    )


def _install(code: Path, lock: Lock, scratch: Path) -> Mapping[str, Distribution]:
    """Let pip install the packages, and return them by name."""
    requirements, target = scratch / REQUIREMENTS, scratch / "packages"
    options = [_absolute(option, code) for option in lock.options]
    requirements.write_text("\n".join([*options, *(package.line for package in lock.packages)]) + "\n")
    command = [sys.executable, *PIP, f"--target={target}", f"--requirement={requirements}"]
    done = _run(command, scratch)
    if done.returncode:
        message = f"pip cannot install {code / REQUIREMENTS}:\n{_pip_failure(done.stderr)}"
        raise DeclarationError(message)
    installed: dict[str, Distribution] = {
        canonicalize_name(own.name): own for own in distributions(path=[str(target)])
    }
    _refuse_gaps(code, installed)
    return installed


def _pip_failure(output: str) -> str:
    """Return the last lines of pip's errors, and what to do."""
    lines = [line for line in output.splitlines() if line.strip()]
    last_retry = [line for line in lines if "Retrying" in line][-1:]
    errors = [*last_retry, *[line for line in lines if not line.startswith("WARNING")][-4:]]
    advice = [text for words, text in ADVICE.items() if words.lower() in output.lower()]
    return "\n".join([*(f"  {line}" for line in errors), *advice[:1]])


def _absolute(option: str, code: Path) -> str:
    """Return an option for pip, with a folder of wheels that the lock names from its own place."""
    named = _FIND_LINKS.fullmatch(option)
    if named is None or "://" in named["folder"]:
        return option
    folder = (code / named["folder"]).resolve()
    if not folder.exists():
        message = f"{code / REQUIREMENTS}: {option}: {folder} does not exist; correct the folder of wheels"
        raise DeclarationError(message)
    return f"--find-links {folder}"


def _refuse_gaps(code: Path, installed: Mapping[str, Distribution]) -> None:
    """Raise DeclarationError if a package needs one that neither the lock nor Sluice has."""
    versions = {**provided.packages(), **{name: own.version for name, own in installed.items()}}
    missing = [
        f"{name} needs {requirement}"
        for name, own in sorted(installed.items())
        for requirement in map(Requirement, own.requires or ())
        if (requirement.marker is None or requirement.marker.evaluate({"extra": ""}))
        and not _is_met(requirement, versions)
    ]
    if missing:
        message = (
            f"{code / REQUIREMENTS} is incomplete: {'; '.join(missing)}; lock the needed packages, too: "
            f"`uv pip compile --generate-hashes requirements.in -o {REQUIREMENTS}` finds them"
        )
        raise DeclarationError(message)


def _is_met(requirement: Requirement, versions: Mapping[str, str]) -> bool:
    version = versions.get(canonicalize_name(requirement.name))
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def _pack(packages: Path, archive: Path) -> None:
    """Pack the installed packages, without commands and compiled files."""
    shutil.rmtree(packages / "bin", ignore_errors=True)
    files = sorted(path for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc")
    pack(packages, files, archive)


def _fetch(code: Path, lock: Lock, folder: Path, scratch: Path) -> None:
    """Let Ivy fetch the jars, and compare their checksums."""
    from sluice_ops.site import ivy  # noqa: PLC0415 — drivers, which fetch nothing, start sooner

    with ivy.cache_alone():
        done = _run(ivy.retrieval([*lock.jars], folder / "jars", scratch), scratch)
    if done.returncode:
        reason = "; ".join(ivy.errors(done.stdout)) or done.stderr
        message = (
            f"Ivy cannot fetch the jars of {code / JARS}: {reason}; "
            "check group, artifact and version, the network, and Ivy's settings"
        )
        raise DeclarationError(message)
    if faults := faulty([*lock.jars], folder):
        listed = "; ".join(f"{jar.file} {fault}" for jar, fault in faults.items())
        message = (
            f"the fetched jars are not those of {code / JARS}: {listed}; correct the checksum in the lock, "
            f"or find out why the registry changed the file, and remove {ivy.cache()}"
        )
        raise DeclarationError(message)


def _run(command: Iterable[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            [*command], cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired as error:
        message = f"`{' '.join(command)}` took longer than {SECONDS:.0f} s and was ended; check the network"
        raise DeclarationError(message) from error
