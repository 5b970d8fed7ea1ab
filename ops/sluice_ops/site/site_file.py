"""The site file: which pipeline, on which hosts, with which shares, locality and shifts. Errors name the key's path."""

import os
import re
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from croniter import CroniterError, croniter
from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from sluice_ops.model.kafka_access import Durability
from sluice_ops.model.resources import Capacity, Cores, Frozen, Link, Quantum
from sluice_ops.model.share import Numbers, Share
from sluice_ops.model.spread import Spread
from sluice_ops.site.validation_errors import explain


class SiteError(Exception):
    """The site file cannot be used; the message says which key and why."""


def _place(said: str) -> str:
    if not re.fullmatch(r"(zone|rack|label):.+|[^:]+", said):
        message = f"{said!r} is no place: write a host's name, zone:z, rack:r or label:l"
        raise ValueError(message)
    return said


Place = Annotated[str, AfterValidator(_place)]
"""`zone:z`, `rack:r`, `label:l` or a host's name."""


HOST_NAME = r"^[a-z][a-z0-9-]*$"
"""What a host may be called, be it in the site file or not."""


_ADDRESS = r"[A-Za-z0-9:][A-Za-z0-9:._-]*"


def _named(said: str) -> str:
    if not re.match(HOST_NAME, said):
        message = (
            f"{said!r} is no name of a host: write small letters, digits and -, a letter first, such as h4"
        )
        raise ValueError(message)
    return said


def _reachable(said: str) -> str:
    if not re.fullmatch(_ADDRESS, said):
        message = f"{said!r} is no address: write the one that other hosts reach it by, such as 10.0.0.4 or h4.example.com"
        raise ValueError(message)
    return said


class HostConfig(Frozen):
    """One host."""

    name: Annotated[str, AfterValidator(_named)]
    address: Annotated[str, AfterValidator(_reachable)]
    zone: str = "onprem"
    rack: str | None = None
    """What it shares with other hosts of its zone and may lose together with them, such as a switch. Default: nothing."""
    labels: tuple[str, ...] = ()
    capacity: Capacity
    network: Link | None = None
    """The link that its agent divides among what runs there, as root: `{interface: eth0, mbit: 10000}`. This replaces the interface's own
    queue (qdisc). Agents read it when they start. Default: the network is not divided."""
    cores: Cores = "shared"
    """`own`: each unit with a whole `quantum.cpu` has as many processors, on which no other unit runs: so one that takes all it can costs
    the others nothing, and what one leaves nobody takes. Agents read it when they start. Default: `shared`, so that no processor is idle
    while a unit could use it."""


class ShiftConfig(Frozen):
    """What the shares are from this hour on."""

    schedule: str
    """Cron: minute, hour, day of the month, month, day of the week."""
    timezone: str = "UTC"
    shares: dict[str, Numbers] = Field(default_factory=dict)
    """Slots by tenant, or per cents of the cluster: a target (`3`), or `{target: 3, minimum: 2, maximum: 6}` with some of them left out. A
    tenant that is not named goes back to its base."""

    def last(self, now: datetime) -> datetime:
        """Return when its hour came last."""
        found: datetime = croniter(self.schedule, now.astimezone(ZoneInfo(self.timezone))).get_prev(datetime)
        return found

    @field_validator("schedule")
    @classmethod
    def _comes(cls, schedule: str) -> str:
        try:
            croniter(schedule).get_next()
            fits = len(schedule.split()) == 5  # noqa: PLR2004 - cron's own
        except CroniterError:
            fits = False
        if not fits:
            message = f'{schedule!r} is no cron schedule, or never comes: write five fields like "0 22 * * *", which is at 22:00 each day'
            raise ValueError(message)
        return schedule

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            message = f"{name!r} is no time zone: write it like Europe/Bucharest"
            raise ValueError(message) from error
        return name


CONNECTION = r"conn:[A-Za-z0-9_.-]+"
"""How an address names an Airflow connection."""


class Alerts(Frozen):
    """Where alerts go; both may be absent, then they are only in the logs and in Airflow."""

    email_to: tuple[str, ...] = ()
    email_from: str = "sluice@localhost"
    smtp: str | None = Field(default=None, pattern=rf"^({CONNECTION}|[^\s/]+:\d+)$")
    """`host:port` of an SMTP server, or `conn:NAME`, an Airflow connection that may hold a login."""
    webhook: str | None = Field(default=None, pattern=rf"^({CONNECTION}|https?://\S+)$")
    """A URL that takes a JSON POST: `https://chat.example/hooks/1`, or `conn:NAME`."""


class Ec2Config(Frozen):
    """How burst hosts are launched."""

    region: str = "eu-central-1"
    image: str = "ami-12c6146b"
    instance_type: str = "m5.large"
    capacity: Capacity = Capacity(cpu=4, memory=4096)
    max_instances: int = Field(default=3, ge=0)


class S3Config(Frozen):
    """How S3, or what speaks like it, is reached. Credentials are not here: they are taken from the environment or its files."""

    endpoint: str | None = Field(default=None, pattern=r"^https?://[^/]+$")
    """`https://minio.example:9000`; None for the cloud's own, by the region."""
    region: str = "eu-central-1"


class Site(Frozen):
    """The whole file."""

    pipeline: str = Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")
    """The Python module that declares the tiers, such as `hits`."""
    hosts: tuple[HostConfig, ...]
    shares: dict[str, Share] = Field(default_factory=dict)
    """Tenant (a tier, or `batch`) → its minimum, target and maximum: in slots (`3`), or in per cent (`80%`) of the quanta of this tenant
    that the site's own hosts would hold if they held nothing else."""
    locality: dict[str, Place] = Field(default_factory=dict)
    """Tenant → where it has to be. Default: anywhere on the site's own hosts."""
    spread: dict[str, Spread] = Field(default_factory=dict)
    """Tier → how many of its workers may be on one host, in one rack, in one zone. Default: any number."""
    separate: tuple[frozenset[str], ...] = ()
    """Groups of tiers, no two of which may have anything on the same host. Default: none."""
    dedicated: dict[Place, frozenset[str]] = Field(default_factory=dict)
    """A place → the tenants that alone may be there; what sends them there is `locality`. Default: every host takes all."""
    budget: dict[str, int] = Field(default_factory=dict)
    """Tier → how many workers of its share a change may leave it without. Default: all that are above its minimum."""
    repair_seconds: float | None = Field(default=None, ge=30)
    """How long a tier may have drifted before the controller repairs it by itself, one tier at a time. Unit: seconds. Default: until a
    person says `sluice drift --repair`, for a repair is a hand-over. With 1800, half an hour, what comes and goes moves
    nothing; a tier that is starved of processor time waits five minutes at most."""
    shifts: dict[str, ShiftConfig] = Field(default_factory=dict)
    reclaim_seconds: float = Field(default=120.0, ge=0)
    """How long the tasks in a batch slot that a tier needs may go on; what is left then is ended. Unit: seconds. Default: two minutes, in
    which most tasks end by themselves. Agents read it when they start."""
    batch_quantum: Quantum = Quantum(cpu=1, memory=1024, threads=2)
    partitions: int = Field(default=4, ge=1, le=1000)
    """Partitions of each stream that the platform creates."""
    replication: int = Field(default=3, ge=1, le=100)
    """On how many brokers each record of each stream is. With 1, the loss of one broker's disk loses acknowledged records: only a site that
    says so gets that. Default: 3, which takes three brokers."""
    in_sync: int | None = Field(default=None, ge=1)
    """How many brokers have a record before it is acknowledged (Kafka's `min.insync.replicas`); with fewer of them up, senders wait.
    Default: 2, or 1 with `replication: 1`."""
    checkpoints: str | None = None
    """Where tiers with state keep their checkpoints: in a bucket, `s3a://bucket/folder`. None: below the home that all hosts share."""
    s3: S3Config = S3Config()
    reboot: tuple[str, ...] = Field(default=("systemctl", "reboot"), min_length=1)
    """The command that an agent runs to reboot its host; `{host}` is its name."""
    alerts: Alerts = Alerts()
    ec2: Ec2Config = Ec2Config()

    @property
    def durability(self) -> Durability:
        """How a stream's records are kept."""
        return Durability(
            self.replication, min(2, self.replication) if self.in_sync is None else self.in_sync
        )

    @model_validator(mode="after")
    def _keeps_what_is_acknowledged(self) -> Self:
        replication, in_sync = self.durability
        if in_sync > replication:
            message = f"in_sync: {in_sync} brokers cannot have a record that {replication} are to have; lower in_sync or raise replication"
            raise ValueError(message)
        if in_sync == 1 < replication:
            message = (
                f"in_sync: 1 acknowledges a record that one broker alone has: its disk can take it along, whatever replication "
                f"({replication}) says; write in_sync: 2, or leave the key out; where such a loss is acceptable, write replication: 1"
            )
            raise ValueError(message)
        return self

    @field_validator("hosts")
    @classmethod
    def _each_once(cls, hosts: tuple[HostConfig, ...]) -> tuple[HostConfig, ...]:
        twice = [name for name, count in Counter(host.name for host in hosts).items() if count > 1]
        if twice:
            message = f"{', '.join(twice)} is there more than once; give each host a name of its own"
            raise ValueError(message)
        links = Counter((host.address, host.network.interface) for host in hosts if host.network is not None)
        shared = [link for link, count in links.items() if count > 1]
        if shared:
            address, interface = shared[0]
            message = f"{interface} at {address} is the network of more than one host; leave the key out of all but one of them"
            raise ValueError(message)
        return hosts

    @field_validator("separate")
    @classmethod
    def _of_two(cls, groups: tuple[frozenset[str], ...]) -> tuple[frozenset[str], ...]:
        for group in groups:
            if len(group) < 2:  # noqa: PLR2004 - nothing is separate from itself
                message = f"{sorted(group)} is no group: name two tiers or more, such as [counts, outbound]"
                raise ValueError(message)
        return groups

    @field_validator("budget")
    @classmethod
    def _no_less_than_nothing(cls, budget: dict[str, int]) -> dict[str, int]:
        for tier, slots in budget.items():
            if slots < 0:
                message = f"{tier}: {slots} is no number of workers; 0 lets a change take none away"
                raise ValueError(message)
        return budget

    @field_validator("checkpoints")
    @classmethod
    def _in_a_bucket(cls, url: str | None) -> str | None:
        if url is not None and not re.fullmatch(
            r"s3a://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._=-]+)*/?", url
        ):
            message = f"{url!r} is no folder of a bucket: write it like s3a://bucket/folder; without the key, the shared home has them"
            raise ValueError(message)
        return url


def nowhere(site: Site) -> list[str]:
    """Say at which of the places that a site file names none of its hosts is; hosts that it does not name may join, and be there."""
    places: set[str] = set()
    for host in site.hosts:
        places |= {host.name, f"zone:{host.zone}", *(f"label:{label}" for label in host.labels)}
        places |= set() if host.rack is None else {f"rack:{host.rack}"}
    named = [
        *((f"locality.{tier}", place) for tier, place in site.locality.items()),
        *(("dedicated", place) for place in site.dedicated),
    ]
    return [
        f"{key}: no host of the site file is at {place}; they are at {', '.join(sorted(places)) or 'none'}"
        for key, place in named
        if place not in places
    ]


class _TwiceError(Exception):
    """A key is there twice in one mapping, where YAML would let the last one win."""


class _Loader(yaml.SafeLoader):
    """Reads YAML in which each key is said once."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Look at the keys before those of `<<` are put among them."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line, name = key.start_mark.line + 1, key.value
            if not isinstance(key, yaml.ScalarNode):
                continue
            if name in lines:
                message = f"line {line}: {name} is said a second time (first in line {lines[name]}); leave one of them out"
                raise _TwiceError(message)
            lines[name] = line
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001 - as YAML's own
        """Say where a value is that its form promises and that is none, such as 2020-99-99."""
        try:
            return super().construct_object(node, deep)
        except ValueError as error:
            raise yaml.constructor.ConstructorError(
                None, None, f"{node.value!r} cannot be read: {error}", node.start_mark
            ) from error


def load(path: Path) -> Site:
    """Read and check the site file."""
    try:
        raw: Any = yaml.load(path.read_bytes(), _Loader)  # noqa: S506 - it is a SafeLoader
    except FileNotFoundError as error:
        message = f"{path}: there is no such file; copy site.yaml from the repository, or name yours with SLUICE_SITE"
        raise SiteError(message) from error
    except OSError as error:
        message = f"{path} cannot be read by user {os.geteuid()}: {error.strerror}"
        raise SiteError(message) from error
    except _TwiceError as error:
        message = f"{path}: {error}"
        raise SiteError(message) from error
    except yaml.YAMLError as error:
        message = f"{path}: not YAML: {error}"
        raise SiteError(message) from error
    if not isinstance(raw, dict):
        message = f"{path}: expected keys such as `pipeline:` and `hosts:`, found {type(raw).__name__}"
        raise SiteError(message)
    try:
        return Site.model_validate(raw)
    except ValidationError as error:
        raise SiteError("\n".join(f"{path}: {line}" for line in explain(error, Site))) from error
