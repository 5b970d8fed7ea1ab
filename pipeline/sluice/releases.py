"""Releases on the disk that all hosts share: copies of the pipeline's package.

`publish` writes a release, and drivers import it. `<home>/releases/<name>/code/…` is the copy.
`environment/` beside it has the further packages and jars of the pipeline's lock files, if any
(decision 110). `release.json` describes the release (decision 21).

A process that can write in the shared folder can change both, so a driver trusts neither. The
driver copies the files to its own folder. It imports that copy only if the copy's digest is the
digest in the channel (decision 50).
"""

import atexit
import hashlib
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import MappingProxyType, ModuleType

from sluice import former_names
from sluice.api import declarations
from sluice.api.declarations import DeclarationError, Pipeline, pipeline_of
from sluice.dependencies import environment
from sluice.dependencies.build import Build, build, python_here
from sluice.dependencies.environment import ENVIRONMENT, Environment
from sluice_ops.model.ids import TierName
from sluice_ops.model.release import NAME, Release, TierShape, is_named, name_of, number_of
from sluice_ops.site.files import make_folders, sync, sync_tree

KEEP = 10
"""How many of the newest releases `prune` keeps, besides those in use."""
DESCRIPTION = "release.json"
CODE = "code"
PACKAGES = "packages"
BLOCK = 1 << 20
"""How many bytes of a file are in memory at once: packages of a release may have gigabytes."""
_own_folders: list[Path] = []


class ChangedError(Exception):
    """A release does not exist, or differs from the published one."""


@dataclass(frozen=True)
class Loaded:
    """Imported code, and the environment with which it runs."""

    pipeline: Pipeline
    environment: Environment | None = None


def folder(home: Path) -> Path:
    """Return the folder of all releases."""
    return home / "releases"


def place(home: Path, name: str) -> Path:
    """Return the folder of a release. ChangedError if the name is not the name of a release.

    Another name might lead out of the folder.
    """
    if NAME.fullmatch(name) is None:
        message = f"{name!r} is no name of a release; a release is named like r7-3f9a2c1b"
        raise ChangedError(message)
    return folder(home) / name


def source(module: str) -> Path:
    """Return the package's folder, or the module's file, that a release of `module` copies."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # the package that would contain the module does not exist
        spec = None
    if spec is None or spec.origin is None:
        message = (
            f"pipeline {module!r}: Python finds no files of this module, so no release can be made; "
            "correct the pipeline's name in the site file"
        )
        raise DeclarationError(message)
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)


def _files(code: Path) -> list[Path]:
    """Return the files of a package or module, without Python's compiled files."""
    if code.is_file():
        return [code]
    return sorted(path for path in code.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def digest(code: Path) -> str:
    """Return the hash of all files and their names."""
    hashed = hashlib.sha256()
    for path in _files(code):
        name = str(path.relative_to(code.parent)).encode()
        hashed.update(b"%d:%s%d:" % (len(name), name, path.stat().st_size))
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                hashed.update(block)
    return hashed.hexdigest()


def _digest_of(code: Path, folder: Path | None) -> str:
    """Return the digest of a release: of its code, and of its environment in `folder` if any."""
    of_code = digest(code)
    if folder is None:
        return of_code
    return hashlib.sha256(f"{of_code} {digest(folder)}".encode()).hexdigest()


def current_digest(module: str) -> str:
    """Return the digest that a release of the present code has; build its environment if needed."""
    code = source(module)
    built = build(code)
    return _digest_of(code, None if built is None else built.folder)


def load_current(module: str) -> Loaded:
    """Import the present code, with the packages of its lock files.

    DeclarationError if the module is missing, fails or has no pipeline, or a lock is refused.
    """
    try:
        code = source(module)
    except DeclarationError:  # the import tells more
        return Loaded(declarations.load(module))
    built = build(code)
    used = None if built is None else environment.use(built.folder, _own_folder() / PACKAGES)
    return Loaded(declarations.load(module), used)


def all_stored(home: Path) -> list[Release]:
    """Return the stored releases, the oldest first.

    A folder is ignored if its name differs from the name in its `release.json`.
    """
    files = [path for path in folder(home).glob(f"r*/{DESCRIPTION}") if NAME.fullmatch(path.parent.name)]
    stored = (
        (path.parent.name, Release.model_validate_json(path.read_text(), extra="allow")) for path in files
    )
    named = (release for name, release in stored if name == release.name)
    return sorted(named, key=lambda release: release.number)


def of_current_code(home: Path, module: str) -> Release | None:
    """Return the stored release of the present code; None if the code was never published."""
    return _with_digest(all_stored(home), module, current_digest(module))


def _with_digest(releases: Iterable[Release], module: str, hashed: str) -> Release | None:
    return next(
        (release for release in releases if (release.module, release.digest) == (module, hashed)), None
    )


def store(  # noqa: PLR0913 - the parts of a release
    home: Path,
    module: str,
    now: float,
    shapes: Callable[[], dict[TierName, TierShape]],
    checked: str | None = None,
    *,
    schemas: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Release, bool]:
    """Return the release of the present code, and whether it is new.

    `shapes` is called only for a new release. `schemas` are the ids of schemas by stream.
    ChangedError if the digest of the code is not `checked`, or if its release has other ids. After
    the return, the release survives a loss of power.
    """
    code, hashed = source(module), current_digest(module)
    built, stored = build(code), all_stored(home)
    if checked not in {None, hashed}:
        raise ChangedError(_changed(code))
    same_digest = [release for release in stored if release.digest == hashed]
    same_code = _with_digest((each for each in same_digest if _intact(home, each)), module, hashed)
    if same_code is not None:
        if same_code.schemas != schemas:
            raise ChangedError(_other_ids(same_code, schemas))
        sync(folder(home))  # the process that published it may have died before it synced
        return same_code, False
    number = max((release.number for release in stored), default=0) + 1
    release = Release(
        name=name_of(number, hashed),
        module=module,
        digest=hashed,
        published_at=now,
        tiers=shapes(),
        schemas=dict(schemas),
        environment=None if built is None else built.contents,
    )
    make_folders(folder(home))
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder(home)))
    try:
        _copy(code, partial / CODE)
        if built is not None:
            _add_environment(home, built, partial, stored)
        if _digest_of(partial / CODE / code.name, _environment_of(partial)) != hashed:
            raise ChangedError(_changed(code))
        (partial / DESCRIPTION).write_text(release.model_dump_json(indent=1))
        partial.chmod(0o755)
        sync_tree(partial)
        partial.rename(folder(home) / release.name)
        is_new = True
    except OSError:
        if not (folder(home) / release.name).exists():
            raise
        is_new = False  # another process has published the same code meanwhile
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    sync(folder(home))
    return release, is_new


def _intact(home: Path, release: Release) -> bool:
    """Tell whether the stored copy still has the digest of its release."""
    try:
        return (
            is_named(release.name, release.digest)
            and _digest_of(_code_of(place(home, release.name)), _environment_of(place(home, release.name)))
            == release.digest
        )
    except (OSError, StopIteration):
        return False


def _add_environment(home: Path, built: Build, partial: Path, stored: Iterable[Release]) -> None:
    """Add an environment to a new release, which shares the files of an earlier release with it."""
    size, wanted = built.contents.bytes, digest(built.folder)
    same_size = [each for each in stored if each.environment is not None and each.environment.bytes == size]
    folders = (_environment_of(place(home, release.name)) for release in same_size)
    earlier = next((folder for folder in folders if folder is not None and digest(folder) == wanted), None)
    if earlier is not None:
        with suppress(OSError):  # a file system without hard links
            _copy(earlier, partial, os.link)
            return
    _copy(built.folder, partial)


def _copy(source_path: Path, into: Path, copy: Callable[[Path, Path], object] = shutil.copyfile) -> Path:
    """Copy a file, or a folder without compiled files, into another folder; return the copy."""
    for path in _files(source_path):
        target = into / path.relative_to(source_path.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        copy(path, target)
    return into / source_path.name


def _code_of(release_folder: Path) -> Path:
    return next((release_folder / CODE).iterdir())


def _environment_of(release_folder: Path) -> Path | None:
    folder = release_folder / ENVIRONMENT
    return folder if folder.exists() else None


def _changed(code: Path) -> str:
    return f"{code} was changed while it was published; publish again: `sluice publish`"


def _other_ids(release: Release, schemas: Mapping[str, int]) -> str:
    return (
        f"the schema registry gives the schemas the ids {dict(schemas)}, but release {release.name}, with "
        f"the same code, writes {release.schemas}: the registry is another one, or has lost its schemas; "
        "name the right registry in the site file, or change the pipeline (a comment is enough), then run "
        "`sluice publish` again, and upgrade the tiers"
    )


def state_of(release: Release, tier: str) -> tuple[str, ...] | None:
    """Return a tier's stateful operators in a release; None if unknown or without state. Pure."""
    shape = release.tiers.get(TierName(tier))
    return None if shape is None or shape.state is None else shape.state.operators or None


def prune(home: Path, used: Collection[str]) -> list[str]:
    """Delete old releases that nothing uses, and return their names."""
    unused = [release.name for release in all_stored(home)[:-KEEP] if release.name not in used]
    for name in unused:
        shutil.rmtree(place(home, name))
    return sorted(unused, key=number_of)


def load(home: Path, name: str, release: Release | None) -> Loaded:
    """Import the code of a release under its module's name, with the packages of its environment.

    `release` is the description in the channel. ChangedError if the shared folder has other code,
    or none, or if this host's Python cannot run the packages. Spark's Python workers would import
    other code under the same name, so cloudpickle sends them the code itself.
    """
    from pyspark import cloudpickle  # noqa: PLC0415 — to publish unchanged code needs no Spark

    release_folder = place(home, name)
    if release is None or not is_named(name, release.digest):
        message = (
            f"release {name} is not in the channel, so its code cannot be verified; publish the code "
            "(`sluice publish`), and `sluice upgrade` the tier to that release"
        )
        raise ChangedError(message)
    try:
        code, own = _own_copy(release_folder)
    except (OSError, StopIteration) as error:
        message = (
            f"release {name} is not in {folder(home)}: {error or 'the release has no code'}; "
            "all hosts must share this folder; mount it on this host, or publish again"
        )
        raise ChangedError(message) from error
    if _digest_of(code, own) != release.digest:
        message = (
            f"release {name} in {folder(home)} was changed after it was published, and is not run; find "
            "out which user or process changed it; then publish the right code "
            "(`sluice publish`), and `sluice upgrade` the tier to that release"
        )
        raise ChangedError(message)
    if former_names.are_used(path.read_text() for path in _files(code) if path.suffix == ".py"):
        former_names.provide()
    _refuse_other_python(release)
    used = None if own is None else environment.use(own, own.parent / PACKAGES)
    module = _import(release.module, code)
    cloudpickle.register_pickle_by_value(module)
    return Loaded(pipeline_of(module, release.module), used)


def _own_folder() -> Path:
    _own_folders.append(own := Path(tempfile.mkdtemp(prefix="release-")))
    return own


@atexit.register
def remove_own_folders() -> None:
    """Remove the folders from which this process imports. Call it before an `exec`, which ends no
    Python.
    """
    for own in _own_folders:
        shutil.rmtree(own, ignore_errors=True)


def _own_copy(release_folder: Path) -> tuple[Path, Path | None]:
    """Copy a release to a folder of this process; return the copies of its code and environment.

    Other hosts cannot write there, so the files that are checked are the files that are used. The
    copy has no compiled files.
    """
    own = _own_folder()
    folder = _environment_of(release_folder)
    return _copy(_code_of(release_folder), own / CODE), None if folder is None else _copy(folder, own)


def _refuse_other_python(release: Release) -> None:
    here, contents = python_here(), release.environment
    if contents is not None and contents.python not in {None, here}:
        message = (
            f"release {release.name} has packages that were compiled for {contents.python}, and this host "
            f"has {here}; publish with the Python of the hosts, or install that Python on this host"
        )
        raise ChangedError(message)


def _import(name: str, code: Path) -> ModuleType:
    is_package = code.is_dir()
    spec = spec_from_file_location(
        name,
        code / "__init__.py" if is_package else code,
        submodule_search_locations=[str(code)] if is_package else None,
    )
    assert spec is not None  # noqa: S101 — both are Python files
    assert spec.loader is not None  # noqa: S101
    parent, _, leaf = name.rpartition(".")
    for loaded in _loaded_modules(name):
        del sys.modules[loaded]
    module = sys.modules[name] = module_from_spec(spec)
    if parent:
        setattr(importlib.import_module(parent), leaf, module)
    spec.loader.exec_module(module)
    return module


def _loaded_modules(package: str) -> Iterable[str]:
    """Return the loaded modules of a package, with the package itself."""
    return [name for name in sys.modules if name == package or name.startswith(f"{package}.")]
