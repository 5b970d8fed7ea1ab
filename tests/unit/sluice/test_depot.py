"""Where checkpoints are: a folder and a bucket do the same, and a run begins with all of a checkpoint or none of it."""

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


def test_a_folder_is_made_once_and_is_gone_with_all_that_is_in_it(depot: Depot) -> None:
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


def test_a_file_that_is_lent_outlives_the_one_that_it_was_made_of(depot: Depot) -> None:
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
    """Write what Spark does, in so far as it matters here."""
    logged = f"v1\n{json.dumps({'conf': {'spark.sql.shuffle.partitions': str(partitions)}})}\n{json.dumps({'in': {'0': end}})}"
    files = {f"offsets/{number}": logged, f"commits/{number}": "v1\n{}"}
    files |= {
        f"state/0/{partition}/{number + 1}.changelog": f"{run} {number}" for partition in range(partitions)
    }
    for name, content in files.items():
        depot.write(f"{run}/{name}", content)


def last(number: int, end: int) -> LastBatch:
    return LastBatch(number, {"in/0": end}, at=0.0, age=0.0)


def test_a_run_begins_with_the_newest_whole_checkpoint_and_its_own_query(depot: Depot) -> None:
    checkpoints = Checkpoints(depot)
    assert checkpoints.begin(1, []) == ("1.0", None)
    for number in range(3):
        batch(depot, "1.0", number, end=10 * number + 10)
    depot.write("1.0/metadata", "of the first")
    # the newest of the ledger was never committed, and the one before is not whole
    if isinstance(depot, Folder):
        (depot.path / "1.0/state/0/1/3.changelog").unlink()
    else:
        assert isinstance(depot, Bucket)
        depot._client.delete_object(Bucket="kept", Key="site/by-user/1.0/state/0/1/3.changelog")
    run, found = checkpoints.begin(2, [last(9, 40), last(8, 30), last(7, 20)])
    assert found is not None
    assert (run, found.number, found.committed.batch, found.committed.partitions) == ("2.0", 7, 1, 2)
    assert checkpoints.ends(run, 1) == {"in/0": 20}
    assert checkpoints.committed(run, 1)
    assert not checkpoints.committed(run, 2)
    assert checkpoints.manifest(run) is not None
    assert json.loads(depot.read("2.0/metadata")).keys() == {"id"}
    checkpoints.prune("2.0", others=True)
    assert depot.folders() == ["2.0"]
    assert depot.read("2.0/state/0/0/2.changelog") == "1.0 1"


@pytest.mark.parametrize("left", [0, 1])
def test_a_checkpoint_that_a_loss_of_power_has_cut_short_is_passed_over(tmp_path: Path, left: int) -> None:
    depot = Folder(tmp_path / "by-user")
    checkpoints = Checkpoints(depot)
    checkpoints.begin(1, [])
    for number in range(2):
        batch(depot, "1.0", number, end=10 * number + 10)
        file = depot.path / f"1.0/state/0/1/{number + 1}.changelog"
        file.write_bytes(b"s" * 600)
        file.with_name(f".{file.name}.crc").write_bytes(b"crc\0" + (512).to_bytes(4) + bytes(2 * 4))
    (depot.path / "1.0/state/0/1/2.changelog").write_bytes(b"s" * left)
    run, found = checkpoints.begin(2, [last(8, 20), last(7, 10)])
    assert found is not None
    assert (run, found.number, found.committed.batch) == ("2.0", 7, 0)


def test_a_checkpoint_of_code_that_held_something_else_is_not_begun_from(depot: Depot) -> None:
    one, other = (
        Checkpoints(depot, Code("r1", ("Aggregate of who",))),
        Checkpoints(depot, Code("r2", ("Aggregate of who, at",))),
    )
    one.begin(1, [])
    batch(depot, "1.0", 0, end=10)
    assert other.begin(2, [last(7, 10)])[1] is None
    for knows in (one, Checkpoints(depot)):
        assert knows.begin(3, [last(7, 10)])[1] is not None


def test_checkpoints_of_the_same_code_come_before_those_of_tried_code(
    depot: Depot,
) -> None:
    good, bad = Checkpoints(depot, Code("r1")), Checkpoints(depot, Code("r2"))
    good.begin(1, [])
    batch(depot, "1.0", 0, end=10)
    _, found = bad.begin(2, [last(7, 10)])
    assert found is not None
    batch(depot, "2.0", 1, end=20)
    bad.prune("2.0", others=False)
    assert depot.exists("1.0/commits/0"), "the way back"
    for checkpoints, number in ((good, 7), (bad, 8), (Checkpoints(depot), 8)):
        _, found = checkpoints.begin(3, [last(8, 20), last(7, 10)])
        assert found is not None
        assert found.number == number
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
    run, _ = checkpoints.begin(2, [last(7, 10)])
    assert (
        depot.read(f"{run}/state/0/_metadata/v2/0")
        == f'v2\n{{"paths": ["file:{depot.url("2.0")}/state/0/_stateSchema/default/0_a"]}}'
    )
    assert depot.url("0.7") in depot.read("1.0/state/0/_metadata/v2/0")


@pytest.mark.parametrize("damaged", ["offsets/1", "commits/1"])
@pytest.mark.parametrize("left", ["", "v1", "v1\n{", 'v1\n{"conf": {'])
def test_a_checkpoint_whose_log_is_damaged_is_passed_over(depot: Depot, damaged: str, left: str) -> None:
    checkpoints = Checkpoints(depot)
    checkpoints.begin(1, [])
    for number in range(2):
        batch(depot, "1.0", number, end=10 * number + 10)
    depot.write(f"1.0/{damaged}", left)
    _, found = checkpoints.begin(2, [last(8, 20), last(7, 10)])
    assert found is not None
    assert found.number == 7


def test_a_runs_own_checkpoint_is_continued_with_its_partition_count(depot: Depot) -> None:
    checkpoints = Checkpoints(depot)
    checkpoints.begin(1, [])
    batch(depot, "1.0", 0, end=10, partitions=4)
    batch(depot, "1.0", 1, end=10, partitions=2)
    for partition in range(2):
        depot.write(f"1.0/state/0/{partition}/2.zip", "anew")
    run, made = checkpoints.go_on(1, "1.0")
    assert (run, made.batch, made.partitions) == ("1.1", 1, 2)
    assert not [name for name in depot.names("1.1") if name.startswith(("state/0/2", "state/0/3"))]


def test_a_site_says_where_they_are(tmp_path: Path) -> None:
    known = Site(pipeline="p", hosts=())
    assert depot_of("by-user", known, tmp_path).url("1.0") == str(
        tmp_path / "checkpoints" / "by-user" / "1.0"
    )
    kept = depot_of("by-user", known.model_copy(update={"checkpoints": "s3a://kept/site/"}), tmp_path)
    assert kept.url("1.0") == "s3a://kept/site/by-user/1.0"
    assert "spark.hadoop.fs.s3a.endpoint" not in kept.session
    own = known.model_copy(
        update={"checkpoints": "s3a://kept", "s3": S3Config(endpoint="http://127.0.0.1:9000")}
    )
    assert depot_of("by-user", own, tmp_path).session["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert not [name for name in kept.session if "key" in name or "secret" in name]


@pytest.mark.parametrize(
    "wrong", ["s3://kept", "kept", "s3a://", "s3a://Kept/x", "s3a://kept/a b", "s3a://key:secret@kept/x"]
)
def test_what_is_no_folder_of_a_bucket_is_refused(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "site.yaml").write_text(f"pipeline: p\nhosts: []\ncheckpoints: {wrong}\n")
    with pytest.raises(
        SiteError, match=r"checkpoints: .* is not a folder of a bucket: write it like s3a://bucket/folder"
    ):
        load(tmp_path / "site.yaml")
