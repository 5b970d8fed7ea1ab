"""Followed log files: each line is read once, through rotations and kills of the source."""

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.ingest.followed_files import SETTLE_SECONDS, FollowedFiles, Position

LINE_BYTES = 1_000


class Source:
    """A source that keeps its positions as Kafka would: only those of committed batches."""

    def __init__(self, *patterns: Path, start: float = 1_000_000.0) -> None:
        self.patterns, self.now = [str(pattern) for pattern in patterns], start
        self.positions: dict[str, Position] = {}
        self.lines: list[str] = []
        self.files = self.opened()

    def opened(self) -> FollowedFiles:
        return FollowedFiles(
            self.patterns,
            self.positions.values(),
            line_bytes=LINE_BYTES,
            clock=lambda: self.now,
            wall_clock=lambda: self.now,
        )

    def kill(self) -> None:
        self.files.close()
        self.files = self.opened()

    def step(self, most: int = 1 << 20, *, commits: bool = True) -> list[str]:
        """Look, read, and commit or not; return the lines."""
        self.files.look()
        batch = self.files.read(most)
        read = [line.value.decode() for line in batch.lines]
        if commits:
            for identity, position in batch.positions.items():
                if position is None:
                    del self.positions[identity]
                else:
                    self.positions[identity] = Position.model_validate_json(position.model_dump_json())
            self.lines += read
            self.files.done(batch)
        return read

    def settle(self) -> list[str]:
        """Read all that comes when nothing changes any more."""
        before = len(self.lines)
        for _ in range(4):
            self.step()
            self.now += SETTLE_SECONDS
        return self.lines[before:]


def write(path: Path, text: str, mode: str = "a") -> None:
    with path.open(mode) as file:
        file.write(text)


BANNER = "#" * 300 + "\n"
STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 40)),
    st.tuples(st.just("torn"), st.just(0)),
    st.tuples(st.just("rename"), st.just(0)),
    st.tuples(st.just("copytruncate"), st.integers(0, 2)),
    st.tuples(st.just("read"), st.sampled_from((60, 1 << 20))),
    st.tuples(st.just("read, then die"), st.integers(0, 1)),
    st.tuples(st.just("wait"), st.sampled_from((1, 11))),
)


class Log:
    """A program that writes numbered lines, and a rotation that keeps all files."""

    def __init__(self, path: Path, banner: str) -> None:
        self.path, self.banner = path, banner
        self.number, self.is_torn, self.rotations, self.begun = 0, False, 0, 0
        self.begin()

    def begin(self) -> None:
        self.begun += 1
        write(self.path, self.banner)

    def put(self, count: int) -> None:
        for _ in range(count):
            write(self.path, ("" if self.is_torn else f"line {self.number}") + f" of many {self.number}\n")
            self.number, self.is_torn = self.number + 1, False

    def tear(self) -> None:
        if not self.is_torn:
            write(self.path, f"line {self.number}")
            self.is_torn = True

    def rotated(self) -> Path:
        if self.is_torn:
            self.put(1)
        self.rotations += 1
        return self.path.with_name(f"{self.path.name}.{self.rotations}")

    def rename(self) -> None:
        self.path.rename(self.rotated())
        self.begin()

    def copy(self) -> None:
        shutil.copy(self.path, self.rotated())

    def truncate(self) -> None:
        write(self.path, "", "w")
        self.begin()


@settings(deadline=None, max_examples=200)
@given(st.lists(STEPS, max_size=25), st.sampled_from(("", BANNER)), st.sampled_from(("app.log", "app.log*")))
def test_each_line_is_read_once_despite_rotations_and_kills(
    steps: list[tuple[str, int]], banner: str, pattern: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder, "app.log"), banner)
        source = Source(Path(folder, pattern))
        source.step()
        for name, number in steps:
            if name == "write":
                log.put(number)
            elif name == "torn":
                log.tear()
            elif name in {"rename", "copytruncate"}:
                if pattern == "app.log":
                    log.put(1)
                    source.settle()  # a file that was never read under its name cannot be known
                if name == "rename":
                    log.rename()
                else:
                    log.copy()
                    for _ in range(number):
                        source.step()
                    log.truncate()
            elif name == "read":
                source.step(number)
            elif name == "read, then die":
                source.step(commits=bool(number))
                source.kill()
            else:
                source.now += number
        log.put(1)
        source.settle()
        assert Counter(source.lines) == Counter(
            [f"line {number} of many {number}" for number in range(log.number)]
            + [banner.strip()] * (log.begun if banner else 0)
        )
        source.files.close()


def test_a_torn_last_line_waits_for_its_end(tmp_path: Path) -> None:
    write(log := tmp_path / "a.log", "one\ntw")
    source = Source(tmp_path / "*.log")
    assert source.settle() == ["one"]
    write(log, "o\n")
    assert source.step() == ["two"]


def test_a_rotated_file_gives_its_last_line_without_end(tmp_path: Path) -> None:
    write(log := tmp_path / "a.log", "one\ntw")
    source = Source(tmp_path / "a.log")
    source.step()
    log.rename(tmp_path / "a.log.1")
    assert source.step() == []
    assert source.settle() == ["tw"]


def test_a_removed_file_is_read_to_its_end(tmp_path: Path) -> None:
    write(log := tmp_path / "a.log", "one\n")
    source = Source(tmp_path / "a.log")
    source.step()
    write(log, "two\nthr")
    log.unlink()
    assert source.settle() == ["two", "thr"]
    assert source.files.open_files == 0


def test_lines_written_before_a_copy_was_truncated_are_not_read_again(tmp_path: Path) -> None:
    write(log := tmp_path / "a.log", "one\n" * 50)
    source = Source(tmp_path / "a.log*")
    source.step()
    shutil.copy(log, tmp_path / "a.log.1")
    write(log, "after the copy\n")
    assert source.step() == ["after the copy"]
    write(log, "new\n", "w")
    assert source.settle() == ["new"]


def test_a_file_with_the_inode_of_a_removed_one_is_new(tmp_path: Path) -> None:
    write(log := tmp_path / "a.log", "one\ntwo\n")
    source = Source(tmp_path / "a.log")
    source.step()
    source.files.close()
    write(log, "other\nlines\nthan before\n", "w")
    source.kill()
    assert source.step() == ["other", "lines", "than before"]


def test_two_files_with_equal_beginnings_are_both_read(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        write(tmp_path / name, BANNER)
    source = Source(tmp_path / "*.log")
    source.settle()
    write(tmp_path / "a.log", "of a\n")
    write(tmp_path / "b.log", "of b\n")
    assert source.step() == ["of a", "of b"] or source.lines[-2:] == ["of b", "of a"]
    assert source.lines.count(BANNER.strip()) == 2


def test_a_file_that_matches_no_pattern_is_read_only_as_a_continuation(tmp_path: Path) -> None:
    write(tmp_path / "a.log", "one\n")
    write(tmp_path / "other.txt", "no\n")
    source = Source(tmp_path / "a.log")
    source.settle()
    (tmp_path / "a.log").rename(tmp_path / "kept.txt")
    source.kill()
    write(tmp_path / "kept.txt", "two\n")
    assert source.settle() == ["two"]
    assert source.lines == ["one", "two"]


def test_a_file_that_resembles_another_is_read_also_if_renamed_soon(tmp_path: Path) -> None:
    write(log := tmp_path / "a.log", f"{BANNER}one\n")
    source = Source(tmp_path / "a.log")
    source.settle()
    log.rename(tmp_path / "a.log.1")
    write(log, BANNER)
    assert source.step() == []
    log.rename(tmp_path / "a.log.2")
    write(tmp_path / "a.log.2", "two\n")
    assert source.settle() == [BANNER.strip(), "two"]


def test_a_line_that_is_too_long_becomes_pieces_and_loses_nothing(tmp_path: Path) -> None:
    text = "".join(str(number) for number in range(1000))
    write(tmp_path / "a.log", f"{text}\nnext\n")
    source = Source(tmp_path / "a.log")
    *pieces, after = source.settle()
    assert ("".join(pieces), after) == (text, "next")
    write(tmp_path / "a.log", text)
    assert source.step() == [text[:LINE_BYTES]]
    write(tmp_path / "a.log", "x" * LINE_BYTES + "\r\n")
    assert max(map(len, source.settle())) == LINE_BYTES


def test_only_a_line_feed_ends_a_line_and_bytes_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"a\x0bb\x85\r\n\n  \r\n\xff\xfe c\rd\n")
    source = Source(tmp_path / "a.log")
    source.files.look()
    lines = source.files.read(1 << 20).lines
    assert [(line.offset, line.value) for line in lines] == [(0, b"a\x0bb\x85"), (11, b"\xff\xfe c\rd")]


@pytest.mark.parametrize("name", ["a.log.gz", "a.log.zst"])
def test_a_compressed_file_is_not_read(tmp_path: Path, name: str) -> None:
    magic = {"gz": b"\x1f\x8b", "zst": b"\x28\xb5\x2f\xfd"}[name.rpartition(".")[2]]
    (tmp_path / name).write_bytes(magic + b"\nline\n")
    assert Source(tmp_path / "*").settle() == []


def test_the_position_of_a_file_that_is_gone_is_forgotten_after_a_day(tmp_path: Path) -> None:
    write(log := tmp_path / "a.log", "one\n")
    source = Source(tmp_path / "a.log")
    source.settle()
    log.unlink()
    source.settle()
    assert len(source.positions) == 1
    source.now += 90_000
    source.step()
    assert source.positions == {}


def test_folders_and_pipes_are_not_files(tmp_path: Path) -> None:
    (tmp_path / "a.log").mkdir()
    os.mkfifo(tmp_path / "b.log")
    assert Source(tmp_path / "*.log").settle() == []


def test_a_small_reading_limit_takes_each_file_in_turn(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        write(tmp_path / name, f"{name}\n")
    source = Source(tmp_path / "*.log")
    assert {*source.step(1), *source.step(1)} == {"a.log", "b.log"}
