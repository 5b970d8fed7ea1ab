"""Power loss at any moment, on a file system that loses unsynced data: what Sluice reported as kept
is complete.
"""

import hashlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest

from sluice import releases
from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.api.hooks import Hooks
from sluice.api.sink import Rows
from sluice.commands import tables
from sluice.driver.state.checkpoint_store import Folder
from sluice.driver.state.hook_state import InternalStates
from sluice.sinks.archive import Archive
from sluice.sinks.batches import Batch
from sluice.sinks.ledger import Ledger
from sluice.sinks.table import Once
from sluice_ops.model.tier import Kind
from sluice_ops.site.site_file import S3Config
from tests.database import database
from tests.power_loss import AVAILABLE, NEEDS, OUTCOMES, PowerLossDisk, power_loss_disk, restore

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(not AVAILABLE, reason=NEEDS)]
ROWS = 50


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[PowerLossDisk]:
    with power_loss_disk(tmp_path / "disk") as mounted:
        yield mounted


def homes_after_loss(disk: PowerLossDisk, folder: Path) -> Iterator[Path]:
    """Yield the homes that a power loss now would leave."""
    now = disk.moments()[-1]
    for outcome in OUTCOMES:
        restore(now[outcome], folder / outcome)
        yield folder / outcome


def test_the_file_system_loses_unsynced_data(disk: PowerLossDisk, tmp_path: Path) -> None:
    (disk.folder / "file").write_text("not synced")
    assert (disk.folder / "file").read_text() == "not synced"
    names, nothing = homes_after_loss(disk, tmp_path)
    assert [path.read_text() for path in names.iterdir()] == [""]
    assert list(nothing.iterdir()) == []


def test_a_release_is_complete_or_absent_and_survives_once_kept(disk: PowerLossDisk, tmp_path: Path) -> None:
    kept, is_new = releases.store(disk.folder, "hits", 1.0, dict)
    assert is_new
    seen = set()
    for number, moment in enumerate(disk.moments()):
        for outcome in OUTCOMES:
            home = tmp_path / f"{number}.{outcome}"
            restore(moment[outcome], home)
            known = releases.all_stored(home)
            seen.add(len(known))
            for release in known:
                (code,) = (releases.folder(home) / release.name / releases.CODE).iterdir()
                assert (release, releases.digest(code)) == (kept, kept.digest), (
                    f"after change {number}, {outcome}"
                )
    assert seen == {0, 1}
    assert [releases.all_stored(home) for home in homes_after_loss(disk, tmp_path / "at-last")] == [
        [kept],
        [kept],
    ]


def test_an_archive_file_survives_once_the_database_records_it(disk: PowerLossDisk, tmp_path: Path) -> None:
    table = Once("power", {"n": "bigint"}, archive="power")
    names = [f"0:{number}" for number in range(ROWS)]
    with database(tmp_path / "home") as address:
        tables.create(
            address,
            Pipeline((Tier("power", Kind.PROCESSING, (Stream("in"),), lambda records: records, sink=table),)),
        )
        with closing(Ledger(address, table.name, 1, table)) as ledger:
            ledger.write(
                Batch({"in/0": 0}, {"in/0": ROWS}),
                Rows({"n": list(range(ROWS))}, names, ["0"] * ROWS),
                epoch=1,
            )
        with closing(Archive(address, disk.folder, table.name, table, S3Config())) as archive:
            assert archive.write() == ROWS
        with psycopg.connect(address) as connection:
            assert connection.execute("select batch from archived where name = 'power'").fetchall() == [(0,)]
    for home in homes_after_loss(disk, tmp_path):
        (file,) = (home / "archive" / "power").glob("hour=*/*.parquet")
        assert sorted(pq.read_table(file).column("n").to_pylist()) == list(range(ROWS))


def test_hook_state_survives_once_a_receipt_may_name_it(disk: PowerLossDisk, tmp_path: Path) -> None:
    state = InternalStates(disk.folder / "internal" / "counts", Hooks()).leave(3, b"positions")
    assert state.sha256 == hashlib.sha256(b"positions").hexdigest()
    for home in homes_after_loss(disk, tmp_path):
        assert InternalStates(home / "internal" / "counts", Hooks()).read(state) == b"positions"


def test_a_checkpoint_is_synced_before_older_ones_are_removed(disk: PowerLossDisk, tmp_path: Path) -> None:
    depot = Folder(disk.folder / "checkpoints" / "by-user")
    depot.make("1.0")
    state = depot.path / "1.0" / "state" / "0" / "0"
    state.mkdir(parents=True)
    (state / "1.changelog").write_bytes(b"s" * 600)
    (state / ".1.changelog.crc").write_bytes(b"crc\0" + (512).to_bytes(4) + bytes(8))
    assert depot.is_whole("1.0/state/0/0/1.changelog")

    before_sync = [
        Folder(home / "checkpoints" / "by-user") for home in homes_after_loss(disk, tmp_path / "before")
    ]
    assert not any(folder.is_whole("1.0/state/0/0/1.changelog") for folder in before_sync), (
        "Spark does not sync its files"
    )
    depot.sync("1.0")
    after_sync = [
        Folder(home / "checkpoints" / "by-user") for home in homes_after_loss(disk, tmp_path / "after")
    ]
    assert all(folder.is_whole("1.0/state/0/0/1.changelog") for folder in after_sync)
