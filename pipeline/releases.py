"""Releases on the disk that all hosts share: a copy of the pipeline's package each, kept by `publish`, imported by drivers.

`<home>/releases/<name>/code/…` is the copy, and `release.json` beside it says what others rely on of it (decision record 0021).
"""

import hashlib
import importlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from ops.files import make_folders, sync, sync_tree
from ops.model.ids import TierName
from ops.model.release import Release, TierShape, number_of
from pipeline.declare import DeclarationError, Pipeline, pipeline_of

KEEP = 10
"""How many of the newest are kept, besides those that are in use."""
DIGITS = 8
SAID = "release.json"
CODE = "code"


class ChangedError(Exception):
    """A release is not what it was when it was published, or is not there."""


def folder(home: Path) -> Path:
    """Return where the releases are."""
    return home / "releases"


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
    """Return the releases that there are, the oldest first."""
    said = (path.read_text() for path in folder(home).glob(f"r*/{SAID}"))
    return sorted((Release.model_validate_json(text, extra="allow") for text in said), key=lambda each: each.number)


def same(home: Path, module: str) -> Release | None:
    """Return the release of the code as it is now, if there is one."""
    return _of(known(home), module, digest(source(module)))


def _of(there: Iterable[Release], module: str, hashed: str) -> Release | None:
    return next((release for release in there if (release.module, release.digest) == (module, hashed)), None)


def keep(
    home: Path, module: str, now: float, shapes: Callable[[], dict[TierName, TierShape]], checked: str | None = None
) -> tuple[Release, bool]:
    """Return the release of the code as it is now, and whether it is a new one; `shapes` is asked only then.

    Code that is no longer what was `checked`, as its hash tells, is not kept. Once this has returned, the release outlives a loss of power.
    """
    code = source(module)
    there, hashed = known(home), digest(code)
    if checked not in {None, hashed}:
        raise ChangedError(_changed(code))
    if (found := _of(there, module, hashed)) is not None:
        sync(folder(home))  # whoever published it may have died before syncing
        return found, False
    number = max((release.number for release in there), default=0) + 1
    release = Release(name=f"r{number}-{hashed[:DIGITS]}", module=module, digest=hashed, published_at=now, tiers=shapes())
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


def _changed(code: Path) -> str:
    return f"{code} was changed while it was published; publish again"


def state_of(home: Path, name: str, tier: str) -> tuple[str, ...] | None:
    """Return what a tier of a release holds in Spark, operator by operator; None where nobody knows."""
    shape = _said(home, name).tiers.get(TierName(tier))
    return None if shape is None or shape.state is None else shape.state.operators or None


def prune(home: Path, used: Collection[str]) -> list[str]:
    """Remove old releases that nothing uses, and return their names."""
    gone = [release.name for release in known(home)[:-KEEP] if release.name not in used]
    for name in gone:
        shutil.rmtree(folder(home) / name)
    return sorted(gone, key=number_of)


def load(home: Path, name: str) -> Pipeline:
    """Import a release's code in the place of what Python finds under its name, and return its `PIPELINE`.

    Spark's Python workers would find the other under that name, so they get the code with what refers to it.
    """
    from pyspark import cloudpickle  # noqa: PLC0415 — publishing code that is known needs no Spark

    at = folder(home) / name
    try:
        release = _said(home, name)
        code = next(iter((at / CODE).iterdir()))
        hashed = digest(code)
    except (OSError, StopIteration) as error:
        message = f"release {name} is not in {folder(home)}, which all hosts have to share: {error or 'it has no code'}"
        raise ChangedError(message) from error
    if hashed != release.digest:
        message = f"release {name} in {folder(home)} was changed after it was published; publish the code that is wanted, and upgrade"
        raise ChangedError(message)
    made = _import(release.module, code)
    cloudpickle.register_pickle_by_value(made)
    return pipeline_of(made, release.module)


def _said(home: Path, name: str) -> Release:
    return Release.model_validate_json((folder(home) / name / SAID).read_text(), extra="allow")


def _import(module: str, code: Path) -> ModuleType:
    package = code.is_dir()
    spec = spec_from_file_location(
        module, code / "__init__.py" if package else code, submodule_search_locations=[str(code)] if package else None
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
