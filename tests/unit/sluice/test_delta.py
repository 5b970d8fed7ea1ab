"""Commits to a Delta table: each batch once, whoever writes it and whenever."""

import deltalake
import pyarrow as pa
import pytest

from sluice.sinks.delta import DeltaAwayError, DeltaCommits
from sluice_ops.site.site_file import S3Config

HOUR = "2026-11-30-09"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "archive" / "clicks"


def writer(tmp_path):
    return DeltaCommits("clicks", "clicks", tmp_path, S3Config(), 10.0)


def rows(*numbers):
    return {HOUR: pa.table({"n": pa.array(numbers, pa.int64())})}


def held(folder):
    return sorted(deltalake.DeltaTable(str(folder)).to_pyarrow_table()["n"].to_pylist())


def test_a_round_is_one_commit_and_is_committed_once(tmp_path, folder):
    two_hours = rows(1, 2) | {"2026-11-30-10": pa.table({"n": pa.array([3], pa.int64())})}
    assert writer(tmp_path).append(two_hours, 0, 4) == 3
    assert writer(tmp_path).append(two_hours, 0, 4) == 3, "a writer after a crash finds the commit"
    assert writer(tmp_path).append(rows(4), 5, 5) == 1
    assert held(folder) == [1, 2, 3, 4]
    assert deltalake.DeltaTable(str(folder)).version() == 2, "the table was made, then two commits"
    assert {path.parent.name for path in folder.rglob("*.parquet")} == {f"hour={HOUR}", "hour=2026-11-30-10"}


@pytest.mark.parametrize("earlier", [True, False])
def test_of_two_writers_at_the_same_time_one_commits(tmp_path, folder, monkeypatch, earlier):
    if earlier:
        writer(tmp_path).append(rows(1), 0, 0)
    write = deltalake.write_deltalake

    def overtaken(*args, **options):
        monkeypatch.setattr(deltalake, "write_deltalake", write)
        writer(tmp_path).append(rows(2), 1, 1)
        write(*args, **options)

    monkeypatch.setattr(deltalake, "write_deltalake", overtaken)
    with pytest.raises(DeltaAwayError, match="takes no commit"):
        writer(tmp_path).append(rows(2), 1, 1)
    assert held(folder) == [*([1] if earlier else []), 2]


def test_others_may_write_to_the_table_and_a_new_column_is_added(tmp_path, folder):
    writer(tmp_path).append(rows(1), 0, 0)
    others = pa.table({"n": pa.array([9], pa.int64()), "hour": [HOUR]})
    deltalake.write_deltalake(str(folder), others, mode="append")
    wider = {HOUR: pa.table({"n": pa.array([2], pa.int64()), "page": ["/"]})}
    assert writer(tmp_path).append(wider, 1, 1) == 1
    table = deltalake.DeltaTable(str(folder)).to_pyarrow_table()
    assert {row["n"]: row["page"] for row in table.to_pylist()} == {1: None, 2: "/", 9: None}


@pytest.mark.parametrize(("first", "last"), [(0, 2), (1, 2), (2, 9)])
def test_a_ledger_that_went_back_loses_and_doubles_no_record(tmp_path, folder, first, last):
    writer(tmp_path).append(rows(1, 2), 0, 4)
    with pytest.raises(DeltaAwayError, match="takes no commit: it has batch 4 of this sink"):
        writer(tmp_path).append(rows(3), first, last)
    assert held(folder) == [1, 2]


def test_the_files_of_a_commit_are_synced_also_by_the_writer_after_a_crash(tmp_path, folder, monkeypatch):
    synced = []
    monkeypatch.setattr("sluice.sinks.delta.sync", synced.append)
    for _ in range(2):
        synced.clear()
        writer(tmp_path).append(rows(1), 0, 0)
        (file,) = folder.rglob("*.parquet")
        log = folder / "_delta_log"
        assert {file, file.parent, log / f"{1:020d}.json", log, folder} <= {*synced}


def test_a_folder_that_cannot_be_written_is_named(tmp_path, folder):
    folder.parent.mkdir()
    folder.write_text("a file")
    with pytest.raises(OSError, match="clicks"):
        writer(tmp_path).append(rows(1), 0, 0)
