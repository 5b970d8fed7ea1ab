"""Checkpoint stores: folder and bucket behave the same, and a run begins with a whole checkpoint or
none.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from sluice.driver.state.checkpoint_store import Bucket, Depot, Folder, depot_of
from sluice.driver.state.checkpoints import Checkpoints, Code
from sluice.sinks.batches import LastBatch
from sluice_ops.site.site_file import S3Config, Site, SiteError, load

REGION = "eu-central-1"


@pytest.fixture(params=["folder", "bucket"])
def depot(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Depot]:
    if request.param == "folder":
        yield Folder(tmp_path / "checkpoints" / "by-user")
        return
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with mock_aws():
        client = boto3.client("s3", region_name=REGION)
        client.create_bucket(Bucket="kept", CreateBucketConfiguration={"LocationConstraint": REGION})
        client.put_bucket_versioning(Bucket="kept", VersioningConfiguration={"Status": "Enabled"})
        yield Bucket("s3a://kept/site/by-user", S3Config(region=REGION))


def test_a_folder_is_made_once_and_removed_with_its_content(depot: Depot) -> None:
    assert depot.folders() == []
    assert depot.make("1.0")
    assert not depot.make("1.0")
    assert depot.make("1.10")
    depot.write("1.0/metadata", "of it")
    depot.write("1.0/metadata", "of it, again")
    assert depot.read("1.0/metadata") == "of it, again"
    assert depot.names("1.0") == ["metadata"]
    assert sorted(depot.folders()) == ["1.0", "1.10"]
    depot.remove("1.0")
    depot.remove("1.0")
    assert depot.folders() == ["1.10"]
    assert depot.make("1.0")


def test_a_lent_file_outlives_its_source(depot: Depot) -> None:
    depot.make("1.0")
    depot.make("2.0")
    depot.write("1.0/metadata", "kept")
    depot.lend("1.0/metadata", "2.0/state/0/0/1.zip")
    depot.remove("1.0")
    assert depot.read("2.0/state/0/0/1.zip") == "kept"
    assert depot.names("2.0") == ["state/0/0/1.zip"]
    assert (depot.exists("2.0/state/0/0/1.zip"), depot.exists("1.0/metadata")) == (True, False)
    for missing in (lambda: depot.read("1.0/metadata"), lambda: depot.lend("1.0/metadata", "2.0/metadata")):
        with pytest.raises(FileNotFoundError):
            missing()


def batch(depot: Depot, run: str, number: int, *, end: int, partitions: int = 2) -> None:
    """Write the files of one Spark batch, as far as checkpoints read them."""
    settings = json.dumps({"conf": {"spark.sql.shuffle.partitions": str(partitions)}})
    logged = f"v1\n{settings}\n{json.dumps({'in': {'0': end}})}"
    files = {f"offsets/{number}": logged, f"commits/{number}": "v1\n{}"}
    files |= {
        f"state/0/{partition}/{number + 1}.changelog": f"{run} {number}" for partition in range(partitions)
    }
    for name, content in files.items():
        depot.write(f"{run}/{name}", content)


def ledger_batch(number: int, end: int) -> LastBatch:
    return LastBatch(number, {"in/0": end}, at=0.0, age=0.0)


def test_a_run_begins_with_the_newest_whole_checkpoint_and_its_own_query(depot: Depot) -> None:
    checkpoints = Checkpoints(depot)
    assert checkpoints.begin(1, []) == ("1.0", None)
    for number in range(3):
        batch(depot, "1.0", number, end=10 * number + 10)
    depot.write("1.0/metadata", "of the first")
    # the newest batch of the ledger was never committed, and the checkpoint before is not whole
    if isinstance(depot, Folder):
        (depot.path / "1.0/state/0/1/3.changelog").unlink()
    else:
        assert isinstance(depot, Bucket)
        depot._client.delete_object(Bucket="kept", Key="site/by-user/1.0/state/0/1/3.changelog")
    run, begun_from = checkpoints.begin(2, [ledger_batch(9, 40), ledger_batch(8, 30), ledger_batch(7, 20)])
    assert begun_from is not None
    assert (run, begun_from.number, begun_from.committed.batch, begun_from.committed.partitions) == (
        "2.0",
        7,
        1,
        2,
    )
    assert checkpoints.ends(run, 1) == {"in/0": 20}
    assert checkpoints.committed(run, 1)
    assert not checkpoints.committed(run, 2)
    assert checkpoints.manifest(run) is not None
    assert json.loads(depot.read("2.0/metadata")).keys() == {"id"}
    checkpoints.prune("2.0", others=True)
    assert depot.folders() == ["2.0"]
    assert depot.read("2.0/state/0/0/2.changelog") == "1.0 1"


@pytest.mark.parametrize("bytes_left", [0, 1])
def test_a_checkpoint_truncated_by_a_power_loss_is_skipped(tmp_path: Path, bytes_left: int) -> None:
    depot = Folder(tmp_path / "by-user")
    checkpoints = Checkpoints(depot)
    checkpoints.begin(1, [])
    for number in range(2):
        batch(depot, "1.0", number, end=10 * number + 10)
        file = depot.path / f"1.0/state/0/1/{number + 1}.changelog"
        file.write_bytes(b"s" * 600)
        file.with_name(f".{file.name}.crc").write_bytes(b"crc\0" + (512).to_bytes(4) + bytes(2 * 4))
    (depot.path / "1.0/state/0/1/2.changelog").write_bytes(b"s" * bytes_left)
    run, begun_from = checkpoints.begin(2, [ledger_batch(8, 20), ledger_batch(7, 10)])
    assert begun_from is not None
    assert (run, begun_from.number, begun_from.committed.batch) == ("2.0", 7, 0)


def test_a_checkpoint_of_code_with_other_state_is_not_used(depot: Depot) -> None:
    first_code, other_code = (
        Checkpoints(depot, Code("r1", ("Aggregate of who",))),
        Checkpoints(depot, Code("r2", ("Aggregate of who, at",))),
    )
    first_code.begin(1, [])
    batch(depot, "1.0", 0, end=10)
    assert other_code.begin(2, [ledger_batch(7, 10)])[1] is None
    for checkpoints in (first_code, Checkpoints(depot)):
        assert checkpoints.begin(3, [ledger_batch(7, 10)])[1] is not None


def test_checkpoints_of_the_same_code_come_before_those_of_tried_code(
    depot: Depot,
) -> None:
    good, bad = Checkpoints(depot, Code("r1")), Checkpoints(depot, Code("r2"))
    good.begin(1, [])
    batch(depot, "1.0", 0, end=10)
    _, begun_from = bad.begin(2, [ledger_batch(7, 10)])
    assert begun_from is not None
    batch(depot, "2.0", 1, end=20)
    bad.prune("2.0", others=False)
    assert depot.exists("1.0/commits/0"), "a rollback needs the checkpoint of the former code"
    for checkpoints, number in ((good, 7), (bad, 8), (Checkpoints(depot), 8)):
        _, begun_from = checkpoints.begin(3, [ledger_batch(8, 20), ledger_batch(7, 10)])
        assert begun_from is not None
        assert begun_from.number == number
    bad.prune("2.0", others=True)
    assert not depot.exists("1.0/commits/0")
    assert not depot.exists("made-by/1.0/code")


def test_absolute_paths_in_a_checkpoint_name_files_of_its_own_run(depot: Depot) -> None:
    checkpoints = Checkpoints(depot)
    checkpoints.begin(1, [])
    batch(depot, "1.0", 0, end=10)
    depot.write(
        "1.0/state/0/_metadata/v2/0",
        f'v2\n{{"paths": ["file:{depot.url("0.7")}/state/0/_stateSchema/default/0_a"]}}',
    )
    run, _ = checkpoints.begin(2, [ledger_batch(7, 10)])
    assert (
        depot.read(f"{run}/state/0/_metadata/v2/0")
        == f'v2\n{{"paths": ["file:{depot.url("2.0")}/state/0/_stateSchema/default/0_a"]}}'
    )
    assert depot.url("0.7") in depot.read("1.0/state/0/_metadata/v2/0")


@pytest.mark.parametrize("damaged", ["offsets/1", "commits/1"])
@pytest.mark.parametrize("content", ["", "v1", "v1\n{", 'v1\n{"conf": {'])
def test_a_checkpoint_with_a_damaged_log_is_skipped(depot: Depot, damaged: str, content: str) -> None:
    checkpoints = Checkpoints(depot)
    checkpoints.begin(1, [])
    for number in range(2):
        batch(depot, "1.0", number, end=10 * number + 10)
    depot.write(f"1.0/{damaged}", content)
    _, begun_from = checkpoints.begin(2, [ledger_batch(8, 20), ledger_batch(7, 10)])
    assert begun_from is not None
    assert begun_from.number == 7


def test_a_runs_own_checkpoint_is_continued_with_its_partition_count(depot: Depot) -> None:
    checkpoints = Checkpoints(depot)
    checkpoints.begin(1, [])
    batch(depot, "1.0", 0, end=10, partitions=4)
    batch(depot, "1.0", 1, end=10, partitions=2)
    for partition in range(2):
        depot.write(f"1.0/state/0/{partition}/2.zip", "anew")
    run, continued = checkpoints.go_on(1, "1.0")
    assert (run, continued.batch, continued.partitions) == ("1.1", 1, 2)
    assert not [name for name in depot.names("1.1") if name.startswith(("state/0/2", "state/0/3"))]


def test_the_site_file_chooses_the_place_of_checkpoints(tmp_path: Path) -> None:
    site = Site(pipeline="p", hosts=())
    assert depot_of("by-user", site, tmp_path).url("1.0") == str(tmp_path / "checkpoints" / "by-user" / "1.0")
    aws_store = depot_of("by-user", site.model_copy(update={"checkpoints": "s3a://kept/site/"}), tmp_path)
    assert aws_store.url("1.0") == "s3a://kept/site/by-user/1.0"
    assert "spark.hadoop.fs.s3a.endpoint" not in aws_store.session
    own_service = site.model_copy(
        update={"checkpoints": "s3a://kept", "s3": S3Config(endpoint="http://127.0.0.1:9000")}
    )
    assert (
        depot_of("by-user", own_service, tmp_path).session["spark.hadoop.fs.s3a.path.style.access"] == "true"
    )
    assert not [name for name in aws_store.session if "key" in name or "secret" in name]


@pytest.mark.parametrize(
    "address", ["s3://kept", "kept", "s3a://", "s3a://Kept/x", "s3a://kept/a b", "s3a://key:secret@kept/x"]
)
def test_an_address_that_is_no_folder_of_a_bucket_is_refused(tmp_path: Path, address: str) -> None:
    (tmp_path / "site.yaml").write_text(f"pipeline: p\nhosts: []\ncheckpoints: {address}\n")
    with pytest.raises(
        SiteError, match=r"checkpoints: .* is not a folder of a bucket: write it like s3a://bucket/folder"
    ):
        load(tmp_path / "site.yaml")
