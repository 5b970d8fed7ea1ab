"""Whether the bucket that a site keeps checkpoints in can be used from here. Looks, and writes nothing. For both doctors."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.site.site_file import Site

SECONDS = 3
"""How long S3 may take to answer."""
CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, where agents are started; they hand them on to drivers and slots"


def look(known: Site) -> Iterator[Finding]:
    """Look for credentials, the bucket, and what becomes of old versions in it."""
    if known.checkpoints is None:
        return
    name, at = urlsplit(known.checkpoints).netloc, known.s3.endpoint or f"S3 in {known.s3.region}"
    if boto3.Session().get_credentials() is None:
        yield Finding(
            "bucket", Verdict.BAD, f"no credentials for {known.checkpoints} are known here", CREDENTIALS
        )
        return
    settings = Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"total_max_attempts": 1})
    client: Any = boto3.client(
        "s3", endpoint_url=known.s3.endpoint, region_name=known.s3.region, config=settings
    )
    try:
        client.list_objects_v2(Bucket=name, MaxKeys=1)
        yield Finding("bucket", Verdict.OK, f"{known.checkpoints} can be read, at {at}")
        if client.get_bucket_versioning(Bucket=name).get("Status") == "Enabled" and not _forgets(
            client, name
        ):
            advice = "checkpoints are written all the time: give it a lifecycle rule that expires noncurrent versions after a day"
            yield Finding("bucket", Verdict.NOTE, f"bucket {name} keeps old versions for ever", advice)
    except ClientError as error:
        yield _refused(error, name, at)
    except BotoCoreError as error:
        advice = "start it, open the way to it from this host, or correct `s3.endpoint` in the site file"
        yield Finding("bucket", Verdict.BAD, f"{at} does not answer: {error}", advice)


def _forgets(client: Any, name: str) -> bool:
    """Tell whether a rule removes versions that are not the last."""
    try:
        rules = client.get_bucket_lifecycle_configuration(Bucket=name)["Rules"]
    except ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchLifecycleConfiguration":
            return False
        raise
    return any("NoncurrentVersionExpiration" in rule and rule["Status"] == "Enabled" for rule in rules)


def _refused(error: ClientError, name: str, at: str) -> Finding:
    code = error.response["Error"]["Code"]
    if code == "NoSuchBucket":
        return Finding(
            "bucket",
            Verdict.BAD,
            f"{at} has no bucket {name}",
            "make it, or correct `checkpoints` in the site file",
        )
    if code in {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"}:
        return Finding(
            "bucket",
            Verdict.BAD,
            f"{at} does not let these credentials read bucket {name}: {code}",
            CREDENTIALS,
        )
    return Finding(
        "bucket",
        Verdict.BAD,
        f"{at}, bucket {name}: {error}",
        "correct `checkpoints` or `s3` in the site file",
    )
