"""Files and a Delta table in a bucket have each record of a killed tier once."""

import io
from collections.abc import Iterator

import boto3
import deltalake
import psycopg
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

from tests.integration.sluice.test_http_sink import put
from tests.integration.sluice.test_killed_at_commit import HOLD
from tests.integration.sluice.test_sinks_outside import kill_at_commit, move, rows_in_ledger
from tests.lab import Lab, free_ports, until

PIPELINE_MODULE = "tests.integration.sluice.lake_pipeline"
TIER, BUCKET, REGION = "lake", "lake", "eu-central-1"
FIRST, MORE, ALL = 300, 400, 500

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve S3 with a bucket."""
    (port,) = free_ports(1)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    address = f"http://127.0.0.1:{port}"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "never-in-a-file-of-ours")
        boto3.client("s3", endpoint_url=address, region_name=REGION).create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        yield address
    server.stop()


@pytest.fixture(scope="module")
def site(address: str) -> str:
    return f"hosts: []\ns3: {{endpoint: '{address}', region: {REGION}}}\n"


def in_files(address: str) -> list[int]:
    """Return the numbers in the Parquet files."""
    s3 = boto3.client("s3", endpoint_url=address, region_name=REGION)
    keys = [file["Key"] for file in s3.list_objects_v2(Bucket=BUCKET, Prefix="numbers/").get("Contents", ())]
    files = (io.BytesIO(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()) for key in keys)
    return sorted(number for file in files for number in pq.read_table(file)["n"].to_pylist())


def in_table(address: str) -> list[int]:
    """Return the numbers in the Delta table."""
    options = {"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": address, "AWS_REGION": REGION}
    table = deltalake.DeltaTable("s3://lake/table", storage_options=options).to_pyarrow_table()
    return sorted(table["n"].to_pylist())


def test_a_bucket_has_each_record_of_a_killed_tier_once(lab: Lab, address: str) -> None:
    with psycopg.connect(lab.endpoints.postgres, autocommit=True) as connection:
        connection.execute(HOLD)
    put(lab, FIRST)
    lab.start_owner(TIER, 1, "h1")
    until("a batch is written", lambda: rows_in_ledger(lab, TIER) > 0)
    kill_at_commit(lab, TIER, MORE)
    move(lab, TIER, ALL)
    waiting = "select (select count(*) from saved) + (select count(*) from in_lake)"
    until("all rows are in files", lambda: lab.query(waiting) == [(0,)])
    assert in_files(address) == list(range(ALL))
    assert in_table(address) == list(range(ALL))
