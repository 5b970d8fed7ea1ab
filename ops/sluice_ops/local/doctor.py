"""Check the needs of a start, and the services and tiers of a running platform.

`sluice doctor` prints the findings, each with the next step.
"""

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sluice_ops.channel import Channel, ChannelAwayError, access_lists
from sluice_ops.cloud.burst_hosts import tiers_by_host
from sluice_ops.doctor import alerts, bucket, durability, java, schema_registry
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
from sluice_ops.model.wording import page
from sluice_ops.site import installation, site_file
from sluice_ops.site.installation import PlatformError


def examine(layout: Layout) -> list[Finding]:
    """Run all checks in parallel; a check that fails to run becomes a finding."""
    running = Supervisor(layout).states()
    state = (
        (_services, _containers, _access, _users, _pipeline, _durability, _instances)
        if running
        else (_ports, _not_running)
    )
    checks = [_java, _disk, _memory, _site, _bucket, _registry, _alerts, *state]
    with ThreadPoolExecutor(len(checks)) as pool:
        return [
            finding
            for findings in pool.map(lambda check: _run(check, layout), checks)
            for finding in findings
        ]


def _java(_layout: Layout) -> Iterator[Finding]:
    yield java.check()


def _disk(layout: Layout) -> Iterator[Finding]:
    free = installation.free(layout.home)
    sentence = f"{free:,} MiB free at {layout.home}"
    if free < installation.LOW:
        yield Finding(
            "disk",
            Verdict.BAD,
            sentence,
            f"make room: Kafka and PostgreSQL stop on a full disk; a start needs {installation.LEAST:,} MiB",
        )
    elif free < installation.LEAST and not layout.data.exists():
        yield Finding(
            "disk",
            Verdict.NOTE,
            sentence,
            f"free about {installation.LEAST:,} MiB for a first start, or set SLUICE_HOME to another disk",
        )
    else:
        yield Finding("disk", Verdict.OK, sentence)


def _memory(layout: Layout) -> Iterator[Finding]:
    used = sum(memory.by_service(layout).values())
    free = memory.available()
    if used:
        verdict = Verdict.OK if used <= memory.BUDGET else Verdict.BAD
        advice = (
            ""
            if verdict is Verdict.OK
            else "`sluice doctor --memory` shows the memory of each service; "
            "lower the shares in the site file, or the quanta in the tiers"
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
            "stop other programs if the start fails: with three hosts, the platform takes up to "
            f"{memory.BUDGET:,} MiB",
        )
    else:
        yield Finding("memory", Verdict.OK, f"{free:,} MiB free, {memory.processors()} processors")


def _site(layout: Layout) -> Iterator[Finding]:
    try:
        site = site_file.load(layout.site)
    except site_file.SiteError as error:
        for line in str(error).splitlines():
            advice = "correct the key; ops/sluice_ops/site/site_file.py describes every key"
            yield Finding("site", Verdict.BAD, line, advice)
        return
    yield Finding("site", Verdict.OK, f"{layout.site}: {site.pipeline} on {len(site.hosts)} hosts")
    if site.durability != ONE_COPY:
        sentence = (
            f"{layout.site} asks for each record on {site.replication} brokers, but the embedded Kafka is "
            "one broker, so `sluice up` publishes nothing"
        )
        advice = f"write `replication: 1` in {layout.site}; the loss of this disk then loses records"
        yield Finding("site", Verdict.BAD, sentence, advice)
    for line in site_file.unmatched_places(site):
        advice = "correct the place, unless hosts outside the site file will join there"
        yield Finding("site", Verdict.NOTE, line, advice)
    command = [str(layout.python), "-m", "sluice.commands.publish", "--check", "--declared"]
    environment = sluice.settings(layout)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode == 0:
        yield Finding("tiers", Verdict.OK, f"the declarations of pipeline {site.pipeline} are valid")
    else:
        lines = (done.stderr or done.stdout).strip().splitlines()
        yield Finding(
            "tiers",
            Verdict.BAD,
            "; ".join(lines[-3:]) or f"the pipeline {site.pipeline} cannot be imported",
            "correct the tier or the module that the message names",
        )


def _bucket(layout: Layout) -> Iterator[Finding]:
    return bucket.check(site_file.load(layout.site))


def _registry(layout: Layout) -> Iterator[Finding]:
    return schema_registry.check(site_file.load(layout.site))


def _alerts(layout: Layout) -> Iterator[Finding]:
    return alerts.check(layout.home)


def _ports(layout: Layout) -> Iterator[Finding]:
    taken = ports.taken(layout.ports.named())
    for sentence in taken:
        advice = "stop this program, or use other ports: SLUICE_PORT_BASE=28000 sluice up"
        yield Finding("ports", Verdict.BAD, sentence, advice)
    if not taken:
        yield Finding("ports", Verdict.OK, f"{layout.ports.zookeeper} to {layout.ports.metrics} are free")


def _not_running(_layout: Layout) -> Iterator[Finding]:
    yield Finding("services", Verdict.NOTE, "the platform is not running", "start it with `sluice up`")


def _containers(layout: Layout) -> Iterator[Finding]:
    with Channel(known_endpoints(layout).zookeeper) as channel:
        for host in channel.children("/observed"):
            observed = channel.read(paths.observed(host), Observed)
            limits = observed.value.limits if observed else "the agent has not reported yet"
            if limits.startswith("cgroup"):
                yield Finding(f"host {host}", Verdict.OK, f"its slots are limited by {limits}")
            else:
                yield Finding(
                    f"host {host}",
                    Verdict.NOTE,
                    f"its slots have no limits: {limits}",
                    "run the platform as root, or in a delegated control group: "
                    f"see {page('Limits', 'Control groups')}",
                )


def _access(layout: Layout) -> Iterator[Finding]:
    endpoints = known_endpoints(layout)
    with Channel(endpoints.zookeeper, endpoints.credential(Role.ADMIN)) as channel:
        wrong = access_lists.find_wrong(channel.kazoo)
    if wrong:
        sentence = f"{len(wrong)} nodes in ZooKeeper have a wrong access list, such as {wrong[0]}"
        yield Finding("access", Verdict.BAD, sentence, "correct them with `sluice access --apply`")
    else:
        yield Finding("access", Verdict.OK, "every node in ZooKeeper has the access list of its roles")


def _users(layout: Layout) -> Iterator[Finding]:
    if kafka.asks_for_users(layout, Supervisor(layout).states(), otherwise=True):
        sentence = "Kafka asks every client for a user, and each user has its own rights"
        yield Finding("kafka's users", Verdict.OK, sentence)
    else:
        sentence = (
            "Kafka was started without users: every process on this machine reads and writes all records"
        )
        advice = "restart it with users: `sluice down`, then `sluice up`; the records stay"
        yield Finding("kafka's users", Verdict.NOTE, sentence, advice)


def _services(layout: Layout) -> Iterator[Finding]:
    states = Supervisor(layout).states()
    services: list[Service] = catalogue(layout, users=kafka.asks_for_users(layout, states, otherwise=True))[0]
    state_of = {
        service.name: states.get(service.name, {}).get("statename", "not started") for service in services
    }
    running = [service for service in services if state_of[service.name] == "RUNNING"]
    with ThreadPoolExecutor(len(services)) as pool:
        errors = dict(
            zip(
                (service.name for service in running),
                pool.map(lambda service: _error(service.ready), running),
                strict=True,
            )
        )
    for service in services:
        state, error = state_of[service.name], errors.get(service.name)
        log = f"read its log with `sluice logs {service.name}`"
        if service.program.once and state in ("RUNNING", "EXITED"):
            yield _job(service.name, states[service.name], f"{log}; start it again with `sluice up`")
            continue
        if state != "RUNNING":
            advice = f"{log}; start it with `sluice up`"
            yield Finding(service.name, Verdict.BAD, f"is {state.lower()}", advice)
            continue
        if error is None:
            yield Finding(service.name, Verdict.OK, "answers")
        else:
            yield Finding(service.name, Verdict.BAD, f"runs, but does not answer: {error}", log)


def _job(name: str, info: dict[str, Any], advice: str) -> Finding:
    """Return the finding of a service that ends by itself."""
    if info["statename"] == "RUNNING":
        return Finding(name, Verdict.OK, "is running")
    if info["exitstatus"] == 0:
        return Finding(name, Verdict.OK, "is done")
    return Finding(name, Verdict.NOTE, f"failed (exit code {info['exitstatus']})", advice)


def _run(check: Callable[[Layout], Iterator[Finding]], layout: Layout) -> list[Finding]:
    try:
        return list(check(layout))
    except ChannelAwayError as error:
        advice = "read its log with `sluice logs zookeeper`; start it with `sluice up`"
        return [Finding("channel", Verdict.BAD, str(error), advice)]
    except (site_file.SiteError, PlatformError):
        return []  # another check reports this: the site file or Java is unusable
    except Exception as error:  # noqa: BLE001  any error of one check must not stop the others
        sentence = f"cannot be checked: {str(error).strip() or type(error).__name__}"
        advice = "correct the cause that the message names, then run `sluice doctor` again"
        return [Finding(check.__name__.strip("_"), Verdict.BAD, sentence, advice)]


def _error(ready: Callable[[], None]) -> str | None:
    """Return the error of a service's check; None if the service answers."""
    try:
        ready()
    except Exception as error:  # noqa: BLE001  any error means that the service does not answer
        return str(error).strip() or type(error).__name__
    return None


def _durability(layout: Layout) -> Iterator[Finding]:
    return durability.check(layout.python, sluice.settings(layout), User.PUBLISHER)


def _pipeline(layout: Layout) -> Iterator[Finding]:
    with Channel(known_endpoints(layout).zookeeper) as channel:
        missing = missing_tiers(channel)
    for sentence in missing:
        advice = "see `sluice status`, and the driver's log: `sluice logs` lists the logs"
        yield Finding("pipeline", Verdict.BAD, sentence, advice)
    if not missing:
        yield Finding("pipeline", Verdict.OK, "every tier's driver runs")


def _instances(layout: Layout) -> Iterator[Finding]:
    """Find EC2 instances that cost money but run no tier.

    A burst leaves them behind if its run was deleted or its command was killed.
    """
    from sluice_ops.cloud import ec2  # noqa: PLC0415  boto3 is slow to import

    instances = ec2.the_cloud().instances()
    with Channel(known_endpoints(layout).zookeeper) as channel:
        users, lock = tiers_by_host(channel), channel.read(paths.LOCK, MaintenanceLock)
    current = None if lock is None else lock.value.change
    for instance in instances:
        if instance.host not in users and instance.token != current:
            sentence = (
                f"{instance.id} ({instance.host}) is {instance.state} and runs no tier; "
                f"it was launched by {instance.token or 'an unknown change'}"
            )
            advice = (
                "unless a burst is just beginning: `sluice leave` moves tiers off EC2 "
                "and terminates all instances"
            )
            yield Finding("ec2 instances", Verdict.NOTE, sentence, advice)
    if instances:
        with_tier = sum(instance.host in users for instance in instances)
        yield Finding("ec2 instances", Verdict.OK, f"{len(instances)} exist, {with_tier} run a tier")
