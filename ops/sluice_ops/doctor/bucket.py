"""Check that this machine can read the bucket of the site's checkpoints. Writes nothing."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.model.wording import page
from sluice_ops.site.site_file import Site

SECONDS = 3
"""Limit for S3 to accept the connection, and for each response."""
CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, for each agent and restart the "
    "agents; agents pass the credentials to drivers and slots; "
    f"see {page('Checkpoints in S3', 'Credentials')}"
)


def check(site: Site) -> Iterator[Finding]:
    """Check the credentials, the bucket, and the bucket's rule for old versions of objects."""
    if site.checkpoints is None:
        return
    name, server = urlsplit(site.checkpoints).netloc, site.s3.endpoint or f"S3 in {site.s3.region}"
    if boto3.Session().get_credentials() is None:
        sentence = f"this process has no credentials for {site.checkpoints}"
        yield Finding("bucket", Verdict.BAD, sentence, CREDENTIALS)
        return
    settings = Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"total_max_attempts": 1})
    client: Any = boto3.client(
        "s3", endpoint_url=site.s3.endpoint, region_name=site.s3.region, config=settings
    )
    try:
        client.list_objects_v2(Bucket=name, MaxKeys=1)
        yield Finding("bucket", Verdict.OK, f"{site.checkpoints} at {server} can be read")
        versioning = client.get_bucket_versioning(Bucket=name).get("Status")
        if versioning == "Enabled" and not _expires_versions(client, name):
            sentence = f"bucket {name} keeps old versions of objects forever"
            advice = (
                "add a lifecycle rule that expires noncurrent versions after a day: "
                "tiers replace their checkpoints all the time"
            )
            yield Finding("bucket", Verdict.NOTE, sentence, advice)
    except ClientError as error:
        yield _refused(error, name, server)
    except BotoCoreError as error:
        advice = (
            f"start {server}, open the network from this host to it, or correct `s3.endpoint` in the "
            "site file"
        )
        yield Finding("bucket", Verdict.BAD, f"{server} does not answer: {error}", advice)


def _expires_versions(client: Any, name: str) -> bool:
    """Return True if a lifecycle rule of the bucket expires noncurrent versions."""
    try:
        rules = client.get_bucket_lifecycle_configuration(Bucket=name)["Rules"]
    except ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchLifecycleConfiguration":
            return False
        raise
    return any("NoncurrentVersionExpiration" in rule and rule["Status"] == "Enabled" for rule in rules)


def _refused(error: ClientError, name: str, server: str) -> Finding:
    code = error.response["Error"]["Code"]
    if code == "NoSuchBucket":
        return Finding(
            "bucket",
            Verdict.BAD,
            f"{server} has no bucket {name}",
            "create the bucket, or correct `checkpoints` in the site file",
        )
    if code in {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"}:
        return Finding(
            "bucket",
            Verdict.BAD,
            f"{server} does not let these credentials read bucket {name}: {code}",
            CREDENTIALS,
        )
    return Finding(
        "bucket",
        Verdict.BAD,
        f"{server}, bucket {name}: {error}",
        "correct `checkpoints` or `s3` in the site file",
    )
