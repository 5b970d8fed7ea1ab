"""What EC2 is asked for: each parameter of the site file arrives, on moto's EC2."""

import boto3
import pytest
from moto import mock_aws
from simulation.ec2 import ENDPOINTS

from sluice_ops.cloud.ec2 import Cloud
from sluice_ops.cloud.errors import CloudError
from sluice_ops.site.ec2_config import Ec2Config, LaunchTemplate

REGION = "eu-central-1"
IMAGE = "ami-12c6146b"


@pytest.fixture
def client():
    with mock_aws():
        yield boto3.client("ec2", region_name=REGION)


def cloud(**keys):
    return Cloud(ENDPOINTS, Ec2Config(**keys))


def described(client, instances):
    pages = client.describe_instances(InstanceIds=[each.id for each in instances])
    return [each for reservation in pages["Reservations"] for each in reservation["Instances"]]


def test_an_instance_has_what_the_site_file_says(client):
    network = client.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    zone = f"{REGION}b"
    subnet = client.create_subnet(VpcId=network, CidrBlock="10.0.1.0/24", AvailabilityZone=zone)
    group = client.create_security_group(VpcId=network, GroupName="burst", Description="burst")["GroupId"]
    profiles = boto3.client("iam", region_name=REGION)
    profiles.create_instance_profile(InstanceProfileName="sluice")
    client.create_key_pair(KeyName="night")
    launched = cloud(
        subnets={zone: subnet["Subnet"]["SubnetId"]},
        security_groups=[group],
        instance_profile="sluice",
        key_name="night",
        tags={"team": "data"},
        market="spot",
    ).launch("change-1", 1, print)
    (each,) = described(client, launched)
    assert each["Placement"]["AvailabilityZone"] == launched[0].zone == zone
    assert each["SubnetId"] == subnet["Subnet"]["SubnetId"]
    assert [one["GroupId"] for one in each["SecurityGroups"]] == [group]
    assert each["IamInstanceProfile"]["Arn"].endswith(":instance-profile/sluice")
    assert (each["KeyName"], each["ImageId"], each["InstanceType"]) == ("night", IMAGE, "m5.large")
    assert each["InstanceLifecycle"] == launched[0].market == "spot"
    assert each["MetadataOptions"]["HttpTokens"] == "required"
    tags = {"team": "data", "sluice-host": "sluice/test", "sluice-token": "change-1"}
    assert {tag["Key"]: tag["Value"] for tag in each["Tags"]} == tags


@pytest.mark.parametrize("by", ["id", "name"])
def test_a_launch_template_gives_the_image_and_sluice_the_rest(client, by):
    made = client.create_launch_template(
        LaunchTemplateName="burst",
        LaunchTemplateData={"ImageId": IMAGE, "InstanceType": "t2.nano", "KeyName": "of-the-template"},
    )["LaunchTemplate"]
    client.create_key_pair(KeyName="of-the-template")
    named = {"id": made["LaunchTemplateId"]} if by == "id" else {"name": "burst"}
    launched = cloud(launch_template=LaunchTemplate(**named, version="1")).launch("change-1", 2, print)
    for each in described(client, launched):
        assert (each["ImageId"], each["InstanceType"]) == (IMAGE, "m5.large")
        assert each["MetadataOptions"]["HttpTokens"] == "required"


def test_a_wrong_template_is_refused_with_the_answer_of_ec2(client):  # noqa: ARG001
    with pytest.raises(CloudError, match=r"InvalidLaunchTemplateName\.NotFoundException"):
        cloud(launch_template=LaunchTemplate(name="nothing")).launch("change-1", 1, print)


def test_instances_of_another_installation_are_neither_seen_nor_ended(client):
    other = Cloud(ENDPOINTS.model_copy(update={"zookeeper": "127.0.0.1:1/other"}), Ec2Config())
    (foreign,) = other.launch("change-1", 1, print)
    (own,) = cloud().launch("change-1", 1, print)
    assert [each.id for each in cloud().instances()] == [own.id]
    cloud().terminate([own.id, foreign.id])
    assert cloud().instances() == []
    (each,) = described(client, [foreign])
    assert each["State"]["Name"] == "running"
