"""Check this machine as a host of a site: the needs of its agent, its slots and its drivers.

Changes nothing. `sluice doctor --host` prints the findings.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from sluice_ops.agent.host.facts import (
    ForeignAddressError,
    UnknownHostError,
    check_address,
    cores_of,
    facts_of,
    link_of,
)
from sluice_ops.agent.limits import cpusets, network
from sluice_ops.agent.limits.control_group_trees import DISK, TASKS, disk_weights_count, find_trees
from sluice_ops.doctor import alerts, bucket, durability, java, reach, schema_registry
from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.kafka_access import User
from sluice_ops.model.wording import page
from sluice_ops.site import endpoints, installation, jars, spark
from sluice_ops.site import site_file as site
from sluice_ops.site.brokers import brokers
from sluice_ops.site.database import users_of
from sluice_ops.site.endpoints import Endpoints
from sluice_ops.site.installation import INSTALL_AGENT

NEEDED = ("pyspark", "kazoo", "confluent-kafka", "psycopg", "pyarrow")
"""Packages that every agent, driver and slot imports."""


@dataclass(frozen=True)
class Host:
    """The host to check, as the site file and the endpoints file describe it."""

    facts: HostFacts
    site: site.Site
    services: Endpoints
    home: Path


def examine(name: str, site_file: Path, home: Path) -> list[Finding]:
    """Run all checks in parallel.

    Without a usable site file or endpoints file, return findings about these files only.
    """
    try:
        content = site.load(site_file)
        facts = facts_of(name, content, site_file)
    except (site.SiteError, UnknownHostError) as error:
        advice = "correct the site file (the same on every host), or name the right one in SLUICE_SITE"
        return [Finding("site", Verdict.BAD, str(error), advice)]
    sentence = (
        f"{site_file} describes {name}: address {facts.address}, {facts.cpu:g} cores, {facts.memory:,} MiB"
    )
    unmatched = (
        Finding(
            "site",
            Verdict.NOTE,
            line,
            "correct the place, unless hosts outside the site file will join there",
        )
        for line in site.unmatched_places(content)
    )
    site_findings = [Finding("site", Verdict.OK, sentence), *unmatched]
    try:
        host = Host(facts, content, endpoints.load(), home)
    except (FileNotFoundError, endpoints.EndpointsError) as error:
        advice = (
            "correct the endpoints file, or name the right one in SLUICE_ENDPOINTS; "
            f"see {page('Hosts', 'Files')}"
        )
        return [*site_findings, Finding("endpoints", Verdict.BAD, str(error), advice)]
    checks = (
        _java,
        _packages,
        _jars,
        _cache,
        _address,
        _capacity,
        _groups,
        _cores,
        _network,
        _home,
        _shared,
        _bucket,
        _registry,
        _alerts,
        _access,
        _kafka,
        _durability,
        _channel,
        _services,
    )
    with ThreadPoolExecutor(len(checks)) as pool:
        return [
            *site_findings,
            *(
                finding
                for findings in pool.map(lambda check: _run(check, host), checks)
                for finding in findings
            ),
        ]


def _run(check: Callable[[Host], Iterator[Finding]], host: Host) -> list[Finding]:
    try:
        return list(check(host))
    except OSError as error:
        return [
            Finding(
                check.__name__.strip("_"),
                Verdict.BAD,
                f"user {os.geteuid()} cannot check this: {error}",
                "run the doctor as the user that the agent runs as",
            )
        ]


def _java(_host: Host) -> Iterator[Finding]:
    yield java.check()


def _packages(_host: Host) -> Iterator[Finding]:
    installed, missing = [], []
    for name in NEEDED:
        try:
            installed.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        yield Finding(
            "packages",
            Verdict.BAD,
            f"not installed: {', '.join(missing)}",
            INSTALL_AGENT,
        )
    else:
        yield Finding("packages", Verdict.OK, ", ".join(installed))


def _jars(host: Host) -> Iterator[Finding]:
    in_bucket = host.site.checkpoints is not None
    needed = [
        jar
        for jar in jars.needed(jars.locked(jars.LOCK.read_text()), buckets=in_bucket)
        if jar.folder != "broker"
    ]
    content = "the packages for Kafka, Avro and Protobuf" + (" and the jars for S3" if in_bucket else "")
    folder = host.services.home / "jars"
    faulty = jars.faulty(needed, host.services.home)
    if faulty:
        sentence = f"{folder}: " + "; ".join(
            f"{jar.folder}/{jar.file} {fault}" for jar, fault in faulty.items()
        )
        advice = f"drivers and slots need {content}: see {page('Hosts', 'Prepare each machine')}, step 5"
        yield Finding("jars", Verdict.BAD, sentence, advice)
    elif not spark.own_classes(host.services.home).exists():
        jar = spark.own_classes(host.services.home)
        sentence = f"{jar} is missing: micro-batches take longer here, and no light tier starts"
        yield Finding("jars", Verdict.NOTE, sentence, f"see {page('Hosts', 'Prepare each machine')}, step 5")
    else:
        yield Finding("jars", Verdict.OK, f"{folder} has {content}")


def _cache(host: Host) -> Iterator[Finding]:
    caches = [spark.cache_of_tiers(host.services.home), spark.cache_of_workers(host.services.home)]
    missing = [str(cache) for cache in caches if not cache.exists()]
    if missing:
        sentence = f"{', '.join(missing)} does not exist: drivers and slots start more slowly here"
        advice = "run `python -m sluice.commands.class_data` on this host after the pipeline is published"
        yield Finding("class data", Verdict.NOTE, sentence, advice)
    else:
        yield Finding("class data", Verdict.OK, ", ".join(map(str, caches)))


def _address(host: Host) -> Iterator[Finding]:
    try:
        check_address(host.facts)
    except ForeignAddressError as error:
        advice = "compare with `ip address`, and run the doctor on the host itself"
        yield Finding("address", Verdict.BAD, str(error), advice)
    else:
        yield Finding("address", Verdict.OK, f"slots can listen at {host.facts.address}")


def _capacity(host: Host) -> Iterator[Finding]:
    cores, memory = os.cpu_count() or 1, psutil.virtual_memory().total >> 20
    sentence = (
        f"the site file gives slots and drivers {host.facts.cpu:g} of {cores} cores "
        f"and {host.facts.memory:,} of {memory:,} MiB"
    )
    if host.facts.memory > memory:
        advice = (
            "lower capacity.memory in the site file: the kernel kills slots if the machine runs out of memory"
        )
        yield Finding("capacity", Verdict.BAD, sentence, advice)
    elif host.facts.cpu > cores:
        advice = "lower capacity.cpu in the site file: if all slots are busy, each gets less than its quantum"
        yield Finding("capacity", Verdict.NOTE, sentence, advice)
    else:
        yield Finding("capacity", Verdict.OK, sentence)


def _groups(host: Host) -> Iterator[Finding]:
    mounted = find_trees()
    if mounted is None:
        advice = (
            "mount control groups version 2 with the controllers cpu and memory; "
            "until then slots have no limits"
        )
        yield Finding("groups", Verdict.NOTE, "no control groups for cpu and memory are mounted", advice)
    elif os.geteuid() == 0:
        yield Finding("groups", Verdict.OK, f"{mounted.version.name}; an agent of root can limit its slots")
    else:
        sentence = (
            f"{mounted.version.name}; an agent of user {os.geteuid()} can limit its slots "
            "only in a control group that is delegated to it"
        )
        advice = (
            "use the unit file in deploy/systemd, which delegates a group; "
            "the line `agent` shows the limits of a running agent"
        )
        yield Finding("groups", Verdict.NOTE, sentence, advice)
    if mounted is not None and TASKS not in mounted.at:
        advice = (
            "mount or delegate `pids`: without it, a slot with too many threads leaves none for the "
            "other slots"
        )
        yield Finding("threads", Verdict.NOTE, "the cgroup controller `pids` is missing", advice)
    divided = DISK in mounted.at and disk_weights_count(host.home) if mounted is not None else None
    if divided is False:
        sentence = (
            f"the disk of {host.home} is not divided by quantum.io: the disk's scheduler has no weights"
        )
        advice = f"write bfq into the disk's queue/scheduler below /sys/block; see {page('Limits', 'Disk')}"
        yield Finding("disk weights", Verdict.NOTE, sentence, advice)
    elif divided:
        yield Finding("disk weights", Verdict.OK, f"the disk of {host.home} is divided by quantum.io")


def _cores(host: Host) -> Iterator[Finding]:
    if cores_of(host.facts.name, host.site) == "shared":
        advice = (
            f"nothing to do, unless busy slots slow down their neighbours: then see {page('Limits', 'Cores')}"
        )
        yield Finding("cores", Verdict.NOTE, cpusets.NOT_ASKED, advice)
    elif (obstacle := cpusets.missing_requirement(find_trees())) is not None:
        yield Finding(
            "cores",
            Verdict.NOTE,
            f"slots cannot have cores of their own: {obstacle}",
            f"see {page('Limits', 'Cores')}; until then all slots share the processors",
        )
    elif (shortage := cpusets.processor_shortage(host.facts.cpu)) is not None:
        yield Finding(
            "cores",
            Verdict.NOTE,
            f"not every slot can have cores of its own: {shortage}",
            "lower capacity.cpu in the site file",
        )
    else:
        yield Finding(
            "cores",
            Verdict.OK,
            "slots with a whole quantum.cpu have cores of their own; the others share the rest",
        )


def _network(host: Host) -> Iterator[Finding]:
    link = link_of(host.facts.name, host.site)
    if link is None:
        advice = (
            "nothing to do, unless slots must share the network by weights: "
            f"then see {page('Limits', 'Network')}"
        )
        yield Finding("network", Verdict.NOTE, network.NOT_ASKED, advice)
    elif (obstacle := network.missing_requirement(link)) is not None:
        yield Finding(
            "network",
            Verdict.NOTE,
            f"{link.interface} cannot be divided: {obstacle}",
            f"see {page('Limits', 'Network')}; until then slots send without weights",
        )
    else:
        yield Finding(
            "network",
            Verdict.OK,
            f"an agent of root divides {link.interface}, {link.mbit} mbit, by quantum.network",
        )


def _home(host: Host) -> Iterator[Finding]:
    yield _writable("home", host.home, "set SLUICE_HOME to a folder that the agent's user owns")
    free = installation.free(host.home)
    if free < installation.LOW:
        yield Finding(
            "disk",
            Verdict.BAD,
            f"{free:,} MiB free at {host.home}",
            "make room: slots write their logs and shuffles there",
        )
    else:
        yield Finding("disk", Verdict.OK, f"{free:,} MiB free at {host.home}")


def _shared(host: Host) -> Iterator[Finding]:
    advice = (
        "mount the shared folder as on every other host, writable by the agent's user: it holds checkpoints"
    )
    yield _writable("shared folder", host.services.home, advice)


def _bucket(host: Host) -> Iterator[Finding]:
    return bucket.check(host.site)


def _registry(host: Host) -> Iterator[Finding]:
    return schema_registry.check(host.site)


def _alerts(host: Host) -> Iterator[Finding]:
    return alerts.check(host.home)


def _writable(name: str, folder: Path, advice: str) -> Finding:
    if not folder.is_dir():
        return Finding(name, Verdict.BAD, f"{folder} does not exist", advice)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(name, Verdict.BAD, f"user {os.geteuid()} cannot write to {folder}", advice)
    return Finding(name, Verdict.OK, f"{folder} is writable")


def _access(host: Host) -> Iterator[Finding]:
    """Check that the host has the credentials of agent and driver, but not the admin's."""
    if host.services.access is None:
        sentence = (
            "the endpoints file names no roles: every process that reaches ZooKeeper can change everything"
        )
        advice = f"create credentials and set access lists: see {page('Access', 'ZooKeeper')}"
        yield Finding("access", Verdict.NOTE, sentence, advice)
        return
    try:
        for role in (Role.AGENT, Role.DRIVER):
            host.services.required_credential(role)
        admin = host.services.credential(Role.ADMIN)
    except endpoints.EndpointsError as error:
        yield Finding("access", Verdict.BAD, str(error), f"for the files, see {page('Access', 'ZooKeeper')}")
        return
    if admin is not None and admin.password is not None:
        yield Finding(
            "access",
            Verdict.NOTE,
            f"the admin's credential is in {admin.folder}",
            "keep it on another machine: no process of a host needs it",
        )
    else:
        yield Finding(
            "access",
            Verdict.OK,
            f"the credentials of agent and driver are in {host.services.access.credentials}",
        )


def _kafka(host: Host) -> Iterator[Finding]:
    """Check that the host has the Kafka password of its drivers, if Kafka asks for users."""
    address = brokers(host.services.kafka)
    if address.users is None:
        sentence = "Kafka asks for no user: every process that reaches Kafka reads and writes all records"
        yield Finding("kafka's users", Verdict.NOTE, sentence, f"create users: see {page('Access', 'Kafka')}")
        return
    try:
        host.services.kafka_as(User.DRIVER)
    except endpoints.EndpointsError as error:
        advice = f"for the files, see {page('Access', 'Kafka')}"
        yield Finding("kafka's users", Verdict.BAD, str(error), advice)
    else:
        yield Finding("kafka's users", Verdict.OK, f"the driver's password is in {address.users}")


def _durability(_host: Host) -> Iterator[Finding]:
    return durability.check(Path(sys.executable), os.environ, User.DRIVER)


def _channel(host: Host) -> Iterator[Finding]:
    try:
        credential = host.services.credential(Role.AGENT)
    except endpoints.EndpointsError:
        credential = None  # _access reports this
    return reach.check_zookeeper(host.services.zookeeper, credential, host.facts.name)


def _services(host: Host) -> Iterator[Finding]:
    yield from reach.check_servers("kafka", brokers(host.services.kafka).servers)
    yield from reach.check_servers("spark", host.services.spark.removeprefix("spark://"))
    yield from _database(host)


def _database(host: Host) -> Iterator[Finding]:
    """Check the clock, and that drivers of this host can connect to PostgreSQL as their role."""
    try:
        url = host.services.postgres_as(Role.DRIVER)
        yield reach.check_postgres(url)
        yield from reach.check_clock(url)
    except endpoints.EndpointsError as error:
        advice = f"for the password files, see {page('Access', 'PostgreSQL')}"
        yield Finding("postgres", Verdict.BAD, str(error), advice)
    if users_of(host.services.postgres) is None:
        sentence = "PostgreSQL has no roles: every process works as the same user, which owns all tables"
        advice = f"create roles: see {page('Access', 'PostgreSQL')}"
        yield Finding("postgres's roles", Verdict.NOTE, sentence, advice)
    file = endpoints.file()
    if "password" in json.loads(file.read_bytes()).get("airflow", {}):
        sentence = f"{file} holds a password of Airflow, which no process of a host needs"
        yield Finding("airflow", Verdict.NOTE, sentence, f"remove `airflow.password` from {file}")
