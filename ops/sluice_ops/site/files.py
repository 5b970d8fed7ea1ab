"""Write files so that a crash or a power loss leaves the old file or the new one (decision 49).

A file is written under another name, synced and renamed; then its folder is synced.
"""

import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

WRITTEN_AT = (1980, 1, 1, 0, 0, 0)
"""The time of all files in an archive, which does not depend on when it is packed."""


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Flush a folder and everything below it to the disk; skip files that disappear meanwhile."""
    for path in (*folder.rglob("*"), folder):
        with suppress(FileNotFoundError):
            sync(path)


def make_folders(path: Path) -> None:
    """Create a folder and its missing parents, which then survive a power loss."""
    missing = [parent for parent in path.parents if not parent.exists()]
    # sync `path` even if it exists: its creator may have died before the sync
    for folder in (*reversed(missing), path):
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; replace `path` with it at the end of the block.

    Readers see the old file or the new one, also after a crash or a power loss. After the block,
    they see the new one. If the block raises, `path` is unchanged.
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


def pack(folder: Path, files: Iterable[Path], archive: Path) -> None:
    """Pack files of a folder into a zip archive; equal files make an equal archive."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in files:
            entry = zipfile.ZipInfo(str(path.relative_to(folder)), WRITTEN_AT)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            packed.writestr(entry, path.read_bytes())


def write_private(path: Path, text: str) -> None:
    """Replace a file with one that only its owner can read.

    Readers see the old file or the new one, also after a crash or a power loss. After the return,
    they see the new one.
    """
    if not path.parent.exists():
        make_folders(path.parent)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink()
        raise
    sync(path.parent)
