"""Looks before a launch: EC2's permission, and the account's quota of vCPUs."""

import re
from collections import Counter
from typing import TYPE_CHECKING

from sluice_ops.cloud.errors import NOT_PERMITTED, CloudAwayError, CloudError, QuotaError
from sluice_ops.cloud.instance import instance_of
from sluice_ops.cloud.pools import pools
from sluice_ops.site.ec2_config import Market

if TYPE_CHECKING:
    from sluice_ops.cloud.ec2 import Cloud

PERMITTED = "DryRunOperation"
"""The code with which EC2 answers a dry run that it would carry out."""
NEEDED = "ec2:RunInstances, ec2:CreateTags, ec2:DescribeInstances and ec2:TerminateInstances"
_STANDARD = re.compile(r"(a|c|d|h|i|im|is|m|r|t|z)\d")
"""The families of instance types that share one quota of vCPUs."""
_QUOTAS: dict[Market, str] = {"on-demand": "L-1216C47A", "spot": "L-34B43A08"}
"""The quota's code in Service Quotas."""


def check_launch(cloud: "Cloud", count: int) -> list[str]:
    """Refuse a launch that EC2 would refuse; return notes on what is not known.

    Raise CloudError if the launch is not permitted, or a parameter is wrong. Raise QuotaError if
    the account's quota of vCPUs is too small in every market of the site file.
    """
    if not count:
        return []
    _check_permission(cloud)
    notes = _check_zones(cloud)
    try:
        return [*notes, *_check_quota(cloud, count)]
    except (QuotaError, CloudAwayError):
        raise
    except CloudError as error:
        return [*notes, f"the account's quota of vCPUs was not checked: {error}"]


def _check_permission(cloud: "Cloud") -> None:
    """Ask EC2 for a dry run of a launch in the preferred pool."""
    pool = next(pools(cloud.config))
    try:
        cloud.api.call("run_instances", DryRun=True, **cloud.request(pool, 1, 1, "dry run", "dry run"))
    except CloudError as error:
        if error.code == PERMITTED:
            return
        if error.code == NOT_PERMITTED:
            message = (
                f"{error}. Allow {NEEDED} to the credentials of this machine, and iam:PassRole for the role "
                "of ec2.instance_profile"
            )
            raise CloudError(message, error.code) from error
        raise


def _check_zones(cloud: "Cloud") -> list[str]:
    """Refuse a subnet that is in another zone than the site file says, or in none."""
    subnets = cloud.config.subnets
    if not subnets:
        return []
    try:
        answer = cloud.api.call("describe_subnets", SubnetIds=sorted(subnets.values()))
    except CloudError as error:
        if error.code != NOT_PERMITTED:
            raise
        return [f"the zones of ec2.subnets were not checked: {error}"]
    zones = {each["SubnetId"]: each["AvailabilityZone"] for each in answer["Subnets"]}
    wrong = [
        f"{subnet} is in {zones[subnet]}, not in {zone}"
        for zone, subnet in subnets.items()
        if zones[subnet] != zone
    ]
    if wrong:
        message = f"ec2.subnets of the site file is wrong: {'; '.join(wrong)}. Correct zone or subnet"
        raise CloudError(message)
    return []


def _check_quota(cloud: "Cloud", count: int) -> list[str]:
    types = cloud.config.instance_types
    others = [name for name in types if not _STANDARD.match(name)]
    if others:
        return [f"the account's quota of vCPUs was not checked: {', '.join(others)} has another quota"]
    running = _standard_instances(cloud)
    kinds = cloud.api.call(
        "describe_instance_types", InstanceTypes=sorted({*types, *(kind for kind, _ in running)})
    )
    vcpus = {kind["InstanceType"]: kind["VCpuInfo"]["DefaultVCpus"] for kind in kinds["InstanceTypes"]}
    used: Counter[Market] = Counter()
    for kind, market in running.elements():
        used[market] += vcpus[kind]
    least = count * min(vcpus[name] for name in types)
    refusals = []
    for market in dict.fromkeys(pool.market for pool in pools(cloud.config)):
        answer = cloud.api.call(
            "get_service_quota", service="service-quotas", ServiceCode="ec2", QuotaCode=_QUOTAS[market]
        )
        quota = int(answer["Quota"]["Value"])
        if used[market] + least <= quota:
            return []
        refusals.append(f"{quota} vCPUs for {market} instances, {used[market]} in use ({_QUOTAS[market]})")
    message = (
        f"{count} instances need at least {least} vCPUs, but the account has {'; '.join(refusals)}. Ask for "
        "fewer workers, or have the quota raised in Service Quotas"
    )
    raise QuotaError(message)


def _standard_instances(cloud: "Cloud") -> Counter[tuple[str, Market]]:
    """Count the account's instances of standard types that use the quota, by type and market."""
    states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    reservations = cloud.api.call("describe_instances", Filters=states)["Reservations"]
    described = (instance_of(each) for reservation in reservations for each in reservation["Instances"])
    return Counter(
        (each.instance_type, each.market) for each in described if _STANDARD.match(each.instance_type)
    )
