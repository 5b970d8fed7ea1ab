"""Burst hosts on EC2: launch, list, terminate. Called by the CLI and by Airflow's runbooks; each call can be repeated.

`endpoints.ec2` says where EC2 is; None is the cloud's own. Instances of this installation are told apart by their tags.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, HTTPClientError

from sluice_ops.model.ids import HostName
from sluice_ops.planning.placement.cluster import BURST_ZONE
from sluice_ops.site import endpoints, site_file

TAG_HOST = "sluice-host"
"""Marks an instance as ours; the value is the installation's chroot, so that two pipelines in one account do not meet."""
TAG_TOKEN = "sluice-token"  # noqa: S105 - the name of a tag
"""Which change launched it."""
GONE = frozenset({"shutting-down", "terminated"})
ID_DIGITS = 8
MOST_SECONDS = 20


class CloudError(Exception):
    """EC2 refused; the message says what and what to do."""


class CloudAwayError(CloudError, ConnectionError):
    """EC2 does not answer: try again later."""


class QuotaError(CloudError):
    """More instances than the site allows."""


@dataclass(frozen=True)
class Instance:
    """One instance that is there."""

    id: str
    state: str
    token: str
    """The change that launched it."""
    address: str

    @property
    def host(self) -> HostName:
        """The host that its agent registers."""
        return host_of(self.id)


def host_of(instance: str) -> HostName:
    """Name the host of an instance."""
    return HostName(f"{BURST_ZONE}-{instance[-ID_DIGITS:]}")


def launch(token: str, count: int) -> list[str]:
    """Have `count` instances for this token, and return their ids: a second call finds those of the first.

    EC2 gives all that are missing or none, so nothing is left over when it has too few.
    """
    config = _config()
    there = instances()
    mine = [instance.id for instance in there if instance.token == token]
    missing = count - len(mine)
    if missing <= 0:
        return mine[:count]
    if len(there) + missing > config.max_instances:
        message = (
            f"{missing} more instances make {len(there) + missing}, and ec2.max_instances is {config.max_instances}: "
            "leave those that are there first, or raise it in the site file"
        )
        raise QuotaError(message)
    with _ec2() as client:
        answer = client.run_instances(
            ImageId=config.image,
            InstanceType=config.instance_type,
            MinCount=missing,
            MaxCount=missing,
            ClientToken=hashlib.sha256(f"{_installation()}/{token}/{len(mine)}".encode()).hexdigest(),
            UserData=user_data(config),
            TagSpecifications=[
                {
                    "ResourceType": "instance",
                    "Tags": [{"Key": TAG_HOST, "Value": _installation()}, {"Key": TAG_TOKEN, "Value": token}],
                }
            ],
        )
    return mine + [each["InstanceId"] for each in answer["Instances"]]


def instances() -> list[Instance]:
    """Return this installation's instances that are there or coming."""
    ours = [{"Name": f"tag:{TAG_HOST}", "Values": [_installation()]}]
    with _ec2() as client:
        pages = client.get_paginator("describe_instances").paginate(Filters=ours)
        found = [
            each
            for page in pages
            for reservation in page["Reservations"]
            for each in reservation["Instances"]
        ]
    return [_instance(each) for each in found if each["State"]["Name"] not in GONE]


def terminate(ids: Iterable[str]) -> None:
    """Terminate; what is gone already is fine."""
    wanted = set(ids) & {instance.id for instance in instances()}
    if wanted:
        with _ec2() as client:
            client.terminate_instances(InstanceIds=sorted(wanted))


def user_data(config: site_file.Ec2Config) -> str:
    """Return what an instance runs at its first boot: its agent, kept up by systemd.

    The image holds the project in /opt/sluice, and endpoints.json and site.yaml in /etc/sluice.
    """
    return f"""#!/bin/bash -e
token=$(curl -sfX PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' http://169.254.169.254/latest/api/token)
about() {{ curl -sf -H "X-aws-ec2-metadata-token: $token" "http://169.254.169.254/latest/meta-data/$1"; }}
id=$(about instance-id)
systemd-run --unit sluice-agent --property Restart=always --setenv SLUICE_HOME=/var/lib/sluice \\
  --setenv SLUICE_ENDPOINTS=/etc/sluice/endpoints.json --setenv SLUICE_SITE=/etc/sluice/site.yaml \\
  /opt/sluice/.venv/bin/python -m sluice_ops.agent --host "{BURST_ZONE}-${{id: -{ID_DIGITS}}}" --address "$(about local-ipv4)" \\
  --zone {BURST_ZONE} --cpu {config.capacity.cpu:g} --memory {config.capacity.memory}m
"""


def _instance(found: dict[str, Any]) -> Instance:
    tags = {tag["Key"]: tag["Value"] for tag in found.get("Tags", ())}
    return Instance(
        found["InstanceId"],
        found["State"]["Name"],
        tags.get(TAG_TOKEN, ""),
        found.get("PrivateIpAddress", ""),
    )


def _installation() -> str:
    return endpoints.load().zookeeper.partition("/")[2] or "sluice"


def _config() -> site_file.Ec2Config:
    return site_file.load(Path(os.environ.get("SLUICE_SITE", "site.yaml"))).ec2


@contextmanager
def _ec2() -> Iterator[Any]:
    """Give a client; what goes wrong becomes a message."""
    url = endpoints.load().ec2
    where = url or "the cloud's own endpoint"
    embedded: dict[str, Any] = (
        {} if url is None else {"aws_access_key_id": "embedded", "aws_secret_access_key": "embedded"}
    )
    options = Config(
        connect_timeout=5, read_timeout=MOST_SECONDS, retries={"max_attempts": 2}, proxies={} if url else None
    )
    try:
        yield boto3.client("ec2", endpoint_url=url, region_name=_config().region, config=options, **embedded)
    except (EndpointConnectionError, HTTPClientError) as error:
        message = f"EC2 at {where} does not answer: {error}"
        raise CloudAwayError(message) from error
    except ClientError as error:
        reason = error.response.get("Error", {})
        message = f"EC2 at {where} refused: {reason.get('Code')}: {reason.get('Message')}"
        raise CloudError(message) from error
    except BotoCoreError as error:
        message = f"EC2 at {where} cannot be asked: {error}. Check the `ec2` keys of the site file and the credentials"
        raise CloudError(message) from error
