"""Look at this machine as one host of a site: what its agent needs, and what its slots and drivers will need. Changes nothing."""

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
from sluice_ops.doctor import alerts, bucket, durability, java, reach
from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.kafka_access import User
from sluice_ops.site import endpoints, installation, jars, spark
from sluice_ops.site import site_file as site
from sluice_ops.site.brokers import brokers
from sluice_ops.site.database import users_of
from sluice_ops.site.endpoints import Endpoints

NEEDED = ("pyspark", "kazoo", "confluent-kafka", "psycopg", "pyarrow")
"""Packages that agents, drivers and slots cannot do without."""


@dataclass(frozen=True)
class Host:
    """What is known about the host before it is looked at."""

    facts: HostFacts
    site: site.Site
    where: Endpoints
    home: Path


def examine(name: str, site_file: Path, home: Path) -> list[Finding]:
    """Look at everything side by side; without the two files that say what there should be, at those alone."""
    try:
        found = site.load(site_file)
        facts = facts_of(name, found, site_file)
    except (site.SiteError, UnknownHostError) as error:
        return [
            Finding(
                "site",
                Verdict.BAD,
                str(error),
                "the site file is the same on every host; SLUICE_SITE names it",
            )
        ]
    said = f"{site_file} knows {name} at {facts.address}, with {facts.cpu:g} cores and {facts.memory:,} MiB"
    astray = (
        Finding(
            "site", Verdict.NOTE, line, "mend it, unless hosts that are not in the file are to join there"
        )
        for line in site.nowhere(found)
    )
    known = [Finding("site", Verdict.OK, said), *astray]
    try:
        host = Host(facts, found, endpoints.load(), home)
    except (FileNotFoundError, endpoints.EndpointsError) as error:
        return [
            *known,
            Finding(
                "endpoints", Verdict.BAD, str(error), "SLUICE_ENDPOINTS names it; docs/hosts.md shows one"
            ),
        ]
    looks = (
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
        _alerts,
        _access,
        _kafka,
        _durability,
        _channel,
        _services,
    )
    with ThreadPoolExecutor(len(looks)) as pool:
        return [
            *known,
            *(
                finding
                for findings in pool.map(lambda look: _made(look, host), looks)
                for finding in findings
            ),
        ]


def _made(look: Callable[[Host], Iterator[Finding]], host: Host) -> list[Finding]:
    try:
        return list(look(host))
    except OSError as error:
        advice = "run the doctor as the user that the agent runs as"
        return [
            Finding(
                look.__name__.strip("_"),
                Verdict.BAD,
                f"cannot be looked at by user {os.geteuid()}: {error}",
                advice,
            )
        ]


def _java(_host: Host) -> Iterator[Finding]:
    yield java.look()


def _packages(_host: Host) -> Iterator[Finding]:
    found, missing = [], []
    for name in NEEDED:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        yield Finding(
            "packages",
            Verdict.BAD,
            f"{', '.join(missing)} not installed",
            "run `make install` in the folder that Sluice is in",
        )
    else:
        yield Finding("packages", Verdict.OK, ", ".join(found))


def _jars(host: Host) -> Iterator[Finding]:
    known = jars.needed(jars.locked(jars.LOCK.read_text()), buckets=host.site.checkpoints is not None)
    needed = [jar for jar in known if jar.folder != "broker"]
    what = "Spark's Kafka connector" + (
        " and what it reads buckets with" if host.site.checkpoints is not None else ""
    )
    folder = host.where.home / "jars"
    amiss = jars.wrong(needed, host.where.home)
    if amiss:
        sentence = f"{folder}: " + "; ".join(f"{jar.folder}/{jar.file} {why}" for jar, why in amiss.items())
        yield Finding(
            "jars", Verdict.BAD, sentence, f"drivers and slots need {what}; docs/hosts.md brings it"
        )
    else:
        yield Finding("jars", Verdict.OK, f"{what} is in {folder}")


def _cache(host: Host) -> Iterator[Finding]:
    caches = [spark.cache_of_tiers(host.where.home), spark.cache_of_workers(host.where.home)]
    missing = [str(cache) for cache in caches if not cache.exists()]
    if missing:
        sentence = f"{', '.join(missing)}: not there, so what is placed here starts slower"
        yield Finding(
            "class data",
            Verdict.NOTE,
            sentence,
            "run `python -m sluice.commands.class_data` here, once the pipeline is published",
        )
    else:
        yield Finding("class data", Verdict.OK, ", ".join(map(str, caches)))


def _address(host: Host) -> Iterator[Finding]:
    try:
        check_address(host.facts)
    except ForeignAddressError as error:
        yield Finding(
            "address",
            Verdict.BAD,
            str(error),
            "look at `ip address`; the doctor has to run on the host itself",
        )
    else:
        yield Finding("address", Verdict.OK, f"slots can listen at {host.facts.address}")


def _capacity(host: Host) -> Iterator[Finding]:
    cores, memory = os.cpu_count() or 1, psutil.virtual_memory().total >> 20
    sentence = f"the site file gives away {host.facts.cpu:g} cores and {host.facts.memory:,} MiB of {cores} and {memory:,}"
    if host.facts.memory > memory:
        yield Finding(
            "capacity",
            Verdict.BAD,
            sentence,
            "lower capacity.memory: slots would be killed when the machine is full",
        )
    elif host.facts.cpu > cores:
        yield Finding(
            "capacity",
            Verdict.NOTE,
            sentence,
            "lower capacity.cpu: slots will wait for each other when all are busy",
        )
    else:
        yield Finding("capacity", Verdict.OK, sentence)


def _groups(host: Host) -> Iterator[Finding]:
    found = find_trees()
    if found is None:
        advice = "slots run without limits; mount cgroup version 2 with its controllers cpu and memory"
        yield Finding("groups", Verdict.NOTE, "no control groups for cpu and memory are mounted", advice)
    elif os.geteuid() == 0:
        yield Finding("groups", Verdict.OK, f"{found.version.name}; an agent of root's can limit its slots")
    else:
        sentence = f"{found.version.name}; an agent of user {os.geteuid()} can limit its slots only in a group that is delegated to it"
        yield Finding(
            "groups",
            Verdict.NOTE,
            sentence,
            "deploy/systemd has a unit file that does so; what the agent has is said below",
        )
    if found is not None and TASKS not in found.at:
        advice = "without it a slot that starts ever more threads takes them from the whole host"
        yield Finding("threads", Verdict.NOTE, "the controller `pids` is not there", advice)
    divided = DISK in found.at and disk_weights_count(host.home) if found is not None else None
    if divided is False:
        sentence = (
            f"slots do not share the disk of {host.home} by their quantum.io: its scheduler knows no weights"
        )
        yield Finding(
            "disk weights",
            Verdict.NOTE,
            sentence,
            "write bfq into the disk's queue/scheduler below /sys/block",
        )
    elif divided:
        yield Finding("disk weights", Verdict.OK, f"slots share the disk of {host.home} by their quantum.io")


def _cores(host: Host) -> Iterator[Finding]:
    if cores_of(host.facts.name, host.site) == "shared":
        advice = "docs/limits.md, Cores, if one that takes all it can is to cost the others nothing"
        yield Finding("cores", Verdict.NOTE, cpusets.NOT_ASKED, advice)
    elif (why := cpusets.missing_requirement(find_trees())) is not None:
        yield Finding(
            "cores",
            Verdict.NOTE,
            f"slots cannot have cores of their own: {why}",
            "without it all slots share the processors",
        )
    elif (few := cpusets.processor_shortage(host.facts.cpu)) is not None:
        yield Finding(
            "cores",
            Verdict.NOTE,
            f"not every slot can have cores of its own: {few}",
            "lower capacity.cpu in the site file",
        )
    else:
        yield Finding(
            "cores",
            Verdict.OK,
            "slots with a whole quantum.cpu have cores of their own; the others share what is left",
        )


def _network(host: Host) -> Iterator[Finding]:
    link = link_of(host.facts.name, host.site)
    if link is None:
        yield Finding(
            "network",
            Verdict.NOTE,
            network.NOT_ASKED,
            "docs/limits.md, Network, if what runs here should differ in it",
        )
    elif (why := network.missing_requirement(link)) is not None:
        yield Finding(
            "network",
            Verdict.NOTE,
            f"{link.interface} cannot be divided: {why}",
            "without it all slots send as they can",
        )
    else:
        yield Finding(
            "network",
            Verdict.OK,
            f"an agent of root's divides {link.interface}, {link.mbit} mbit, by quantum.network",
        )


def _home(host: Host) -> Iterator[Finding]:
    yield _writable("home", host.home, "set SLUICE_HOME to a folder of the agent's user")
    free = installation.free(host.home)
    if free < installation.LOW:
        yield Finding(
            "disk",
            Verdict.BAD,
            f"{free:,} MiB free at {host.home}",
            "make room: logs and shuffles of slots go there",
        )
    else:
        yield Finding("disk", Verdict.OK, f"{free:,} MiB free at {host.home}")


def _shared(host: Host) -> Iterator[Finding]:
    yield _writable(
        "shared folder",
        host.where.home,
        "mount it as on every other host, for the agent's user: checkpoints are in it",
    )


def _bucket(host: Host) -> Iterator[Finding]:
    return bucket.look(host.site)


def _alerts(host: Host) -> Iterator[Finding]:
    """Look for what Airflow could not send, where it runs beside an agent."""
    return alerts.look(host.home)


def _writable(thing: str, folder: Path, advice: str) -> Finding:
    if not folder.is_dir():
        return Finding(thing, Verdict.BAD, f"{folder} is not there", advice)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(thing, Verdict.BAD, f"{folder} cannot be written by user {os.geteuid()}", advice)
    return Finding(thing, Verdict.OK, f"{folder} can be written")


def _access(host: Host) -> Iterator[Finding]:
    """Look at the credentials of this host: it needs two, and should not have the one that may do everything."""
    if host.where.access is None:
        sentence = "the endpoints file names no roles: whoever reaches ZooKeeper can change everything"
        yield Finding("access", Verdict.NOTE, sentence, "docs/access.md, ZooKeeper")
        return
    try:
        for role in (Role.AGENT, Role.DRIVER):
            host.where.needed(role)
        admins = host.where.credential(Role.ADMIN)
    except endpoints.EndpointsError as error:
        yield Finding("access", Verdict.BAD, str(error), "docs/access.md, ZooKeeper")
        return
    if admins is not None and admins.password is not None:
        yield Finding(
            "access",
            Verdict.NOTE,
            f"the admin's credential is in {admins.folder}",
            "no process needs it: keep it elsewhere",
        )
    else:
        yield Finding(
            "access",
            Verdict.OK,
            f"the credentials of agent and driver are in {host.where.access.credentials}",
        )


def _kafka(host: Host) -> Iterator[Finding]:
    """Look for the password that drivers and executors of this host prove with, where Kafka asks for a user."""
    address, advice = brokers(host.where.kafka), "docs/access.md, Kafka"
    if address.users is None:
        yield Finding(
            "kafka's users",
            Verdict.NOTE,
            "there are none: whoever Kafka lets in reads and writes all records",
            advice,
        )
        return
    try:
        host.where.kafka_as(User.DRIVER)
    except endpoints.EndpointsError as error:
        yield Finding("kafka's users", Verdict.BAD, str(error), advice)
    else:
        yield Finding("kafka's users", Verdict.OK, f"the password of driver is in {address.users}")


def _durability(_host: Host) -> Iterator[Finding]:
    return durability.look(Path(sys.executable), os.environ, User.DRIVER)


def _channel(host: Host) -> Iterator[Finding]:
    try:
        credential = host.where.credential(Role.AGENT)
    except endpoints.EndpointsError:
        credential = None  # told already
    return reach.channel(host.where.zookeeper, credential, host.facts.name)


def _services(host: Host) -> Iterator[Finding]:
    yield from reach.any_of("kafka", brokers(host.where.kafka).servers)
    yield from reach.any_of("spark", host.where.spark.removeprefix("spark://"))
    yield from _database(host)


def _database(host: Host) -> Iterator[Finding]:
    """Look whether drivers of this host can work in PostgreSQL, as their own role."""
    advice = "docs/access.md, PostgreSQL"
    try:
        yield reach.database(host.where.postgres_as(Role.DRIVER))
    except endpoints.EndpointsError as error:
        yield Finding("postgres", Verdict.BAD, str(error), advice)
    if users_of(host.where.postgres) is None:
        yield Finding(
            "postgres's roles",
            Verdict.NOTE,
            "there are none: every process works as the same user, which owns all tables",
            advice,
        )
    if "password" in json.loads(endpoints.file().read_bytes()).get("airflow", {}):
        file = endpoints.file()
        yield Finding(
            "airflow",
            Verdict.NOTE,
            f"{file} holds a password of Airflow, which no process of a host needs",
            "take it out",
        )
