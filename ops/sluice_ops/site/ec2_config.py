"""The part `ec2` of the site file: the instances that a burst launches.

Errors name the key, the value and what to write.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from sluice_ops.model.resources import Capacity, Frozen

RESERVED = ("sluice-host", "sluice-token")
"""The tags that Sluice itself sets."""
MOST_TAGS = 48
"""EC2 allows 50 tags, of which Sluice sets two."""


def _id(prefix: str, example: str) -> Any:
    """Return the type of an id that EC2 makes, such as `subnet-0a1b2c3d`."""

    def check(value: str) -> str:
        if not re.fullmatch(rf"{prefix}-[0-9a-f]{{8,17}}", value):
            message = f"{value!r} is not an id: write it as EC2 shows it, such as {example}"
            raise ValueError(message)
        return value

    return AfterValidator(check)


def _instance_type(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9-]*\.[a-z0-9-]+", value):
        message = f"{value!r} is not an instance type: write one such as m5.large"
        raise ValueError(message)
    return value


InstanceType = Annotated[str, AfterValidator(_instance_type)]


def _region(value: str) -> str:
    if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d+", value):
        message = f"{value!r} is not a region of EC2: write one such as eu-central-1"
        raise ValueError(message)
    return value


def _version(value: object) -> str:
    if value not in {"$Default", "$Latest"} and not re.fullmatch(r"[1-9]\d*", str(value)):
        message = f"{value!r} is not a version: write its number, $Default or $Latest"
        raise ValueError(message)
    return str(value)


Market = Literal["on-demand", "spot"]


class LaunchTemplate(Frozen):
    """A launch template of EC2, by `id` or by `name`."""

    id: Annotated[str, _id("lt", "lt-0a1b2c3d4e5f60718")] | None = None
    """The id of the template. Default: none; the template is named by `name`."""
    name: str | None = Field(default=None, min_length=3, max_length=128)
    """The name of the template. Default: none; the template is named by `id`."""
    version: Annotated[str, BeforeValidator(_version)] = "$Default"
    """The number of the version, `$Default` or `$Latest`."""

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        if (self.id is None) is (self.name is None):
            message = "name the template once: write either id or name"
            raise ValueError(message)
        return self


class Ec2Config(Frozen):
    """The EC2 instances that a burst launches.

    An instance comes from `launch_template`, or from `image` and the keys beside it. Sluice sets
    the type, the user data, the tags and IMDSv2 (`HttpTokens: required`), also with a template.
    """

    region: Annotated[str, AfterValidator(_region)] = "eu-central-1"
    """The EC2 region of the instances."""
    launch_template: LaunchTemplate | None = None
    """The launch template of the instances.

    Its image, security groups, instance profile, key and disks are used. Default: none.
    """
    image: Annotated[str, _id("ami", "ami-0a1b2c3d4e5f60718")] = "ami-12c6146b"
    """The image of the instances, if there is no launch template.

    An image has Sluice in `/opt/sluice`, and `endpoints.json` and `site.yaml` in `/etc/sluice`.
    """
    instance_types: tuple[InstanceType, ...] = ("m5.large",)
    """The types of the instances, the preferred one first; `capacity` must fit each.

    If EC2 has no capacity for a type in any zone, the next type is tried. The key `instance_type`
    of older files is a list of one type.
    """
    market: Market = "on-demand"
    """How the instances are bought.

    `spot`: if EC2 has no spot capacity for any type in any zone, on-demand instances are launched.
    """
    subnets: dict[str, Annotated[str, _id("subnet", "subnet-0a1b2c3d4e5f60718")]] = Field(
        default_factory=dict
    )
    """Availability zone → the subnet of the instances there, the preferred zone first.

    If EC2 has no capacity in a zone, the next zone is tried. Default: the subnet of the launch
    template, or the default subnet that EC2 chooses.
    """
    security_groups: tuple[Annotated[str, _id("sg", "sg-0a1b2c3d4e5f60718")], ...] = ()
    """The security groups of the instances. Default: the default group of the subnet's network."""
    instance_profile: str | None = Field(
        default=None, pattern=r"^(arn:[a-z-]+:iam::\d{12}:instance-profile/\S+|[\w+=,.@-]{1,128})$"
    )
    """The name or ARN of the instance profile, whose role the instances have in AWS."""
    key_name: str | None = Field(default=None, min_length=1, max_length=255)
    """The name of the key pair with which a person can log in."""
    tags: dict[str, str] = Field(default_factory=dict)
    """More tags of the instances and their disks, such as `{team: data}`."""
    capacity: Capacity = Capacity(cpu=4, memory=4096)
    """The CPU and memory of an instance that slots and drivers may take."""
    max_instances: int = Field(default=3, ge=0)
    """The most instances that run at once; with 0, every burst is refused."""
    price_per_hour: dict[InstanceType, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Instance type → its price an hour, for the limit and the receipt of a burst.

    A spot instance counts with this price, too. Default: no price is known.
    """
    max_cost_per_day: float | None = Field(default=None, gt=0)
    """The most that instances may cost in a day (UTC), in the currency of `price_per_hour`.

    A burst waits for another person (`approval`) if its instances and those that run could pass
    the limit until midnight. What ran earlier in the day counts, too.
    """

    @model_validator(mode="before")
    @classmethod
    def _types_of_older_files(cls, keys: Any) -> Any:
        if not isinstance(keys, dict) or "instance_type" not in keys:
            return keys
        if "instance_types" in keys:
            message = "instance_type and instance_types are one key: remove instance_type"
            raise ValueError(message)
        others = {key: value for key, value in keys.items() if key != "instance_type"}
        return {**others, "instance_types": [keys["instance_type"]]}

    @field_validator("instance_types")
    @classmethod
    def _at_least_one(cls, types: tuple[str, ...]) -> tuple[str, ...]:
        if not types:
            message = "the list is empty: write at least one type, or remove the key"
            raise ValueError(message)
        return types

    @field_validator("instance_types", "security_groups")
    @classmethod
    def _once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        _refuse_repeated(names)
        return names

    @field_validator("tags")
    @classmethod
    def _accepted_by_ec2(cls, tags: dict[str, str]) -> dict[str, str]:
        for key, value in tags.items():
            if key in RESERVED or key.lower().startswith("aws:"):
                message = (
                    f"the tag {key} is set by {'Sluice' if key in RESERVED else 'AWS'}; choose another key"
                )
                raise ValueError(message)
            if not 0 < len(key) <= 128 or len(value) > 256:  # noqa: PLR2004 - the limits of EC2
                message = (
                    f"the tag {key[:20]!r} is too long: a key has up to 128 characters, a value up to 256"
                )
                raise ValueError(message)
        if len(tags) > MOST_TAGS:
            message = f"{len(tags)} tags are too many: EC2 allows {MOST_TAGS} beside those of Sluice"
            raise ValueError(message)
        return tags

    @model_validator(mode="after")
    def _template_is_alone(self) -> Self:
        of_template = {"image", "security_groups", "instance_profile", "key_name"}
        both = sorted(of_template & self.model_fields_set)
        if self.launch_template is not None and both:
            message = (
                f"the launch template has {', '.join(both)} already: remove the key here, or launch_template"
            )
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _prices_for_the_limit(self) -> Self:
        unknown = [name for name in self.instance_types if name not in self.price_per_hour]
        if self.max_cost_per_day is not None and unknown:
            message = (
                f"max_cost_per_day needs the price of {', '.join(unknown)}: add it to price_per_hour, such "
                f"as {{{unknown[0]}: 0.115}}"
            )
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _zones_of_the_region(self) -> Self:
        for zone in self.subnets:
            if not re.fullmatch(rf"{self.region}(-[a-z]+-\d+)?[a-z]", zone):
                message = (
                    f"subnets: {zone!r} is not a zone of region {self.region}: "
                    f"write zones such as {self.region}a"
                )
                raise ValueError(message)
        _refuse_repeated(self.subnets.values(), "subnets: ")
        return self


def _refuse_repeated(names: Iterable[str], key: str = "") -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        message = f"{key}{', '.join(repeated)} is named twice; remove one"
        raise ValueError(message)
