"""A client of the site's S3 service. Checkpoints and sinks of files use this module."""

from typing import Any
from urllib.parse import urlsplit

from sluice_ops.site.site_file import S3Config


def client(s3: S3Config, seconds: float = 60.0) -> Any:
    """Return a client; credentials come from the environment or its files.

    `seconds` is the longest wait to connect, or for a part of an answer.
    """
    import boto3  # noqa: PLC0415 — takes half a second, only if something is in a bucket
    from botocore.config import Config  # noqa: PLC0415

    config = Config(
        s3={"addressing_style": "path" if s3.endpoint else "auto"},
        connect_timeout=seconds,
        read_timeout=seconds,
        retries={"max_attempts": 5, "mode": "standard"},
    )
    return boto3.client("s3", endpoint_url=s3.endpoint, region_name=s3.region, config=config)


def bucket_and_prefix(url: str) -> tuple[str, str]:
    """Return the bucket and the folder of an address `s3a://bucket/folder`. Pure."""
    parts = urlsplit(url)
    return parts.netloc, parts.path.strip("/")
