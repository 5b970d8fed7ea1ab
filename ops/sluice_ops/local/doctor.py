"""Look at everything that a start needs and that a running platform should have, and say what to do about what is amiss."""

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sluice_ops.channel import Channel, ChannelAwayError, access_lists
from sluice_ops.cloud.burst_hosts import tiers_by_host
from sluice_ops.doctor import alerts, bucket, durability, java
from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.local import memory, ports
from sluice_ops.local.first_record import known_endpoints, missing_tiers
from sluice_ops.local.layout import Layout
from sluice_ops.local.lifecycle import catalogue
from sluice_ops.local.services import kafka, sluice
from sluice_ops.local.start.service import Service
from sluice_ops.local.start.supervisord import Supervisor
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import Observed
from sluice_ops.model.change import MaintenanceLock
from sluice_ops.model.kafka_access import ONE_COPY, User
from sluice_ops.site import installation, site_file
from sluice_ops.site.installation import PlatformError


def examine(where: Layout) -> list[Finding]:
    """Look at everything side by side; a check that cannot be made is a finding too."""
    running = Supervisor(where).states()
    state = (
        (_services, _containers, _access, _users, _pipeline, _durability, _instances)
        if running
        else (_ports, _not_running)
    )
    looks = [_java, _disk, _memory, _site, _bucket, _alerts, *state]
    with ThreadPoolExecutor(len(looks)) as pool:
        return [
            finding
            for findings in pool.map(lambda look: _guarded(look, where), looks)
            for finding in findings
        ]


def _java(_where: Layout) -> Iterator[Finding]:
    yield java.check()


def _disk(where: Layout) -> Iterator[Finding]:
    free = installation.free(where.home)
    sentence = f"{free:,} MiB free at {where.home}"
    if free < installation.LOW:
        yield Finding(
            "disk",
            Verdict.BAD,
            sentence,
            f"make room: Kafka and PostgreSQL stop when it is full; {installation.LEAST:,} MiB are good",
        )
    elif free < installation.LEAST and not where.data.exists():
        yield Finding(
            "disk",
            Verdict.NOTE,
            sentence,
            f"a first start needs about {installation.LEAST:,} MiB, or SLUICE_HOME on another disk",
        )
    else:
        yield Finding("disk", Verdict.OK, sentence)


def _memory(where: Layout) -> Iterator[Finding]:
    used = sum(memory.by_service(where).values())
    free = memory.available()
    if used:
        verdict = Verdict.OK if used <= memory.BUDGET else Verdict.BAD
        advice = (
            ""
            if verdict is Verdict.OK
            else "`sluice doctor --memory` shows who takes it; lower the shares or quanta in the site file"
        )
        yield Finding(
            "memory",
            verdict,
            f"{used:,} MiB in use by the platform, {free:,} MiB free on the machine",
            advice,
        )
    elif free < memory.BUDGET:
        yield Finding(
            "memory",
            Verdict.NOTE,
            f"{free:,} MiB free",
            f"the platform takes up to {memory.BUDGET:,} MiB with three hosts",
        )
    else:
        yield Finding("memory", Verdict.OK, f"{free:,} MiB free, {memory.processors()} processors")


def _site(where: Layout) -> Iterator[Finding]:
    try:
        found = site_file.load(where.site)
    except site_file.SiteError as error:
        for line in str(error).splitlines():
            yield Finding(
                "site", Verdict.BAD, line, "mend that key; ops/sluice_ops/site/site_file.py describes each"
            )
        return
    yield Finding("site", Verdict.OK, f"{where.site}: {found.pipeline} on {len(found.hosts)} hosts")
    if found.durability != ONE_COPY:
        sentence = (
            f"{where.site} wants each record on {found.replication} brokers, and Kafka on this machine is one"
        )
        advice = f"`make up` publishes nothing before {where.site} has the line `replication: 1`: a lost disk then loses its records"
        yield Finding("site", Verdict.BAD, sentence, advice)
    for line in site_file.unmatched_places(found):
        yield Finding(
            "site", Verdict.NOTE, line, "mend it, unless hosts that are not in the file are to join there"
        )
    command = [str(where.python), "-m", "sluice.commands.publish", "--check", "--declared"]
    environment = sluice.settings(where)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode == 0:
        yield Finding("tiers", Verdict.OK, f"{found.pipeline} is declared soundly")
    else:
        said = (done.stderr or done.stdout).strip().splitlines()
        yield Finding(
            "tiers",
            Verdict.BAD,
            "; ".join(said[-3:]) or "the pipeline cannot be read",
            "mend the tier that it names",
        )


def _bucket(where: Layout) -> Iterator[Finding]:
    return bucket.check(site_file.load(where.site))


def _alerts(where: Layout) -> Iterator[Finding]:
    return alerts.check(where.home)


def _ports(where: Layout) -> Iterator[Finding]:
    taken = ports.taken(where.ports.named())
    for sentence in taken:
        yield Finding("ports", Verdict.BAD, sentence, "stop it, or choose others: SLUICE_PORT_BASE=28000")
    if not taken:
        yield Finding("ports", Verdict.OK, f"{where.ports.zookeeper} to {where.ports.metrics} are free")


def _not_running(_where: Layout) -> Iterator[Finding]:
    yield Finding("services", Verdict.NOTE, "the platform is not running", "start it with `make up`")


def _containers(where: Layout) -> Iterator[Finding]:
    with Channel(known_endpoints(where).zookeeper) as channel:
        for host in channel.children("/observed"):
            seen = channel.read(paths.observed(host), Observed)
            limits = seen.value.limits if seen else "nothing observed yet"
            if limits.startswith("cgroup"):
                yield Finding(f"host {host}", Verdict.OK, f"its slots are limited by {limits}")
            else:
                yield Finding(
                    f"host {host}",
                    Verdict.NOTE,
                    f"its slots have no limits: {limits}",
                    "control groups need root, or a delegated subtree",
                )


def _access(where: Layout) -> Iterator[Finding]:
    known = known_endpoints(where)
    with Channel(known.zookeeper, known.credential(Role.ADMIN)) as channel:
        others = access_lists.find_wrong(channel.kazoo)
    if others:
        sentence = f"{len(others)} nodes have another access list than they should, such as {others[0]}"
        yield Finding("access", Verdict.BAD, sentence, "`sluice access --apply` puts them right")
    else:
        yield Finding("access", Verdict.OK, "every node of the channel is changed by its own roles only")


def _users(where: Layout) -> Iterator[Finding]:
    if kafka.asks(where, Supervisor(where).states(), otherwise=True):
        yield Finding(
            "kafka's users", Verdict.OK, "Kafka asks everybody for a user, and each may do its own part"
        )
    else:
        sentence = "Kafka was started without: whoever is on this machine reads and writes all records"
        yield Finding(
            "kafka's users",
            Verdict.NOTE,
            sentence,
            "`make down`, then `make up` starts it with users; the records stay",
        )


def _services(where: Layout) -> Iterator[Finding]:
    states = Supervisor(where).states()
    services: list[Service] = catalogue(where, users=kafka.asks(where, states, otherwise=True))[0]
    said = {
        service.name: states.get(service.name, {}).get("statename", "not started") for service in services
    }
    running = [service for service in services if said[service.name] == "RUNNING"]
    with ThreadPoolExecutor(len(services)) as pool:
        reasons = dict(
            zip(
                (service.name for service in running),
                pool.map(lambda service: _reason(service.ready), running),
                strict=True,
            )
        )
    for service in services:
        state, reason = said[service.name], reasons.get(service.name)
        log = where.logs / f"{service.name}.log"
        if service.program.once and state in ("RUNNING", "EXITED"):
            yield _at_its_part(service.name, states[service.name], f"see {log}; `make up` starts it again")
            continue
        if state != "RUNNING":
            yield Finding(
                service.name,
                Verdict.BAD,
                f"is {state.lower()}",
                f"see {log}; `make up` starts what is missing",
            )
            continue
        if reason is None:
            yield Finding(service.name, Verdict.OK, "answers")
        else:
            yield Finding(service.name, Verdict.BAD, f"runs and does not answer: {reason}", f"see {log}")


def _at_its_part(name: str, info: dict[str, Any], advice: str) -> Finding:
    """Return how it is with a service that ends by itself."""
    if info["statename"] == "RUNNING":
        return Finding(name, Verdict.OK, "is at it")
    if info["exitstatus"] == 0:
        return Finding(name, Verdict.OK, "is done")
    return Finding(name, Verdict.NOTE, f"has failed (exit code {info['exitstatus']})", advice)


def _guarded(look: Callable[[Layout], Iterator[Finding]], where: Layout) -> list[Finding]:
    try:
        return list(look(where))
    except ChannelAwayError as error:
        return [Finding("channel", Verdict.BAD, str(error), f"see {where.logs / 'zookeeper.log'}")]
    except (site_file.SiteError, PlatformError):
        return []  # told already: without a site file, or without Java, nobody knows what should run
    except Exception as error:  # noqa: BLE001  whatever it is, the other looks are told
        sentence = f"cannot be looked at: {str(error).strip() or type(error).__name__}"
        return [
            Finding(
                look.__name__.strip("_"),
                Verdict.BAD,
                sentence,
                "mend what it names; until then the rest of this cannot be told",
            )
        ]


def _reason(ask: Callable[[], None]) -> str | None:
    try:
        ask()
    except Exception as error:  # noqa: BLE001  whatever it is, it is the finding
        return str(error).strip() or type(error).__name__
    return None


def _durability(where: Layout) -> Iterator[Finding]:
    return durability.check(where.python, sluice.settings(where), User.PUBLISHER)


def _pipeline(where: Layout) -> Iterator[Finding]:
    with Channel(known_endpoints(where).zookeeper) as channel:
        amiss = missing_tiers(channel)
    for sentence in amiss:
        yield Finding(
            "pipeline", Verdict.BAD, sentence, "`sluice status` and the driver's log below hosts/ tell more"
        )
    if not amiss:
        yield Finding("pipeline", Verdict.OK, "every tier's driver runs")


def _instances(where: Layout) -> Iterator[Finding]:
    """Look for instances that cost money and serve nobody, as a burst leaves them whose run was deleted, or whose command was killed."""
    from sluice_ops.cloud import ec2  # noqa: PLC0415  the cloud's own library takes its time to load

    there = ec2.instances()
    with Channel(known_endpoints(where).zookeeper) as channel:
        users, lock = tiers_by_host(channel), channel.read(paths.LOCK, MaintenanceLock)
    at_work = None if lock is None else lock.value.change
    for each in there:
        if each.host not in users and each.token != at_work:
            sentence = f"{each.id} ({each.host}) is {each.state}, was launched by {each.token or 'an unknown change'}, and no tier runs on it"
            advice = "unless a burst is just beginning: `sluice leave` has tiers leave EC2 and terminates all that is there"
            yield Finding("ec2 instances", Verdict.NOTE, sentence, advice)
    if there:
        yield Finding(
            "ec2 instances",
            Verdict.OK,
            f"{len(there)} there, {sum(each.host in users for each in there)} with a tier",
        )
