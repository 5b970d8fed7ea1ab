"""Files that outlive a crash and a loss of power: written beside, synced, renamed, and their folder synced (decision record 0049)."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def sync(path: Path) -> None:
    """Return once a file's content, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Return once a folder and all below it are on the disk; what is removed meanwhile is left out."""
    for path in (*folder.rglob("*"), folder):
        with suppress(FileNotFoundError):
            sync(path)


def make_folders(path: Path) -> None:
    """Make a folder and those above it that are not there; once this has returned, they outlive a loss of power."""
    missing = [each for each in path.parents if not each.exists()]
    for folder in (
        *reversed(missing),
        path,
    ):  # `path` in any case: whoever made it may have died before syncing
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield where to write a file, so that readers, a crash or a loss of power find the old one or the new one.

    Once the block has ended, it is the new one. Where the block raises, nothing has changed.
    """
    make_folders(path.parent)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        sync(unfinished)
        unfinished.replace(path)
        sync(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, so that readers, a crash or a loss of power find the old one or the new one.

    Once this has returned, it is the new one.
    """
    if not path.parent.exists():
        make_folders(path.parent)
    descriptor, written = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(written).replace(path)
    except OSError:
        Path(written).unlink()
        raise
    sync(path.parent)
