"""The part `ec2` of the site file: files of before load, and nonsense is refused with its key."""

from pathlib import Path

import pytest

from sluice_ops.site.ec2_config import Ec2Config
from sluice_ops.site.site_file import SiteError, load

HEAD = "pipeline: p\nhosts: []\n"


def read(path: Path, text: str) -> Ec2Config:
    path.write_text(f"{HEAD}ec2: {{{text}}}\n")
    return load(path).ec2


def test_a_file_with_one_instance_type_still_loads(tmp_path: Path) -> None:
    config = read(tmp_path / "site.yaml", "instance_type: m5.xlarge, capacity: {cpu: 4, memory: 12g}")
    assert config.instance_types == ("m5.xlarge",)


def test_all_parameters_of_an_instance_are_read_in_order(tmp_path: Path) -> None:
    config = read(
        tmp_path / "site.yaml",
        "region: us-west-2, instance_types: [m6i.large, m5.large], market: spot, "
        "subnets: {us-west-2b: subnet-0a1b2c3d, us-west-2-lax-1a: subnet-0a1b2c3e}, image: ami-0a1b2c3d, "
        "security_groups: [sg-0a1b2c3d], instance_profile: sluice, key_name: night, tags: {team: data}",
    )
    assert config.instance_types == ("m6i.large", "m5.large")
    assert list(config.subnets) == ["us-west-2b", "us-west-2-lax-1a"]
    template = "launch_template: {name: burst, version: 3}"
    assert read(tmp_path / "site.yaml", template).launch_template.version == "3"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "instance_type: m5.large, instance_types: [m5.large]",
            "instance_type and instance_types are one key",
        ),
        ("instance_types: []", "instance_types: the list is empty: write at least one type"),
        (
            "instance_types: [m5]",
            "instance_types.0: 'm5' is not an instance type: write one such as m5.large",
        ),
        ("instance_types: [m5.large, m5.large]", "instance_types: m5.large is named twice; remove one"),
        ("region: frankfurt", "region: 'frankfurt' is not a region of EC2: write one such as eu-central-1"),
        ("launch_template: {}", "launch_template: name the template once: write either id or name"),
        ("launch_template: {id: lt-0a1b2c3d, name: burst}", "launch_template: name the template once"),
        ("launch_template: {name: burst, version: new}", "launch_template.version: 'new' is not a version"),
        ("launch_template: {name: burst}, key_name: k", "the launch template has key_name already: remove"),
        ("image: debian", "image: 'debian' is not an id: write it as EC2 shows it, such as ami-0a1b"),
        ("subnets: {us-east-1a: subnet-0a1b2c3d}", "'us-east-1a' is not a zone of region eu-central-1"),
        (
            "subnets: {eu-central-1a: subnet-0a1b2c3d, eu-central-1b: subnet-0a1b2c3d}",
            "subnets: subnet-0a1b2c3d is named twice; remove one",
        ),
        ("max_cost_per_day: 5", "max_cost_per_day needs the price of m5.large: add it to price_per_hour"),
        ("price_per_hour: {m5.large: 0}", "price_per_hour.m5.large: Input should be greater than 0"),
        ("market: cheap", "market: Input should be 'on-demand' or 'spot'; the value is 'cheap'"),
        ("tags: {sluice-host: x}", "tags: the tag sluice-host is set by Sluice; choose another key"),
        ("tags: {'aws:x': y}", "tags: the tag aws:x is set by AWS; choose another key"),
    ],
)
def test_an_unusable_parameter_is_refused_with_its_key(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(SiteError) as error:
        read(tmp_path / "site.yaml", text)
    assert reason in str(error.value)
