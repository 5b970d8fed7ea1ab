"""Checkpoints in an S3 bucket: a tier with state starts, moves to another host, is killed and
restarts, from S3 alone.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from sluice.driver.state.checkpoint_store import depot_of
from sluice_ops.doctor import bucket
from sluice_ops.doctor.finding import Verdict
from sluice_ops.model.incarnation import State
from sluice_ops.site.site_file import load
from tests.integration.sluice.state_feed import (
    Feed,
    assert_windows,
    ends,
    equation,
    feeding,
    sums,
    table,
    windows,
)
from tests.integration.sluice.stateful_runs import (
    PIPELINE_MODULE,
    SAVEPOINT,
    Runs,
    local_session,
    overtake,
)
from tests.lab import Lab, free_ports, until

__all__ = ["PIPELINE_MODULE"]
BUCKET, REGION, TIER, RATE = "kept", "eu-central-1", "by-window", 100
pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serve S3 with a versioned bucket; yield the site file's lines for it."""
    (port,) = free_ports(1)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    address = f"http://127.0.0.1:{port}"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "never-in-a-file-of-ours")
        client = boto3.client("s3", endpoint_url=address, region_name=REGION)
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        yield (
            f"hosts: []\ncheckpoints: s3a://{BUCKET}/site\ns3: {{endpoint: '{address}', region: {REGION}}}\n"
        )
    server.stop()


def incarnations(lab: Lab) -> list[str]:
    """Return the incarnation of each run with a checkpoint in the bucket."""
    runs = depot_of(TIER, load(lab.home / "site.yaml"), lab.home).folders()
    return [run.partition(".")[0] for run in runs]


def test_the_doctor_checks_the_bucket_and_its_old_versions(lab: Lab) -> None:
    site = load(lab.home / "site.yaml")
    assert [finding.verdict for finding in bucket.check(site)] == [Verdict.OK, Verdict.NOTE]
    (missing,) = bucket.check(site.model_copy(update={"checkpoints": "s3a://another/site"}))
    assert (missing.verdict, "has no bucket another" in missing.sentence) == (Verdict.BAD, True)


@pytest.mark.parametrize(
    ("tier", "table_name", "keys", "expected"), [(TIER, "windows", 2, windows), ("summed", "sums", 1, sums)]
)
def test_a_state_is_handed_over_repartitioned_and_taken_back_in_a_bucket(
    lab: Lab,
    feed: Feed,
    tier: str,
    table_name: str,
    keys: int,
    expected: Callable[[list[dict[str, Any]]], dict[Any, Any]],
) -> None:
    """For Spark's own state, and for a tier's own state (`transformWithState`)."""
    depot = depot_of(tier, load(lab.home / "site.yaml"), lab.home)
    with local_session(lab, depot) as session:
        runs = Runs(lab, session, tier, 1, 1, depot)
        first = runs.start(1)
        for _ in range(2):
            feed.hits(150)
            runs.wait_level(first)
        second = runs.start(2)
        overtake(first, second, lambda: feed.hits(50))
        runs.set_owner(2)
        feed.hits(100)
        runs.wait_level(second)
        third = runs.start(3, 3)
        repartitioned = runs.receipts[3].repartitioned
        assert repartitioned is not None
        assert repartitioned.keys_before == repartitioned.keys_after > 0
        overtake(second, third, lambda: feed.hits(50))
        runs.set_owner(3)
        feed.hits(100)
        runs.wait_level(third)
        until("unneeded checkpoints are deleted", lambda: third.tick() or depot.folders() == ["3.1"])

        saved = runs.save(third)
        feed.hits(100)
        runs.wait_level(third)
        fourth = runs.go_back(third, 4, 3)
        assert runs.receipts[4].positions == saved.ends
        feed.hits(100)
        runs.wait_level(fourth)
        fourth.hold()
        assert runs.checkpoints.forget(SAVEPOINT)
        assert not (lab.home / "checkpoints" / tier).exists()
        assert table(lab, table_name, keys) == expected(feed.records["hits"])
        assert equation(lab, tier) == feed.equation("hits")
        runs.end()


def test_moves_and_kills_with_a_bucket_lose_and_repeat_nothing(lab: Lab, feed: Feed) -> None:
    lab.epochs = itertools.count(10)
    with feeding(feed, RATE):
        lab.start_owner(TIER, 11, "h1")
        until("the tier counts", lambda: ends(lab, TIER))
        lab.cut(TIER, 11, 12, "h2", partitions=4)
        lab.wait_caught_up(TIER, 12)
        lab.set_owner(TIER, 12)
        lab.wait_for(TIER, 11, State.STOPPED)
        lab.stop(TIER, 11)
        report = lab.report(TIER, 12)
        assert report is not None
        assert report.started_from is not None
        repartitioned = report.started_from.repartitioned
        assert repartitioned is not None
        assert repartitioned.keys_before == repartitioned.keys_after > 0

        lab.driver(TIER, 12).kill()
        lab.stop(TIER, 12)
        lab.start_owner(TIER, 13, "h3", partitions=4)
        lab.wait_for(TIER, 13, State.RUNNING)
        lab.wait_caught_up(TIER, 13)
        assert "begins from a checkpoint" in lab.log(TIER, 13)
    assert_windows(lab, feed)
    until("only the checkpoint of the last run is left", lambda: incarnations(lab) == ["13"])
    for secret in ("never-in-a-file-of-ours", "of-the-environment"):
        assert secret not in lab.log(TIER, 13)
        assert secret.encode() not in b"".join(path.read_bytes() for path in lab.home.glob("*.json"))
