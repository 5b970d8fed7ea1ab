"""Requests of batch jobs: post, renew and delete them, and read their grants."""

import re
import time
from uuid import uuid4

from sluice_ops.channel import ANY_VERSION, Channel, ConflictError, Write
from sluice_ops.model import paths
from sluice_ops.model.batch import BatchGrants, BatchRequest


def post(channel: Channel, name: str, request: BatchRequest) -> str:
    """Queue a job; return its id, which is never used again."""
    job = f"{re.sub(r'[^A-Za-z0-9_.:+-]', '_', name)}-{uuid4().hex[:8]}"
    channel.create(paths.batch_job(job), request)
    return job


def renew(channel: Channel, job: str) -> bool:
    """Keep a job's place and slots; return False if the controller has deleted the request."""
    read = channel.read(paths.batch_job(job), BatchRequest)
    if read is None:
        return False
    renewed = read.value.model_copy(update={"renewed_at": time.time()})
    try:
        channel.multi([Write(paths.batch_job(job), renewed, ANY_VERSION)])
    except ConflictError:
        return False
    return True


def end(channel: Channel, job: str) -> None:
    """Take a job from the queue, or free its slots."""
    channel.delete(paths.batch_job(job))


def read_grants(channel: Channel, *, watch: bool = False) -> BatchGrants:
    """Return how the slots are divided now."""
    read = channel.read(paths.BATCH_GRANTS, BatchGrants, watch=watch)
    return BatchGrants() if read is None else read.value
