"""A log is read in parts without a gap, also over its rotation."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sluice_ops.process.log_files import last_lines, log_files, text_after

LARGE = "x" * 1000
"""A log is long when it is rotated, and nobody writes as much until the next look."""


@given(
    st.lists(st.tuples(st.text(alphabet="a\n", max_size=30), st.booleans()), max_size=12),
    st.integers(1, 40),
)
def test_parts_of_a_growing_log_join_to_what_was_written(appended: list[tuple[str, bool]], most: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.touch()
        _, position = last_lines(path, 0)
        shown = written = ""
        for text, rotates in appended:
            added = text + LARGE if rotates else text
            written += added
            with path.open("a") as file:
                file.write(added)
            part, position = text_after(path, position, -1 if rotates else most)
            shown += part
            if rotates:
                shutil.copyfile(path, Path(folder) / "log.1")
                path.write_text("")
                assert text_after(path, position) == ("", 0)
                position = 0
        while (rest := text_after(path, position, most))[0]:
            shown, position = shown + rest[0], rest[1]
        assert shown == written


def test_lines_before_a_rotation_that_nobody_has_read_come_first(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("1\n2\n")
    _, position = last_lines(path, 5)
    with path.open("a") as file:
        file.write("3\n")
    shutil.copyfile(path, tmp_path / "log.1")
    path.write_text("4\n")
    assert text_after(path, position) == ("3\n4\n", 2)


def test_a_limited_part_ends_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\nthree\n")
    assert text_after(path, 0, 9) == ("one\ntwo\n", 8)
    assert text_after(path, 8, 3) == ("thr", 11), "a line that is longer comes in pieces"


def test_a_log_that_is_gone_has_nothing_more(tmp_path: Path) -> None:
    assert text_after(tmp_path / "log", 9) == ("", 9)


def test_the_last_executor_of_a_slot_has_a_log(tmp_path: Path) -> None:
    work = tmp_path / "units" / "slot-counts-3-0" / "scratch" / "work" / "app-1"
    for number in (0, 1):
        (work / str(number)).mkdir(parents=True)
        (work / str(number) / "stderr").write_text("started\n")
        os.utime(work / str(number) / "stderr", (number, number))
    (tmp_path / "units" / "slot-counts-3-0" / "log").write_text("a Worker\n")
    assert log_files(tmp_path) == {
        "slot-counts-3-0": tmp_path / "units" / "slot-counts-3-0" / "log",
        "slot-counts-3-0/executor": work / "1" / "stderr",
    }
