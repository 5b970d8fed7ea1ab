"""Launch, list and terminate burst hosts on EC2.

The CLI and Airflow's runbooks call `Cloud`. Each call can be repeated. `endpoints.ec2` is the
address of EC2; None means the cloud's own endpoint. A tag marks the instances of an installation.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from sluice_ops.cloud.api import Api
from sluice_ops.cloud.errors import CapacityError, CloudAwayError, CloudError, NextStep, QuotaError, next_step
from sluice_ops.cloud.instance import ID_DIGITS, TAG_TOKEN, Instance, instance_of
from sluice_ops.cloud.pools import Pool, pools
from sluice_ops.planning.placement.cluster import BURST_ZONE
from sluice_ops.site import endpoints, project, site_file
from sluice_ops.site.ec2_config import Ec2Config, Market
from sluice_ops.site.endpoints import Endpoints

TAG_HOST = "sluice-host"
"""The tag of this installation's instances.

Its value is the installation's chroot, so that two pipelines in one account have different tags.
"""
GONE = frozenset({"shutting-down", "terminated"})
"""States of instances that end or have ended."""


class Cloud:
    """The instances of one installation."""

    def __init__(self, services: Endpoints, config: Ec2Config, api: Api | None = None) -> None:
        """Use the EC2 endpoint of `services`; `config` says what an instance is like."""
        self._installation = services.zookeeper.partition("/")[2] or "sluice"
        self.config = config
        self.api = api or Api(services.ec2, config.region)

    def launch(self, token: str, count: int, tell: Callable[[str], None]) -> list[Instance]:
        """Launch the missing ones of `count` instances for a token, and return all.

        A second call finds the instances of the first call. If the pools of the site file do not
        have all missing instances together, all instances of the token are terminated. `tell`
        receives a sentence about each pool without capacity. Raise QuotaError if a limit would be
        exceeded, CapacityError if no pool is left, and CloudAwayError if EC2 does not answer: then
        a later call goes on.
        """
        described = self._described()
        existing = [instance for instance in described if instance.state not in GONE]
        launched = [instance for instance in existing if instance.token == token]
        missing = count - len(launched)
        if missing <= 0:
            return launched[:count]
        if len(existing) + missing > self.config.max_instances:
            message = (
                f"{missing} more instances would make {len(existing) + missing}, "
                f"but ec2.max_instances is {self.config.max_instances}: "
                "terminate instances first (sluice leave), or raise ec2.max_instances in the site file"
            )
            raise QuotaError(message)
        # An earlier try that was undone leaves ended instances, and its client tokens are used up.
        attempt = f"{self._installation}/{token}/{sum(each.token == token for each in described)}"
        try:
            self._launch_in_turn(launched, count, token, attempt, tell)
        except CloudAwayError:
            raise
        except CloudError:
            self._end([instance.id for instance in launched])
            raise
        return launched

    def instances(self) -> list[Instance]:
        """Return this installation's instances, without those that end or have ended."""
        return [instance for instance in self._described() if instance.state not in GONE]

    def terminate(self, ids: Iterable[str]) -> None:
        """Terminate instances; ids of ended or foreign instances are ignored."""
        self._end(sorted(set(ids) & {instance.id for instance in self.instances()}))

    def _launch_in_turn(
        self,
        launched: list[Instance],
        count: int,
        token: str,
        attempt: str,
        tell: Callable[[str], None],
    ) -> None:
        """Add instances to `launched` until there are `count`, in one pool after the other.

        A pool is asked for all that are missing, and then for as many of them as it has.
        """
        refusals: list[str] = []
        given_up: set[Market] = set()
        for pool in pools(self.config):
            missing = count - len(launched)
            for least in dict.fromkeys((missing, 1)):
                if pool.market in given_up:
                    break
                try:
                    answer = self.api.insist(
                        "run_instances", **self.request(pool, least, missing, token, attempt)
                    )
                    launched += [instance_of(description) for description in answer["Instances"]]
                    break
                except CloudError as error:
                    step = next_step(error.code)
                    if step not in {NextStep.POOL, NextStep.MARKET}:
                        raise
                    refusals.append(f"{pool}: {error.code}")
                    tell(f"EC2 does not have {least} x {pool} ({error.code}); trying the next pool")
                    given_up |= {pool.market} if step is NextStep.MARKET else set()
            if len(launched) == count:
                return
        message = (
            f"EC2 has no capacity for {count} instances, and none was kept: "
            f"{'; '.join(dict.fromkeys(refusals))}. Add types to ec2.instance_types or zones to ec2.subnets "
            "in the site file, ask for fewer workers, or try later"
        )
        raise CapacityError(message)

    def request(self, pool: Pool, least: int, most: int, token: str, attempt: str) -> dict[str, Any]:
        """Return the parameters of a launch of `least` to `most` instances in one pool."""
        config = self.config
        tags = {**config.tags, TAG_HOST: self._installation, TAG_TOKEN: token}
        request: dict[str, Any] = {
            **pool.request(),
            "MinCount": least,
            "MaxCount": most,
            "ClientToken": hashlib.sha256(f"{attempt}/{pool}/{least}/{most}".encode()).hexdigest(),
            "UserData": user_data(config),
            "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
            "TagSpecifications": [
                {
                    "ResourceType": resource,
                    "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
                }
                for resource in ("instance", "volume")
            ],
        }
        template, profile = config.launch_template, config.instance_profile
        if template is None:
            request["ImageId"] = config.image
        else:
            named = {"LaunchTemplateId": template.id, "LaunchTemplateName": template.name}
            request["LaunchTemplate"] = {
                "Version": template.version,
                **{key: value for key, value in named.items() if value is not None},
            }
        if config.security_groups:
            request["SecurityGroupIds"] = [*config.security_groups]
        if profile is not None:
            request["IamInstanceProfile"] = {"Arn" if profile.startswith("arn:") else "Name": profile}
        if config.key_name is not None:
            request["KeyName"] = config.key_name
        return request

    def _described(self) -> list[Instance]:
        """Return this installation's instances, also those that ended in the last hour."""
        pages = self.api.call(
            "describe_instances",
            Filters=[{"Name": f"tag:{TAG_HOST}", "Values": [self._installation]}],
        )
        return [
            instance_of(description)
            for reservation in pages["Reservations"]
            for description in reservation["Instances"]
        ]

    def _end(self, ids: list[str]) -> None:
        if ids:
            self.api.insist("terminate_instances", InstanceIds=ids)


def the_cloud() -> Cloud:
    """Return the instances of this process's endpoints file and site file."""
    return Cloud(endpoints.load(), site_file.load(project.site_path()).ec2)


def user_data(config: Ec2Config) -> str:
    """Return the script of an instance's first boot, which has systemd run the agent.

    The image has the project in /opt/sluice, and endpoints.json and site.yaml in /etc/sluice.
    """
    return f"""#!/bin/bash -e
metadata=http://169.254.169.254
token=$(curl -sfX PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' $metadata/latest/api/token)
about() {{ curl -sf -H "X-aws-ec2-metadata-token: $token" "$metadata/latest/meta-data/$1"; }}
id=$(about instance-id)
systemd-run --unit sluice-agent --property Restart=always --setenv SLUICE_HOME=/var/lib/sluice \\
  --setenv SLUICE_ENDPOINTS=/etc/sluice/endpoints.json --setenv SLUICE_SITE=/etc/sluice/site.yaml \\
  /opt/sluice/.venv/bin/python -m sluice_ops.agent --host "{BURST_ZONE}-${{id: -{ID_DIGITS}}}" \\
  --address "$(about local-ipv4)" --metadata $metadata \\
  --zone {BURST_ZONE} --cpu {config.capacity.cpu:g} --memory {config.capacity.memory}m
"""
