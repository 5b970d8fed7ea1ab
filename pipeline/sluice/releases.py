"""Releases on the disk that all hosts share: a copy of the pipeline's package each, kept by `publish`, imported by drivers.

`<home>/releases/<name>/code/…` is the copy, and `release.json` beside it says what others rely on of it (decision record 0021).
Whoever can write in the shared folder can change both, so a driver trusts neither. It copies the files to a folder of its own, and
imports that copy only if its digest is the one in the channel (decision record 0050).
"""

import atexit
import hashlib
import importlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from sluice import former_names
from sluice.api.declarations import DeclarationError, Pipeline, pipeline_of
from sluice_ops.model.ids import TierName
from sluice_ops.model.release import NAME, Release, TierShape, is_named, name_of, number_of
from sluice_ops.site.files import make_folders, sync, sync_tree

KEEP = 10
"""How many of the newest are kept, besides those that are in use."""
SAID = "release.json"
CODE = "code"


class ChangedError(Exception):
    """A release is not what it was when it was published, or does not exist."""


def folder(home: Path) -> Path:
    """Return where the releases are."""
    return home / "releases"


def place(home: Path, name: str) -> Path:
    """Return the folder of a release; ChangedError where its name is none, and might lead elsewhere."""
    if NAME.fullmatch(name) is None:
        message = f"{name!r} is no name of a release: those are like r7-3f9a2c1b"
        raise ChangedError(message)
    return folder(home) / name


def source(module: str) -> Path:
    """Return the package's folder, or the module's file, that a release of `module` is a copy of."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # what it is in
        spec = None
    if spec is None or spec.origin is None:
        message = f"pipeline {module!r}: it has no files of its own to make a release of"
        raise DeclarationError(message)
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)


def _files(code: Path) -> list[Path]:
    """Name the files of a package or a module, without what Python has compiled."""
    if code.is_file():
        return [code]
    return sorted(path for path in code.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def digest(code: Path) -> str:
    """Return the hash of all files, with their names."""
    found = hashlib.sha256()
    for path in _files(code):
        name, content = str(path.relative_to(code.parent)).encode(), path.read_bytes()
        found.update(b"%d:%s%d:%s" % (len(name), name, len(content), content))
    return found.hexdigest()


def known(home: Path) -> list[Release]:
    """Return the releases that are kept, the oldest first; a folder that is not called as its release is none."""
    files = [path for path in folder(home).glob(f"r*/{SAID}") if NAME.fullmatch(path.parent.name)]
    kept = (
        (path.parent.name, Release.model_validate_json(path.read_text(), extra="allow")) for path in files
    )
    return sorted((release for name, release in kept if name == release.name), key=lambda each: each.number)


def same(home: Path, module: str) -> Release | None:
    """Return the release of the code as it is now, if there is one."""
    return _of(known(home), module, digest(source(module)))


def _of(there: Iterable[Release], module: str, hashed: str) -> Release | None:
    return next((release for release in there if (release.module, release.digest) == (module, hashed)), None)


def keep(
    home: Path,
    module: str,
    now: float,
    shapes: Callable[[], dict[TierName, TierShape]],
    checked: str | None = None,
) -> tuple[Release, bool]:
    """Return the release of the code as it is now, and whether it is a new one; `shapes` is asked only then.

    Code that is no longer what was `checked`, as its hash tells, is not kept. Once this has returned, the release outlives a loss of power.
    """
    code = source(module)
    there, hashed = known(home), digest(code)
    if checked not in {None, hashed}:
        raise ChangedError(_changed(code))
    found = _of([each for each in there if _intact(home, each)], module, hashed)
    if found is not None:
        sync(folder(home))  # whoever published it may have died before syncing
        return found, False
    number = max((release.number for release in there), default=0) + 1
    release = Release(
        name=name_of(number, hashed), module=module, digest=hashed, published_at=now, tiers=shapes()
    )
    make_folders(folder(home))
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder(home)))
    try:
        for path in _files(code):
            target = partial / CODE / path.relative_to(code.parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        if digest(partial / CODE / code.name) != hashed:
            raise ChangedError(_changed(code))
        (partial / SAID).write_text(release.model_dump_json(indent=1))
        partial.chmod(0o755)
        sync_tree(partial)
        partial.rename(folder(home) / release.name)
        is_new = True
    except OSError:
        if not (folder(home) / release.name).exists():
            raise
        is_new = False  # another has published the same meanwhile
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    sync(folder(home))
    return release, is_new


def _intact(home: Path, release: Release) -> bool:
    """Tell whether the copy is still what its release says."""
    try:
        return (
            is_named(release.name, release.digest)
            and digest(_code_of(place(home, release.name))) == release.digest
        )
    except (OSError, StopIteration):
        return False


def _code_of(at: Path) -> Path:
    return next((at / CODE).iterdir())


def _changed(code: Path) -> str:
    return f"{code} was changed while it was published; publish again"


def state_of(release: Release, tier: str) -> tuple[str, ...] | None:
    """Return what a tier of a release holds in Spark, operator by operator; None where nobody knows. Pure."""
    shape = release.tiers.get(TierName(tier))
    return None if shape is None or shape.state is None else shape.state.operators or None


def prune(home: Path, used: Collection[str]) -> list[str]:
    """Remove old releases that nothing uses, and return their names."""
    gone = [release.name for release in known(home)[:-KEEP] if release.name not in used]
    for name in gone:
        shutil.rmtree(place(home, name))
    return sorted(gone, key=number_of)


def load(home: Path, name: str, release: Release | None) -> Pipeline:
    """Import a release's code in the place of what Python finds under its name, and return its `PIPELINE`.

    `release` is what the channel says of it. ChangedError: the shared folder has other code, or none. Spark's Python workers
    would find the other code under that name, so they get the code with what refers to it.
    """
    from pyspark import cloudpickle  # noqa: PLC0415 — publishing code that is known needs no Spark

    at = place(home, name)
    if release is None or not is_named(name, release.digest):
        message = f"release {name} is not in the channel, so nobody knows which code it is: publish, and `sluice upgrade` to that"
        raise ChangedError(message)
    try:
        code = _own_copy(_code_of(at))
    except (OSError, StopIteration) as error:
        message = f"release {name} is not in {folder(home)}, which all hosts have to share: {error or 'it has no code'}"
        raise ChangedError(message) from error
    if digest(code) != release.digest:
        message = (
            f"release {name} in {folder(home)} was changed after it was published, and is not run: find out by whom; "
            "then publish the code that is wanted, and `sluice upgrade` to it"
        )
        raise ChangedError(message)
    if former_names.are_used(path.read_text() for path in _files(code) if path.suffix == ".py"):
        former_names.provide()
    made = _import(release.module, code)
    cloudpickle.register_pickle_by_value(made)
    return pipeline_of(made, release.module)


def _own_copy(code: Path) -> Path:
    """Copy the files to where no other host writes: what is looked at is what is imported, with no compiled files beside it."""
    own = Path(tempfile.mkdtemp(prefix="release-"))
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    for path in _files(code):
        target = own / path.relative_to(code.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return own / code.name


def _import(module: str, code: Path) -> ModuleType:
    package = code.is_dir()
    spec = spec_from_file_location(
        module,
        code / "__init__.py" if package else code,
        submodule_search_locations=[str(code)] if package else None,
    )
    assert spec is not None  # noqa: S101 — both are Python files
    assert spec.loader is not None  # noqa: S101
    parent, _, leaf = module.rpartition(".")
    for loaded in _below(module):
        del sys.modules[loaded]
    made = sys.modules[module] = module_from_spec(spec)
    if parent:
        setattr(importlib.import_module(parent), leaf, made)
    spec.loader.exec_module(made)
    return made


def _below(module: str) -> Iterable[str]:
    """Name what is loaded of a package already, itself included."""
    return [name for name in sys.modules if name == module or name.startswith(f"{module}.")]
