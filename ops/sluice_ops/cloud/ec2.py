"""Launch, list and terminate burst hosts on EC2.

The CLI and Airflow's runbooks call `Cloud`. Each call can be repeated. `endpoints.ec2` is the
address of EC2; None means the cloud's own endpoint. A tag marks the instances of an installation.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, HTTPClientError

from sluice_ops.model.ids import HostName
from sluice_ops.planning.placement.cluster import BURST_ZONE
from sluice_ops.site import endpoints, project, site_file
from sluice_ops.site.endpoints import Endpoints

TAG_HOST = "sluice-host"
"""The tag of this installation's instances.

Its value is the installation's chroot, so that two pipelines in one account have different tags.
"""
TAG_TOKEN = "sluice-token"  # noqa: S105 - the name of a tag
"""The tag with the change that launched the instance."""
GONE = frozenset({"shutting-down", "terminated"})
"""States of instances that end or have ended."""
ID_DIGITS = 8
"""How many digits of an instance's id are in its host's name."""
MOST_SECONDS = 20
"""How long EC2 may take to answer."""


class CloudError(Exception):
    """EC2 refused a request; the message has EC2's reason."""


class CloudAwayError(CloudError, ConnectionError):
    """EC2 does not answer. Temporary: retry later."""


class QuotaError(CloudError):
    """The launch would exceed `ec2.max_instances`."""


@dataclass(frozen=True)
class Instance:
    """One instance that runs, or will run."""

    id: str
    state: str
    token: str
    """The change that launched the instance."""
    address: str

    @property
    def host(self) -> HostName:
        """The name under which its agent registers."""
        return host_of(self.id)


def host_of(instance: str) -> HostName:
    """Return the host name of an instance, such as `ec2-0a1b2c3d`."""
    return HostName(f"{BURST_ZONE}-{instance[-ID_DIGITS:]}")


class Cloud:
    """The instances of one installation."""

    def __init__(self, services: Endpoints, config: site_file.Ec2Config) -> None:
        """Use the EC2 endpoint of `services`; `config` says what an instance is like."""
        self._url = services.ec2
        self._installation = services.zookeeper.partition("/")[2] or "sluice"
        self._config = config

    def launch(self, token: str, count: int) -> list[str]:
        """Launch the missing ones of `count` instances for a token, and return the ids of all.

        A second call finds the instances of the first call. EC2 launches all missing instances or
        none. Raise QuotaError if the site's limit would be exceeded.
        """
        config = self._config
        existing = self.instances()
        launched = [instance.id for instance in existing if instance.token == token]
        missing = count - len(launched)
        if missing <= 0:
            return launched[:count]
        if len(existing) + missing > config.max_instances:
            message = (
                f"{missing} more instances would make {len(existing) + missing}, "
                f"but ec2.max_instances is {config.max_instances}: "
                "terminate instances first (sluice leave), or raise ec2.max_instances in the site file"
            )
            raise QuotaError(message)
        tags = {TAG_HOST: self._installation, TAG_TOKEN: token}
        with self._client() as client:
            answer = client.run_instances(
                ImageId=config.image,
                InstanceType=config.instance_type,
                MinCount=missing,
                MaxCount=missing,
                ClientToken=hashlib.sha256(
                    f"{self._installation}/{token}/{len(launched)}".encode()
                ).hexdigest(),
                UserData=user_data(config),
                TagSpecifications=[
                    {
                        "ResourceType": "instance",
                        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
                    }
                ],
            )
        return launched + [instance["InstanceId"] for instance in answer["Instances"]]

    def instances(self) -> list[Instance]:
        """Return this installation's instances, without those that end or have ended."""
        tag_filter = [{"Name": f"tag:{TAG_HOST}", "Values": [self._installation]}]
        with self._client() as client:
            pages = client.get_paginator("describe_instances").paginate(Filters=tag_filter)
            descriptions = [
                description
                for page in pages
                for reservation in page["Reservations"]
                for description in reservation["Instances"]
            ]
        return [
            _instance(description) for description in descriptions if description["State"]["Name"] not in GONE
        ]

    def terminate(self, ids: Iterable[str]) -> None:
        """Terminate instances; ids of ended or foreign instances are ignored."""
        existing = set(ids) & {instance.id for instance in self.instances()}
        if existing:
            with self._client() as client:
                client.terminate_instances(InstanceIds=sorted(existing))

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """Yield a client of EC2; raise its errors as CloudError or CloudAwayError."""
        url = self._url
        endpoint = url or "the cloud's own endpoint"
        embedded: dict[str, Any] = (
            {} if url is None else {"aws_access_key_id": "embedded", "aws_secret_access_key": "embedded"}
        )
        options = Config(
            connect_timeout=5,
            read_timeout=MOST_SECONDS,
            retries={"max_attempts": 2},
            proxies={} if url else None,
        )
        try:
            yield boto3.client(
                "ec2", endpoint_url=url, region_name=self._config.region, config=options, **embedded
            )
        except (EndpointConnectionError, HTTPClientError) as error:
            message = f"EC2 at {endpoint} does not answer: {error}"
            raise CloudAwayError(message) from error
        except ClientError as error:
            reason = error.response.get("Error", {})
            message = f"EC2 at {endpoint} refused the request: {reason.get('Code')}: {reason.get('Message')}"
            raise CloudError(message) from error
        except BotoCoreError as error:
            message = (
                f"no request can be sent to EC2 at {endpoint}: {error}. "
                "Check the `ec2` keys of the site file, and the AWS credentials"
            )
            raise CloudError(message) from error


def the_cloud() -> Cloud:
    """Return the instances of this process's endpoints file and site file."""
    return Cloud(endpoints.load(), site_file.load(project.site_path()).ec2)


def user_data(config: site_file.Ec2Config) -> str:
    """Return the script of an instance's first boot, which has systemd run the agent.

    The image has the project in /opt/sluice, and endpoints.json and site.yaml in /etc/sluice.
    """
    return f"""#!/bin/bash -e
token=$(curl -sfX PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' http://169.254.169.254/latest/api/token)
about() {{ curl -sf -H "X-aws-ec2-metadata-token: $token" "http://169.254.169.254/latest/meta-data/$1"; }}
id=$(about instance-id)
systemd-run --unit sluice-agent --property Restart=always --setenv SLUICE_HOME=/var/lib/sluice \\
  --setenv SLUICE_ENDPOINTS=/etc/sluice/endpoints.json --setenv SLUICE_SITE=/etc/sluice/site.yaml \\
  /opt/sluice/.venv/bin/python -m sluice_ops.agent --host "{BURST_ZONE}-${{id: -{ID_DIGITS}}}" \\
  --address "$(about local-ipv4)" \\
  --zone {BURST_ZONE} --cpu {config.capacity.cpu:g} --memory {config.capacity.memory}m
"""


def _instance(description: dict[str, Any]) -> Instance:
    tags = {tag["Key"]: tag["Value"] for tag in description.get("Tags", ())}
    return Instance(
        description["InstanceId"],
        description["State"]["Name"],
        tags.get(TAG_TOKEN, ""),
        description.get("PrivateIpAddress", ""),
    )
