"""Checkpoints in a bucket: a tier with state begins, moves to another host, is killed and begins again, from S3 alone."""

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
from tests.integration.sluice.given import (
    Feed,
    ends,
    equation,
    giving,
    sums,
    table,
    windows,
    windows_are_right,
)
from tests.integration.sluice.runs import PIPELINE_MODULE, Runs, local_session, overtake
from tests.lab import Lab, free_ports, until

__all__ = ["PIPELINE_MODULE"]
BUCKET, REGION, TIER, RATE = "kept", "eu-central-1", "by-window", 100
pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serve S3 with a bucket that keeps every version; say so as a site file does."""
    (port,) = free_ports(1)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    address = f"http://127.0.0.1:{port}"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
        patched.setenv("AWS_SECRET_ACCESS_KEY", "never-in-a-file-of-ours")
        client = boto3.client("s3", endpoint_url=address, region_name=REGION)
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        yield f"hosts: []\ncheckpoints: s3a://{BUCKET}/site\ns3: {{endpoint: '{address}', region: {REGION}}}\n"
    server.stop()


def objects(lab: Lab) -> list[str]:
    known = load(lab.home / "site.yaml")
    client: Any = boto3.client("s3", endpoint_url=known.s3.endpoint, region_name=REGION)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="site/")
    return [each["Key"] for page in pages for each in page.get("Contents", ())]


def test_the_doctor_finds_the_bucket_and_what_becomes_of_old_versions(lab: Lab) -> None:
    known = load(lab.home / "site.yaml")
    assert [finding.verdict for finding in bucket.check(known)] == [Verdict.OK, Verdict.NOTE]
    (missing,) = bucket.check(known.model_copy(update={"checkpoints": "s3a://another/site"}))
    assert (missing.verdict, "has no bucket another" in missing.sentence) == (Verdict.BAD, True)


@pytest.mark.parametrize(
    ("tier", "filled", "keys", "right"), [(TIER, "windows", 2, windows), ("summed", "sums", 1, sums)]
)
def test_a_state_is_handed_over_and_spread_anew_in_a_bucket(
    lab: Lab,
    feed: Feed,
    tier: str,
    filled: str,
    keys: int,
    right: Callable[[list[dict[str, Any]]], dict[Any, Any]],
) -> None:
    """Spark's own, and what a tier keeps by itself (`transformWithState`)."""
    depot = depot_of(tier, load(lab.home / "site.yaml"), lab.home)
    with local_session(lab, depot) as session:
        runs = Runs(lab, session, tier, 1, 1, depot)
        first = runs.start(1)
        for _ in range(2):
            feed.hits(150)
            runs.level(first)
        second = runs.start(2)
        overtake(first, second, lambda: feed.hits(50))
        runs.own(2)
        feed.hits(100)
        runs.level(second)
        third = runs.start(3, 3)
        made = runs.receipts[3].repartitioned
        assert made is not None
        assert made.keys_before == made.keys_after > 0
        overtake(second, third, lambda: feed.hits(50))
        runs.own(3)
        feed.hits(100)
        runs.level(third)
        until("what is not needed is gone", lambda: third.tick() or depot.folders() == ["3.1"])
        third.hold()
        assert not (lab.home / "checkpoints" / tier).exists()
        assert table(lab, filled, keys) == right(feed.given["hits"])
        assert equation(lab, tier) == feed.equation("hits")
        runs.end()


def test_moves_and_kills_with_a_bucket_lose_and_repeat_nothing(lab: Lab, feed: Feed) -> None:
    lab.epochs = itertools.count(10)
    with giving(feed, RATE):
        lab.start_owner(TIER, 11, "h1")
        until("it counts", lambda: ends(lab, TIER))
        lab.cut(TIER, 11, 12, "h2", partitions=4)
        lab.wait_caught_up(TIER, 12)
        lab.set_owner(TIER, 12)
        lab.wait_for(TIER, 11, State.STOPPED)
        lab.stop(TIER, 11)
        said = lab.report(TIER, 12)
        assert said is not None
        assert said.started_from is not None
        made = said.started_from.repartitioned
        assert made is not None
        assert made.keys_before == made.keys_after > 0

        lab.driver(TIER, 12).kill()
        lab.stop(TIER, 12)
        lab.start_owner(TIER, 13, "h3", partitions=4)
        lab.wait_for(TIER, 13, State.RUNNING)
        lab.wait_caught_up(TIER, 13)
        assert "begins from a checkpoint" in lab.log(TIER, 13)
    windows_are_right(lab, feed)
    until(
        "what others have left is gone",
        lambda: {key.split("/")[2] for key in objects(lab) if key.startswith(f"site/{TIER}/")} == {"13.0"},
    )
    for kept in ("never-in-a-file-of-ours", "of-the-environment"):
        assert kept not in lab.log(TIER, 13)
        assert kept.encode() not in b"".join(path.read_bytes() for path in lab.home.glob("*.json"))
