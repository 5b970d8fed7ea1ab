"""The site file: the pipeline of a site, its hosts, shares, places and shifts.

`Site` is the whole file; each field is a key, and its docstring describes it. Errors name the key.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from sluice_ops.model.alert import AlertSettings
from sluice_ops.model.batch import DEFAULT_TENANT, BatchTenant, BatchTenantName
from sluice_ops.model.ids import BATCH, HostName
from sluice_ops.model.kafka_access import Durability
from sluice_ops.model.resources import Capacity, Cores, Frozen, Link, Quantum
from sluice_ops.model.scaler import ScalerSettings
from sluice_ops.model.share import PipelineShare, Share, is_zero
from sluice_ops.model.spread import Spread
from sluice_ops.model.wording import listed
from sluice_ops.site.approval_config import ApprovalConfig, approval_of
from sluice_ops.site.ec2_config import Ec2Config
from sluice_ops.site.pipeline_share import check_minimums
from sluice_ops.site.repair_config import RepairConfig, WindowConfig, repair_of
from sluice_ops.site.shift_config import ShiftConfig, ShiftName, check_times
from sluice_ops.site.validation_errors import explain


class SiteError(Exception):
    """The site file is unusable; the message names the key and the cause."""


def _place(place: str) -> str:
    if not re.fullmatch(r"(zone|rack|label):.+|[^:]+", place):
        message = f"{place!r} is not a place: write a host's name, zone:z, rack:r or label:l"
        raise ValueError(message)
    return place


Place = Annotated[str, AfterValidator(_place)]
"""`zone:z`, `rack:r`, `label:l` or a host's name."""


HOST_NAME = r"^[a-z][a-z0-9-]*$"
"""The names that a host may have, in the site file or as a host that joins."""


_ADDRESS = r"[A-Za-z0-9:][A-Za-z0-9:._-]*"


def _host_name(name: str) -> str:
    if not re.match(HOST_NAME, name):
        message = (
            f"{name!r} is not a host's name: "
            "write small letters, digits and -, and begin with a letter, such as h4"
        )
        raise ValueError(message)
    return name


def _address(address: str) -> str:
    if not re.fullmatch(_ADDRESS, address):
        message = (
            f"{address!r} is not an address: write the address by which other hosts reach this host, "
            "such as 10.0.0.4 or h4.example.com"
        )
        raise ValueError(message)
    return address


class HostConfig(Frozen):
    """One host."""

    name: Annotated[str, AfterValidator(_host_name)]
    """Small letters, digits and `-`, beginning with a letter, such as `h4`."""
    address: Annotated[str, AfterValidator(_address)]
    """The address by which other hosts reach this host."""
    zone: str = "onprem"
    """The group of hosts that the host belongs to; a tier's place may be `zone:NAME`."""
    rack: str | None = None
    """The hosts of a zone that may fail together, such as behind one switch. Default: none."""
    labels: tuple[str, ...] = ()
    """Names of properties; a tier's place may be `label:NAME`."""
    capacity: Capacity
    """The CPU (cores) and memory that slots and drivers may take: `{cpu: 8, memory: 16g}`."""
    network: Link | None = None
    """The link that the agent divides among slots and drivers, by `quantum.network`.

    Such as `{interface: eth0, mbit: 10000}`. The agent needs root, and replaces the interface's
    queue (qdisc). Agents read this key at their start. Default: the network is not divided.
    """
    cores: Cores = "shared"
    """`own`: each slot or driver with a whole `quantum.cpu` gets as many processors for itself.

    A busy unit then costs its neighbours nothing, but nobody uses the processors of an idle unit.
    Agents read this key at their start. Default: `shared`, so that no processor is idle while a
    unit could use it.
    """


CONNECTION = r"conn:[A-Za-z0-9_.-]+"
"""A reference to an Airflow connection, `conn:NAME`."""


class Alerts(AlertSettings):
    """Receivers of alerts.

    With `channels`, the controller tells all alerts, Airflow sends nothing, and `email_to`, `smtp`
    and `webhook` are unused.
    """

    email_to: tuple[str, ...] = ()
    """The addresses that receive each alert; they need `smtp`."""
    email_from: str = "sluice@localhost"
    """The sender of the mails."""
    smtp: str | None = Field(default=None, pattern=rf"^({CONNECTION}|[^\s/]+:\d+)$")
    """`host:port` of an SMTP server, or `conn:NAME`, an Airflow connection that may have a
    login.
    """
    webhook: str | None = Field(default=None, pattern=rf"^({CONNECTION}|https?://\S+)$")
    """A URL that accepts a JSON POST, such as `https://chat.example/hooks/1`, or `conn:NAME`."""


class S3Config(Frozen):
    """The S3 service for `checkpoints`.

    Credentials are not in the site file: boto3 and Spark read them from the environment or its
    files (the page "Checkpoints in S3" of the documentation).
    """

    endpoint: str | None = Field(default=None, pattern=r"^https?://[^/]+$")
    """Such as `https://minio.example:9000`. None: the region's own endpoint."""
    region: str = "eu-central-1"
    """The region of the bucket."""


class Site(Frozen):
    """The whole site file."""

    pipeline: str = Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")
    """The Python module that declares the tiers, such as `hits`."""
    hosts: tuple[HostConfig, ...]
    """The hosts of the site; other hosts may join with a token."""
    shares: dict[str, Share] = Field(default_factory=dict)
    """Tenant (a tier, or `batch`) → its minimum, target and maximum.

    A number counts slots (`3`). A per cent (`80%`) is a part of the tenant's quanta that the site's
    own hosts would hold if they held nothing else. `{target: 2, spare: 1}` gives a tier a third
    worker that waits until it is needed.
    """
    pipeline_share: PipelineShare | None = None
    """What all tiers have together: `80%`, or `{minimum: 60%, maximum: 80%}`.

    Slots or per cents, as in `shares`. Above the maximum, the tiers divide it: minimums first, then
    equal parts, spares last. `batch` gives slots back, also from its own minimum, while the tiers
    lack what they need of the minimum. Bursts on EC2 do not count. Default: no limit.
    """
    locality: dict[str, Place] = Field(default_factory=dict)
    """Tenant → its required place. Default: any of the site's own hosts."""
    spread: dict[str, Spread] = Field(default_factory=dict)
    """Tier → the most workers of it on one host, in one rack, in one zone. Default: no limit."""
    pinned: dict[str, dict[HostName, PositiveInt]] = Field(default_factory=dict)
    """Tier → host → how many of its workers are there whenever the host can take them.

    Such as `{enrich: {h3: 1}}`. While the host is away or full, they run elsewhere. Default: none.
    """
    separate: tuple[frozenset[str], ...] = ()
    """Groups of tiers; two tiers of a group never run on the same host. Default: none."""
    dedicated: dict[Place, frozenset[str]] = Field(default_factory=dict)
    """Place → the only tenants that may run there; `locality` sends them there. Default: none."""
    budget: dict[str, int] = Field(default_factory=dict)
    """Tier → the most workers of its share that a change may leave it without.

    Default: all workers above its minimum.
    """
    repair: Annotated[RepairConfig | None, BeforeValidator(repair_of)] = None
    """Whether the controller repairs drift by itself: `on`, `off`, or keys such as `{after: 1800}`.

    Default: off, because a repair is a handover; run `sluice drift --repair`.
    """
    shifts: dict[ShiftName, ShiftConfig] = Field(default_factory=dict)
    """Shift → its schedule and shares, such as `night` and `day`.

    Any number of shifts. Two shifts that begin at the same time are refused. The DAG `NAME_shift`
    begins each shift.
    """
    scaler: ScalerSettings = ScalerSettings()
    """How the scaler finds the slots of each tier from its load.

    Such as `{tiers: {enrich: {mode: act}}}`. Default: advice about every tier, and no change.
    """
    reclaim_seconds: float = Field(default=60.0, ge=0)
    """Seconds until a slot of `batch` is back when a tier needs it; `sluice batch` measures this.

    Tasks in the slot may continue until ten seconds before; the rest is killed. Agents read this
    key at their start.
    """
    batch_quantum: Quantum = Quantum(cpu=1, memory=1024, threads=2)
    """The quantum of each slot of `batch`."""
    batch_tenants: dict[BatchTenantName, BatchTenant] = Field(
        default={DEFAULT_TENANT: BatchTenant()}, min_length=1
    )
    """Batch tenant → the minimum, maximum and priority of its batch jobs.

    Such as `{reports: {minimum: 1, maximum: 2, priority: 10}, training: {}}`. The tenants divide
    the slots of `batch`. Default: the tenant `default`, which may have all slots.
    """
    partitions: int = Field(default=4, ge=1, le=1000)
    """Partitions of each stream that Sluice creates."""
    replication: int = Field(default=3, ge=1, le=100)
    """The number of brokers that keep each record of each stream.

    With 1, the loss of one broker's disk loses acknowledged records. Default: 3, which needs three
    brokers.
    """
    in_sync: int | None = Field(default=None, ge=1)
    """The number of brokers that have a record before Kafka acknowledges it: `min.insync.replicas`.

    If fewer brokers are up, senders wait. Default: 2, or 1 with `replication: 1`.
    """
    packed_lineage: bool = False
    """Whether records carry their lineage in one header, not in the five of former versions.

    One header takes less processor time. Write `true` when all hosts run a version that knows this
    key, and every driver was started by it; an older one could not read the records. Drivers and
    replays read this key at their start.
    """
    checkpoints: str | None = None
    """The folder of checkpoints in a bucket: `s3a://bucket/folder`.

    None: below the home that all hosts share.
    """
    s3: S3Config = S3Config()
    """The S3 service that has the bucket of `checkpoints`."""
    schema_registry: str | None = Field(default=None, pattern=r"^https?://[^\s/@?#]+(/[^\s?#]+)*$")
    """The address of the schema registry, for Avro and Protobuf, such as `http://registry:8081`.

    Any registry with Confluent's interface. Every host reaches it. Default: none.
    """
    reboot: tuple[str, ...] = Field(default=("systemctl", "reboot"), min_length=1)
    """The command with which an agent reboots its host; `{host}` stands for the host's name."""
    reboot_window: WindowConfig | None = None
    """When batches of `rolling_reboot` may begin.

    Such as `{schedule: "0 1 * * *", hours: 4, timezone: Europe/Bucharest, not_on: [2026-12-25]}`.
    Default: at any time.
    """
    approval: Annotated[ApprovalConfig | None, BeforeValidator(approval_of)] = ApprovalConfig()
    """When a change waits until a second person approves it: `off`, or keys such as `{tiers: 3}`.

    Default: a write-off, a pause of every tier, and a burst over `ec2.max_cost_per_day`. Every
    other change begins at once.
    """
    alerts: Alerts = Alerts()
    """The receivers of alerts."""
    ec2: Ec2Config = Ec2Config()
    """The instances that a burst launches."""

    @property
    def durability(self) -> Durability:
        """The replicas of each stream."""
        return Durability(
            self.replication, min(2, self.replication) if self.in_sync is None else self.in_sync
        )

    @property
    def lending_shifts(self) -> tuple[str, ...]:
        """The shifts that give slots to the tenant `batch`."""
        share = self.shares.get(BATCH, Share())
        return tuple(name for name, shift in self.shifts.items() if shift.gives(BATCH, share))

    @model_validator(mode="before")
    @classmethod
    def _with_former_key(cls, site: Any) -> Any:
        """Read `repair_seconds: 1800` of former versions as `repair: {after: 1800}`."""
        if not isinstance(site, dict) or "repair_seconds" not in site or "repair" in site:
            return site
        seconds = site["repair_seconds"]
        others = {key: value for key, value in site.items() if key != "repair_seconds"}
        return {**others, "repair": None if seconds is None else {"after": seconds}}

    @model_validator(mode="after")
    def _keeps_acknowledged_records(self) -> Self:
        replication, in_sync = self.durability
        if in_sync > replication:
            message = (
                f"in_sync is {in_sync}, but replication keeps each record on {replication} brokers only; "
                "lower in_sync or raise replication"
            )
            raise ValueError(message)
        if in_sync == 1 < replication:
            message = (
                "with in_sync: 1, Kafka acknowledges a record that only one broker has; "
                f"the loss of its disk loses the record, despite replication: {replication}; "
                "write in_sync: 2, or remove in_sync; if you accept the loss, write replication: 1"
            )
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _has_slots_for_minimums(self) -> Self:
        minimums = sum(tenant.minimum for tenant in self.batch_tenants.values())
        shares = [
            self.shares.get(BATCH, Share(maximum=0)),
            *(shift.shares.get(BATCH) for shift in self.shifts.values()),
        ]
        most = [share.maximum for share in shares if share is not None and share.maximum is not None]
        # a per cent depends on the hosts
        largest = max((amount for amount in most if isinstance(amount, int)), default=0)
        if minimums > largest and all(isinstance(amount, int) for amount in most):
            message = (
                f"batch_tenants: the minimums add up to {minimums} slots, but batch has at most {largest}; "
                "lower a minimum, or raise the maximum of batch in shares"
            )
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _has_slots_for_tiers(self) -> Self:
        if self.pipeline_share is not None:
            try:
                check_minimums(
                    self.pipeline_share,
                    self.shares,
                    {name: shift.shares for name, shift in self.shifts.items()},
                )
            except ValueError as error:
                message = f"pipeline_share: {error}"
                raise ValueError(message) from error
        return self

    @field_validator("hosts")
    @classmethod
    def _unique(cls, hosts: tuple[HostConfig, ...]) -> tuple[HostConfig, ...]:
        repeated = [name for name, count in Counter(host.name for host in hosts).items() if count > 1]
        if repeated:
            message = f"two hosts have the name {', '.join(repeated)}; give each host a different name"
            raise ValueError(message)
        links = Counter((host.address, host.network.interface) for host in hosts if host.network is not None)
        shared = [link for link, count in links.items() if count > 1]
        if shared:
            address, interface = shared[0]
            message = (
                f"two hosts have {interface} at {address} as network; "
                "keep the key `network` at one of these hosts"
            )
            raise ValueError(message)
        return hosts

    @field_validator("shares")
    @classmethod
    def _no_spares_of_batch(cls, shares: dict[str, Share]) -> dict[str, Share]:
        if BATCH in shares and not is_zero(shares[BATCH].spare):
            message = "batch has no spares, because its jobs share all slots; remove spare from shares.batch"
            raise ValueError(message)
        return shares

    @field_validator("shifts")
    @classmethod
    def _at_different_times(cls, shifts: dict[str, ShiftConfig]) -> dict[str, ShiftConfig]:
        check_times(shifts)
        return shifts

    @field_validator("separate")
    @classmethod
    def _groups_of_two(cls, groups: tuple[frozenset[str], ...]) -> tuple[frozenset[str], ...]:
        for group in groups:
            if len(group) < 2:  # noqa: PLR2004 - one tier cannot be separate from itself
                message = (
                    f"{sorted(group)} is not a group: name at least two tiers, such as [counts, outbound]"
                )
                raise ValueError(message)
        return groups

    @field_validator("budget")
    @classmethod
    def _not_negative(cls, budget: dict[str, int]) -> dict[str, int]:
        for tier, slots in budget.items():
            if slots < 0:
                message = (
                    f"{tier}: {slots} is not a number of workers; with 0, no change may take a worker away"
                )
                raise ValueError(message)
        return budget

    @field_validator("checkpoints")
    @classmethod
    def _in_a_bucket(cls, url: str | None) -> str | None:
        if url is not None and not re.fullmatch(
            r"s3a://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._=-]+)*/?", url
        ):
            message = (
                f"{url!r} is not a folder of a bucket: write it like s3a://bucket/folder, "
                "or remove the key to keep checkpoints in the shared home"
            )
            raise ValueError(message)
        return url


def unmatched_places(site: Site) -> list[str]:
    """Return a line for each place in the site file that none of its hosts has, or may have.

    Such a place is no error: hosts outside the site file may join there. Pins that another key
    forbids have a line, too: the key may change with a shift or a migration.
    """
    places = set[str]().union(*map(_places_of, site.hosts))
    named = [
        *((f"locality.{tier}", place) for tier, place in site.locality.items()),
        *(("dedicated", place) for place in site.dedicated),
        *((f"pinned.{tier}", host) for tier, pins in site.pinned.items() for host in pins),
    ]
    unmatched = [
        f"{key}: no host of the site file is at {place}; known places: {', '.join(sorted(places)) or 'none'}"
        for key, place in named
        if place not in places
    ]
    return [*unmatched, *_unmet_pins(site)]


def _places_of(host: HostConfig) -> set[str]:
    rack = set() if host.rack is None else {f"rack:{host.rack}"}
    return {host.name, f"zone:{host.zone}", *(f"label:{label}" for label in host.labels), *rack}


def _unmet_pins(site: Site) -> Iterator[str]:
    """Yield a line for the pins that `shares`, `spread`, `locality` or `dedicated` forbid."""
    for tier, pins in site.pinned.items():
        share, most_on_host = site.shares.get(tier, Share()), site.spread.get(tier, Spread()).host
        amounts = [amount for amount in (share.target, share.spare) if isinstance(amount, int)]
        if len(amounts) > 1 and sum(pins.values()) > sum(amounts):
            yield f"pinned.{tier}: {sum(pins.values())} workers, but shares.{tier} has {sum(amounts)}"
        for name, count in pins.items():
            if most_on_host is not None and count > most_on_host:
                yield f"pinned.{tier}: {count} on {name}, but spread.{tier} allows {most_on_host} on a host"
        for host in (host for host in site.hosts if host.name in pins):
            place, places = site.locality.get(tier), _places_of(host)
            if place is not None and place not in places:
                yield f"pinned.{tier}: {host.name} is not at {place}, where locality.{tier} has the tier"
            only = [tenants for to, tenants in site.dedicated.items() if to in places]
            if only and not any(tier in tenants for tenants in only):
                yield f"pinned.{tier}: {host.name} is dedicated to {listed(sorted(only[0].union(*only)))}"


class _RepeatedKeyError(Exception):
    """A mapping has a key twice; YAML alone would use the second value silently."""


class _Loader(yaml.SafeLoader):
    """Loads YAML, and refuses a mapping with a repeated key."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Check the keys before YAML adds those of `<<`."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line, name = key.start_mark.line + 1, key.value
            if not isinstance(key, yaml.ScalarNode):
                continue
            if name in lines:
                message = f"line {line}: the key {name} is already in line {lines[name]}; remove one of them"
                raise _RepeatedKeyError(message)
            lines[name] = line
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001 - as in yaml
        """Add the line to the error of an impossible value, such as the date 2020-99-99."""
        try:
            return super().construct_object(node, deep)
        except ValueError as error:
            raise yaml.constructor.ConstructorError(
                None, None, f"{node.value!r} is not a valid value: {error}", node.start_mark
            ) from error


def load(path: Path) -> Site:
    """Read and check the site file; SiteError if it is unusable."""
    try:
        return _parse(path, path.read_bytes())
    except FileNotFoundError as error:
        message = (
            f"{path} does not exist: run this in the folder of a project, make one with `sluice init NAME`, "
            "or name your site file in SLUICE_SITE"
        )
        raise SiteError(message) from error
    except OSError as error:
        message = (
            f"user {os.geteuid()} cannot read {path}: {error.strerror}; make the file readable for this user"
        )
        raise SiteError(message) from error


@lru_cache(maxsize=2)
def _parse(path: Path, text: bytes) -> Site:
    """Return the site of a file with this text.

    A site does not change, and Airflow's page reads it every two seconds.
    """
    try:
        raw: Any = yaml.load(text, _Loader)  # noqa: S506 - _Loader is a SafeLoader
    except _RepeatedKeyError as error:
        message = f"{path}: {error}"
        raise SiteError(message) from error
    except yaml.YAMLError as error:
        message = f"{path}: not YAML: {error}"
        raise SiteError(message) from error
    if not isinstance(raw, dict):
        message = (
            f"{path}: write keys such as `pipeline:` and `hosts:`; the file contains a {type(raw).__name__}"
        )
        raise SiteError(message)
    try:
        return Site.model_validate(raw)
    except ValidationError as error:
        raise SiteError("\n".join(f"{path}: {line}" for line in explain(error, Site))) from error
