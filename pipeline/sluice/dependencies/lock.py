"""The two lock files of a pipeline: `requirements.lock` and `jars.lock` in its package.

Each line names an exact version and its checksums, so an environment is the same bytes wherever it
is built.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from sluice.api.declarations import DeclarationError
from sluice_ops.site.jars import Jar

REQUIREMENTS = "requirements.lock"
JARS = "jars.lock"
FOLDER = "release"
"""The folder of a release's jars, beside those that Sluice's own lock names."""

_HASH = re.compile(r"\s--hash=\w+:[0-9a-f]+")
_OTHER_FILES = re.compile(r"(-r|--requirement|-c|--constraint|-e|--editable)\b")
_JAR = re.compile(r"(?P<organisation>[\w.-]+):(?P<name>[\w.-]+):(?P<revision>\w[\w.-]*)")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Package:
    """One locked package."""

    name: str
    """In lower case, with `-` between words."""
    version: str
    line: str
    """The requirement with its checksums, as pip reads it."""


@dataclass(frozen=True)
class Lock:
    """What the lock files of a pipeline name, for this machine."""

    packages: tuple[Package, ...] = ()
    options: tuple[str, ...] = ()
    """Lines for pip, such as `--find-links ../wheels`."""
    jars: tuple[Jar, ...] = ()


def read(code: Path) -> Lock:
    """Read the lock files in a pipeline's package; a missing file names nothing.

    Raise DeclarationError if a line leaves a version or a checksum open.
    """
    requirements, jars = code / REQUIREMENTS, code / JARS
    options, packages = list[str](), list[Package]()
    for number, line in _logical_lines(requirements) if requirements.is_file() else ():
        if line.startswith("-"):
            if _OTHER_FILES.match(line):
                raise _error(requirements, number, line, "names another file, which the lock does not fix")
            options.append(line)
        elif (package := _package(requirements, number, line)) is not None:
            packages.append(package)
    return Lock(
        tuple(packages),
        tuple(options),
        tuple(_jar(jars, number, line) for number, line in (_logical_lines(jars) if jars.is_file() else ())),
    )


def _logical_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield lines with their number, without comments; a backslash joins a line to the next one."""
    joined, first = "", 0
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        first = first if joined else number
        if text.endswith("\\"):
            joined += f"{text[:-1].strip()} "
            continue
        if joined or text:
            yield first, f"{joined}{text}".strip()
        joined = ""
    if joined:
        yield first, joined.strip()


def _package(path: Path, number: int, line: str) -> Package | None:
    """Return the package of a line, or None if its marker leaves out this machine."""
    text = line.partition(" --hash=")[0].strip()
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise _error(path, number, line, "is no requirement that pip can read") from error
    pins = list(requirement.specifier)
    if requirement.url or [pin.operator for pin in pins] != ["=="] or pins[0].version.endswith(".*"):
        raise _error(path, number, text, "names no exact version")
    if not _HASH.search(line):
        raise _error(path, number, text, "has no checksum")
    if requirement.marker is not None and not requirement.marker.evaluate():
        return None
    return Package(canonicalize_name(requirement.name), pins[0].version, line)


def _error(path: Path, number: int, line: str, fault: str) -> DeclarationError:
    return DeclarationError(
        f"{path}, line {number}: {line} {fault}, so hosts could get other files than you tested; write the "
        f"file with `uv pip compile --generate-hashes requirements.in -o {path.name}`, or with pip-compile"
    )


def _jar(path: Path, number: int, line: str) -> Jar:
    coordinates, _, checksum = line.partition(" ")
    named = _JAR.fullmatch(coordinates)
    if named is None:
        fault = "names no exact version"
    elif not _SHA256.fullmatch(checksum.strip()):
        fault = "has no checksum"
    else:
        return Jar(FOLDER, named["organisation"], named["name"], named["revision"], checksum.strip())
    message = (
        f"{path}, line {number}: {line} {fault}; write `group:artifact:version SHA256`, with the 64 digits "
        "that `sha256sum` prints for the jar"
    )
    raise DeclarationError(message)
