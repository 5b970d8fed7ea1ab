"""Which lines of growing and rotated files are new. Files are known by inode and by content.

- A file that was renamed keeps its inode, and its position.
- A file that was copied and truncated (logrotate's `copytruncate`): the copy has the content that
  was read, so the position moves to the copy. The truncated file begins anew.
- A file whose inode was used again has other content, and begins anew.

`Position` remembers a file's first bytes, and digests of the bytes before some offsets.
"""

import glob
import hashlib
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

import structlog

from sluice_ops.model.resources import Frozen
from sluice_ops.model.source import FileFigures

log = structlog.get_logger()

HEAD_BYTES = 128
"""A position remembers so many first bytes of its file."""
WINDOW_BYTES = 1024
"""A digest covers so many bytes before its offset."""
RECENT = 8
"""A position remembers the digests of so many last reads.

A copy may end before the last read, because the writer went on while the file was copied.
"""
CHUNK_BYTES = 1024 * 1024
"""The longest read from one file at a time."""
SETTLE_SECONDS = 10.0
"""After this time without a change, a file counts as complete."""
FORGET_SECONDS = 86_400.0
"""The position of a file that is gone is forgotten after this time."""
COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ", b"PK\x03\x04")
"""The first bytes of gzip, zstd, bzip2, xz and zip."""

Inode = tuple[int, int]
"""Device and inode."""


class Mark(NamedTuple):
    """A place in a file, and the digest of the bytes before it."""

    offset: int
    digest: str


class Position(Frozen):
    """How far a file was read."""

    identity: str
    """Names the file in the header `source` of each record; does not change."""
    device: int
    inode: int
    path: str
    """Where the file was found first."""
    head: str
    """The first bytes, hexadecimal."""
    early: tuple[Mark, ...] = ()
    """Marks at powers of two. They tell soon that two files with equal beginnings differ."""
    recent: tuple[Mark, ...] = ()
    """Marks at the ends of the last reads."""
    gone: float | None = None
    """When the file disappeared. Unit: epoch seconds."""

    @property
    def offset(self) -> int:
        """Everything before it was read."""
        return self.recent[-1].offset if self.recent else 0


class Line(NamedTuple):
    """A line without its end."""

    file: str
    """`Position.identity`."""
    offset: int
    """Where the line begins."""
    value: bytes


class _Likeness(Enum):
    OTHER = auto()
    MAYBE = auto()
    """What there is of the file is equal, and too short to tell."""
    SAME = auto()


@dataclass(eq=False)
class _File:
    """A file, or a content whose file is gone (`descriptor` is None)."""

    position: Position
    descriptor: int | None = None
    before: bytes = b""
    """The bytes before the offset, as many as a digest covers."""
    size: int = 0
    changed: float = 0.0
    """When the size was seen to change. Monotonic clock."""
    moved: bool = False
    """Whether the file has another name than at first, or none: its writer has left it."""
    saved: Position | None = None
    """The position as it was last remembered outside."""
    cut_at: float | None = None
    """When the file was truncated, until a copy of it is found. Monotonic clock."""

    @property
    def inode(self) -> Inode:
        return self.position.device, self.position.inode


class _Seen(NamedTuple):
    """A file that is not read yet, as it was last seen."""

    size: int
    mtime_ns: int
    since: float
    """Unchanged since then. Monotonic clock."""
    path: str
    is_matched: bool
    """Whether a pattern has matched a name of the file."""


class _Part(NamedTuple):
    """What a batch reads of one file."""

    file: _File
    position: Position
    before: bytes


@dataclass
class Batch:
    """New lines, and the positions after them."""

    lines: list[Line] = field(default_factory=list)
    positions: dict[str, Position | None] = field(default_factory=dict)
    """The changed positions by identity; None: forget the position."""
    parts: list[_Part] = field(default_factory=list)
    forgotten: list[_File] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lines or self.positions)


class FollowedFiles:
    """The files that match patterns, and those that continue them under another name.

    A renamed or copied file is also found in the same folder if no pattern matches its name.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        positions: Iterable[Position],
        *,
        line_bytes: int,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        """Continue from remembered positions. A longer line is cut into pieces of `line_bytes`."""
        self._patterns = [os.path.abspath(pattern) for pattern in patterns]  # noqa: PTH100 — keeps the pattern
        self._line_bytes, self._clock, self._wall_clock = line_bytes, clock, wall_clock
        self._files = [_File(position, saved=position) for position in positions]
        self._waiting: dict[Inode, _Seen] = {}
        self._complaints: set[tuple[str, str]] = set()
        self._first = 0

    # -- looking

    def look(self) -> None:
        """Find new, renamed, copied, truncated and removed files."""
        now, matched = self._clock(), self._matched()
        self._check_open(matched, now)
        nearby = self._nearby() | matched
        opened = {file.inode for file in self._files if file.descriptor is not None}
        for file in self._files:
            if file.descriptor is None and file.inode in nearby.keys() - opened:
                self._find_again(file, nearby[file.inode], now)
        opened = {file.inode for file in self._files if file.descriptor is not None}
        others = {inode: path for inode, path in nearby.items() if inode not in opened}
        self._waiting = {inode: seen for inode, seen in self._waiting.items() if inode in others}
        for inode, path in sorted(others.items(), key=lambda other: other[1]):
            self._look_at(inode, path, now, is_matched=inode in matched)
        # the longest first: a copy before another file with an equal beginning
        for inode, seen in sorted(self._waiting.items(), key=lambda other: -other[1].size):
            self._judge(inode, seen, now)
        for file in self._files:
            file.moved = matched.get(file.inode) != file.position.path
        self._report_cut(now)

    def _matched(self) -> dict[Inode, str]:
        """Return the regular files that match a pattern."""
        return _regular(
            path
            for pattern in self._patterns
            for path in glob.iglob(pattern, recursive=True)  # noqa: PTH207 — Path.glob takes no absolute pattern
        )

    def _nearby(self) -> dict[Inode, str]:
        """Return the files where a known content, or a file that waits, may have another name."""
        folders = {Path(file.position.path).parent for file in self._files if file.descriptor is None}
        folders |= {Path(seen.path).parent for seen in self._waiting.values() if seen.is_matched}
        paths: list[str] = []
        for folder in sorted(folders):
            with suppress(OSError):
                paths += [entry.path for entry in os.scandir(folder)]
        return _regular(paths)

    def _check_open(self, matched: dict[Inode, str], now: float) -> None:
        """Let go of files that were truncated, or are gone and read to the end."""
        for file in [file for file in self._files if file.descriptor is not None]:
            assert file.descriptor is not None  # noqa: S101 — selected above
            size = os.fstat(file.descriptor).st_size
            if size != file.size:
                file.size, file.changed = size, now
            offset = file.position.offset
            if size < offset or _before(file.descriptor, offset) != file.before:
                file.cut_at = now
                self._let_go(file)
            elif file.inode not in matched and offset == size and now - file.changed >= SETTLE_SECONDS:
                self._let_go(file)

    def _let_go(self, file: _File) -> None:
        assert file.descriptor is not None  # noqa: S101 — only open files
        os.close(file.descriptor)
        file.descriptor = None
        if file.position.offset:
            file.position = file.position.model_copy(update={"gone": self._wall_clock()})
        else:
            self._files.remove(file)

    def _find_again(self, file: _File, path: str, now: float) -> None:
        """Open a known file if it still has the content that was read."""
        descriptor = self._open(file.inode, path)
        if descriptor is None:
            return
        size, mark = os.fstat(descriptor).st_size, file.position.recent[-1]
        if size < mark.offset or _digest(_before(descriptor, mark.offset)) != mark.digest:
            os.close(descriptor)
            return
        self._attach(file, descriptor, size, now)
        file.position = file.position.model_copy(update={"gone": None})

    def _attach(self, file: _File, descriptor: int, size: int, now: float) -> None:
        file.descriptor, file.size, file.changed, file.cut_at = descriptor, size, now, None
        file.before = _before(descriptor, file.position.offset)

    def _look_at(self, inode: Inode, path: str, now: float, *, is_matched: bool) -> None:
        """Note the size of a file that is not read yet, and whether it changes."""
        with suppress(FileNotFoundError):
            about = os.stat(path)  # noqa: PTH116 — as in _regular
            seen = self._waiting.get(inode)
            is_matched = is_matched or (seen is not None and seen.is_matched)
            is_same = seen is not None and (seen.size, seen.mtime_ns) == (about.st_size, about.st_mtime_ns)
            since = seen.since if seen is not None and is_same else now
            self._waiting[inode] = _Seen(about.st_size, about.st_mtime_ns, since, path, is_matched)

    def _judge(self, inode: Inode, seen: _Seen, now: float) -> None:
        """Decide whether a file is a copy of a known content or new. Wait while this is unclear."""
        descriptor = self._open(inode, seen.path) if seen.size else None
        if descriptor is None:
            return
        is_settled = now - seen.since >= SETTLE_SECONDS
        likeness = [(self._likeness(file, descriptor, seen.size), file) for file in self._files]
        copied = max(
            (
                file
                for like, file in likeness
                if like is _Likeness.SAME
                and file.descriptor is None
                and (is_settled or file.position.offset <= seen.size)
            ),
            key=lambda file: file.position.offset,
            default=None,
        )
        if copied is not None:
            self._continue(copied, inode, descriptor, seen.size, now)
        elif (
            not seen.is_matched
            or (not is_settled and any(like is not _Likeness.OTHER for like, _ in likeness))
            or self._is_compressed(descriptor, seen.path)
        ):
            os.close(descriptor)
        else:
            identity = f"{inode[1]:x}-{uuid.uuid4().hex[:12]}"  # inodes are used again
            position = Position(identity=identity, device=inode[0], inode=inode[1], path=seen.path, head="")
            self._files.append(file := _File(position))
            self._attach(file, descriptor, seen.size, now)

    def _likeness(self, file: _File, descriptor: int, size: int) -> _Likeness:
        """Compare a file with a known content.

        A shorter file is the same only if it ends where one of the last reads did, or later.
        """
        head = (
            bytes.fromhex(file.position.head)
            if file.descriptor is None
            else os.pread(file.descriptor, HEAD_BYTES, 0)
        )
        other = os.pread(descriptor, HEAD_BYTES, 0)
        common = min(len(head), len(other))
        if not head or head[:common] != other[:common]:
            return _Likeness.OTHER
        marks = [mark for mark in (*file.position.early, *file.position.recent) if mark.offset <= size]
        last = max(marks, default=None)
        if last is None:
            return _Likeness.MAYBE
        if _digest(_before(descriptor, last.offset)) != last.digest:
            return _Likeness.OTHER
        return _Likeness.SAME if last in file.position.recent else _Likeness.MAYBE

    def _continue(self, file: _File, inode: Inode, descriptor: int, size: int, now: float) -> None:
        """Move a position to the copy of its file."""
        offset = min(size, file.position.offset)
        early, recent = (
            tuple(mark for mark in marks if mark.offset < offset)
            for marks in (file.position.early, file.position.recent)
        )
        end = Mark(offset, _digest(_before(descriptor, offset)))
        place = {"device": inode[0], "inode": inode[1], "gone": None}
        file.position = file.position.model_copy(update={**place, "early": early, "recent": (*recent, end)})
        self._attach(file, descriptor, size, now)

    def _open(self, inode: Inode, path: str) -> int | None:
        """Open a file; None if it cannot be read, or another one has its name now."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain(path, f"the file cannot be read, and is tried again: {error.strerror}")
            return None
        about = os.fstat(descriptor)
        if (about.st_dev, about.st_ino) != inode:
            os.close(descriptor)
            return None
        return descriptor

    def _is_compressed(self, descriptor: int, path: str) -> bool:
        if not os.pread(descriptor, 8, 0).startswith(COMPRESSED):
            return False
        self._complain(path, "the file is compressed and is not read; exclude it from the pattern")
        return True

    def _complain(self, path: str, why: str) -> None:
        if (path, why) not in self._complaints:
            self._complaints.add((path, why))
            log.warning(why, file=path)

    def _report_cut(self, now: float) -> None:
        for file in self._files:
            if file.cut_at is not None and now - file.cut_at >= 2 * SETTLE_SECONDS:
                file.cut_at = None
                log.warning(
                    "the file was truncated, and no copy of it was found in its folder; "
                    "if it had lines after this offset, they were not read",
                    file=file.position.path,
                    offset=file.position.offset,
                )

    # -- reading

    def read(self, most_bytes: int) -> Batch:
        """Return new lines, about `most_bytes`. `done` takes the batch as read."""
        batch, count = Batch(), 0
        self._first += 1  # each file comes first in turn
        turn = self._first % max(1, len(self._files))
        for file in (*self._files[turn:], *self._files[:turn]):
            position = file.position
            if file.descriptor is not None and count < most_bytes:
                data = self._read(file)
                if data:
                    count += len(data)
                    batch.lines += self._lines(position, data)
                    position = _after(position, file.before, data)
                    batch.parts.append(_Part(file, position, (file.before + data)[-WINDOW_BYTES:]))
            if position.gone is not None and self._wall_clock() - position.gone > FORGET_SECONDS:
                batch.forgotten.append(file)
                batch.positions[position.identity] = None
            elif position.offset and position != file.saved:
                batch.positions[position.identity] = position
        return batch

    def done(self, batch: Batch) -> None:
        """Take a batch as read: its lines and positions are remembered outside."""
        for file, position, before in batch.parts:
            file.position, file.before = position, before
        for file in self._files:
            file.saved = batch.positions.get(file.position.identity) or file.saved
        for file in batch.forgotten:
            self._files.remove(file)

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            if file.descriptor is not None:
                os.close(file.descriptor)
        self._files.clear()

    @property
    def open_files(self) -> int:
        """The number of files that are followed."""
        return sum(file.descriptor is not None for file in list(self._files))

    @property
    def unread_bytes(self) -> int:
        """The bytes of these files that were not read, as of the last look. For any thread."""
        files = list(self._files)
        return sum(max(0, file.size - file.position.offset) for file in files if file.descriptor is not None)

    def positions(self, most: int) -> tuple[FileFigures, ...]:
        """Return how far the files are read, of the `most` with the most unread bytes. For any
        thread.
        """
        figures = [
            FileFigures(path=file.position.path, offset=offset, unread=max(0, file.size - offset))
            for file in list(self._files)
            if file.descriptor is not None
            for offset in (file.position.offset,)
        ]
        return tuple(sorted(figures, key=lambda each: (-each.unread, each.path))[:most])

    def _read(self, file: _File) -> bytes:
        """Return whole lines; of a file that its writer has left, also a last line without end."""
        assert file.descriptor is not None  # noqa: S101 — only open files
        start = file.position.offset - len(file.before)
        data = os.pread(file.descriptor, len(file.before) + CHUNK_BYTES, start)
        if not data.startswith(file.before):
            return b""  # truncated since the last look; the next look sees it
        data = data[len(file.before) :]
        if end := data.rfind(b"\n") + 1:
            return data[:end]
        if len(data) > self._line_bytes + len(b"\r\n"):
            return data[: self._line_bytes]
        is_left = file.moved and self._clock() - file.changed >= SETTLE_SECONDS
        return data if is_left and file.position.offset + len(data) == file.size else b""

    def _lines(self, position: Position, data: bytes) -> Iterator[Line]:
        """Yield the lines that are not blank."""
        offset = position.offset
        for line in _split(data):
            length = len(line.rstrip(b"\r\n"))
            if length > self._line_bytes or length == self._line_bytes == len(line):
                log.warning(
                    "a line is too long for a record and is cut into pieces",
                    file=position.path,
                    offset=offset,
                    piece=self._line_bytes,
                )
            for begin in range(0, len(line), self._line_bytes):
                piece = line[begin : begin + self._line_bytes].rstrip(b"\r\n")
                if piece.strip():
                    yield Line(position.identity, offset + begin, piece)
            offset += len(line)


def _split(data: bytes) -> Iterator[bytes]:
    """Yield the lines with their ends. Only a line feed ends a line."""
    *lines, rest = data.split(b"\n")
    yield from (line + b"\n" for line in lines)
    if rest:
        yield rest


def _regular(paths: Iterable[str]) -> dict[Inode, str]:
    """Return the regular files among these, with the first name of each."""
    paths_by_inode: dict[Inode, str] = {}
    for path in paths:
        with suppress(OSError):
            about = os.stat(path)  # noqa: PTH116 — a Path for each file of each look is slow
            if stat.S_ISREG(about.st_mode):
                paths_by_inode.setdefault((about.st_dev, about.st_ino), path)
    return paths_by_inode


def _before(descriptor: int, offset: int) -> bytes:
    """Return the bytes before an offset, as many as a digest covers."""
    begin = max(0, offset - WINDOW_BYTES)
    return os.pread(descriptor, offset - begin, begin)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _after(position: Position, before: bytes, data: bytes) -> Position:
    """Return the position after these bytes, which follow the bytes `before`."""
    known, start = before + data, position.offset - len(before)
    end = position.offset + len(data)
    powers = (1 << power for power in range(position.offset.bit_length(), end.bit_length()))
    early = [
        Mark(place, _digest(known[max(0, place - start - WINDOW_BYTES) : place - start]))
        for place in powers
        if position.offset < place <= end and place >= HEAD_BYTES
    ]
    head = bytes.fromhex(position.head)
    if position.offset < HEAD_BYTES:
        head = (head + data)[:HEAD_BYTES]
    recent = (*position.recent, Mark(end, _digest(known[-WINDOW_BYTES:])))[-RECENT:]
    return position.model_copy(
        update={"head": head.hex(), "early": (*position.early, *early), "recent": recent}
    )
