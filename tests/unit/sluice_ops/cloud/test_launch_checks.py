"""What EC2 would refuse is refused before anything starts, with the next step."""

import boto3
import pytest
from moto import mock_aws
from simulation.ec2 import ENDPOINTS, MemoryCloud

from sluice_ops.cloud.api import Api
from sluice_ops.cloud.ec2 import Cloud
from sluice_ops.cloud.errors import NOT_PERMITTED, CloudAwayError, CloudError, NoCredentialsError, QuotaError
from sluice_ops.cloud.launch_checks import PERMITTED, check_launch
from sluice_ops.site.ec2_config import Ec2Config

VCPUS = {"m5.large": 2, "m5.4xlarge": 16, "g5.xlarge": 4}


class Account(Api):
    """An account with instances, quotas of vCPUs, and an answer to a dry run."""

    def __init__(self, quotas, running=(), *, permission=PERMITTED):
        super().__init__(None, "eu-central-1")
        self.quotas, self.permission = quotas, permission
        cloud = MemoryCloud(Ec2Config(instance_types=["m5.4xlarge"]), {("on-demand", "m5.4xlarge", None): 9})
        for number in range(len(running)):
            cloud.launch(f"c{number}", 1, print)
        self.described = list(cloud.ec2.described.values())
        for each, market in zip(self.described, running, strict=True):
            each["InstanceLifecycle"] = market

    def call(self, action, *, service="ec2", tries=3, **request):  # noqa: ARG002
        if action == "run_instances":
            assert request["DryRun"]
            raise CloudError(self.permission, self.permission)
        if action == "describe_subnets":
            raise CloudError(NOT_PERMITTED, NOT_PERMITTED)
        if action == "describe_instances":
            return {"Reservations": [{"Instances": self.described}]}
        if action == "describe_instance_types":
            names = request["InstanceTypes"]
            return {
                "InstanceTypes": [
                    {"InstanceType": name, "VCpuInfo": {"DefaultVCpus": VCPUS[name]}} for name in names
                ]
            }
        assert service == "service-quotas"
        quota = self.quotas.get(request["QuotaCode"])
        if isinstance(quota, Exception):
            raise quota
        return {"Quota": {"Value": float(quota)}}


def look(account, count=2, **keys):
    return check_launch(Cloud(ENDPOINTS, Ec2Config(**keys), account), count)


def test_a_launch_within_permission_and_quota_has_no_note():
    assert look(Account({"L-1216C47A": 20}, [None])) == []


def test_a_launch_beyond_the_quota_is_refused_with_the_next_step():
    with pytest.raises(
        QuotaError,
        match=r"2 instances need at least 4 vCPUs, but the account has 19 vCPUs for on-demand instances, "
        r"16 in use \(L-1216C47A\)\. Ask for fewer workers, or have the quota raised in Service Quotas",
    ):
        look(Account({"L-1216C47A": 19}, [None]))


def test_the_quota_of_either_market_is_enough_for_a_spot_burst():
    running = ["spot", None]
    assert look(Account({"L-34B43A08": 16, "L-1216C47A": 20}, running), market="spot") == []
    assert look(Account({"L-34B43A08": 20, "L-1216C47A": 0}, running), market="spot") == []
    with pytest.raises(QuotaError, match="16 vCPUs for spot instances, 16 in use"):
        look(Account({"L-34B43A08": 16, "L-1216C47A": 16}, running), market="spot")


@pytest.mark.parametrize(
    ("account", "keys"),
    [
        (Account({"L-1216C47A": CloudError("AccessDenied")}), {}),
        (Account({}), {"instance_types": ["m5.large", "g5.xlarge"]}),
    ],
)
def test_a_quota_that_cannot_be_read_is_a_note(account, keys):
    (note,) = look(account, **keys)
    assert note.startswith("the account's quota of vCPUs was not checked: ")


def test_a_missing_permission_is_refused_with_what_to_allow():
    with pytest.raises(CloudError, match=r"UnauthorizedOperation\. Allow ec2:RunInstances, ec2:CreateTags"):
        look(Account({}, permission="UnauthorizedOperation"))
    with pytest.raises(CloudError, match=r"InvalidAMIID\.NotFound"):
        look(Account({}, permission="InvalidAMIID.NotFound"))


def test_a_subnet_in_another_zone_is_refused_with_both_zones():
    with mock_aws():
        client = boto3.client("ec2", region_name="eu-central-1")
        network = client.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        made = client.create_subnet(VpcId=network, CidrBlock="10.0.1.0/24", AvailabilityZone="eu-central-1b")
        subnet = made["Subnet"]["SubnetId"]

        def check(**subnets):
            zones = {zone.replace("_", "-"): each for zone, each in subnets.items()}
            return check_launch(Cloud(ENDPOINTS, Ec2Config(subnets=zones)), 1)

        (note,) = check(eu_central_1b=subnet)
        assert "quota" in note
        with pytest.raises(CloudError, match=f"{subnet} is in eu-central-1b, not in eu-central-1c"):
            check(eu_central_1c=subnet)
        with pytest.raises(CloudError, match=r"InvalidSubnetID\.NotFound"):
            check(eu_central_1b=subnet, eu_central_1c="subnet-0a1b2c3d")


def test_zones_that_may_not_be_read_are_a_note():
    (note,) = look(Account({"L-1216C47A": 20}), subnets={"eu-central-1b": "subnet-0a1b2c3d"})
    assert note == "the zones of ec2.subnets were not checked: UnauthorizedOperation"


def test_a_machine_without_credentials_is_refused_before_anything_is_sent(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with pytest.raises(NoCredentialsError, match=r"no AWS credentials: give them in the environment"):
        check_launch(Cloud(ENDPOINTS, Ec2Config()), 1)


def test_an_ec2_that_does_not_answer_is_no_note():
    with pytest.raises(CloudAwayError):
        look(Account({"L-1216C47A": CloudAwayError("no answer")}))


def test_a_burst_without_new_instances_asks_nothing():
    assert look(Account({}, permission="UnauthorizedOperation"), 0) == []


def test_motos_ec2_permits_a_launch_and_launches_nothing():
    with mock_aws():
        cloud = Cloud(ENDPOINTS, Ec2Config())
        (note,) = check_launch(cloud, 2)
        assert "NoSuchResourceException" in note
        assert cloud.instances() == []
