"""Run the agent of one host, or end all units of the host with `--stop-all`.

The agent runs until SIGTERM. Its units continue after it, and the next agent adopts them.
"""

import argparse
import fcntl
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import IO

import structlog

from sluice_ops.agent.agent_metrics import AgentMetrics
from sluice_ops.agent.host.checkup import Checkup, doctor_of
from sluice_ops.agent.host.facts import (
    ForeignAddressError,
    UnknownHostError,
    check_address,
    cores_of,
    facts_from,
    facts_of,
    link_of,
)
from sluice_ops.agent.host.log_reader import LogReader
from sluice_ops.agent.host.presence import DecommissionedError, OtherAgentError, Presence
from sluice_ops.agent.host.processes import live_process
from sluice_ops.agent.host.reboots import Rebooter
from sluice_ops.agent.host.store import HostFolder, host_names, log_write_errors
from sluice_ops.agent.limits.control_groups import find_containers, open_containers
from sluice_ops.agent.limits.cpusets import find_cores, open_cores
from sluice_ops.agent.limits.network import find_network, open_network
from sluice_ops.agent.loop import Agent
from sluice_ops.agent.units.commands import Installation
from sluice_ops.agent.units.process_control import ProcessControl
from sluice_ops.agent.units.reconcile import GRACE_SECONDS, on_monotonic_clock, reconcile, timestamps
from sluice_ops.agent.watch.disks import Disks
from sluice_ops.agent.watch.heartbeats import Heartbeats
from sluice_ops.agent.watch.neighbours import Neighbours
from sluice_ops.agent.watch.spot_notices import SpotNotices
from sluice_ops.channel.client import Channel, ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import DECOMMISSIONED_EXIT, Assignment, HostFacts
from sluice_ops.model.batch import task_seconds
from sluice_ops.model.exporter import Exporter
from sluice_ops.model.resources import Capacity
from sluice_ops.operations.joining import JoinError, join
from sluice_ops.operations.log_requests import LogServer
from sluice_ops.process import metrics_server
from sluice_ops.process.durations import TimestampAges
from sluice_ops.process.logs import OwnLog, configure_logs
from sluice_ops.site import endpoints, java, project
from sluice_ops.site.site_file import Site, SiteError
from sluice_ops.site.site_file import load as load_site

log = structlog.get_logger()

WRONG_USAGE = 2
"""The exit code if a person has to correct something before the agent can start."""
STOP_SECONDS = GRACE_SECONDS + 10
"""How long `--stop-all` tries to end the units."""


class HostTakenError(Exception):
    """Another agent process of this host runs on this machine."""


REFUSED = (
    UnknownHostError,
    ForeignAddressError,
    HostTakenError,
    SiteError,
    endpoints.EndpointsError,
    JoinError,
    java.JavaError,
)
"""Errors that a person has to correct before the agent can start."""


def arguments_of(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sluice_ops.agent", description=__doc__)
    parser.add_argument("--host", required=True, help="the host's name, as in the site file")
    parser.add_argument(
        "--zookeeper",
        help="host:port/chroot of a ZooKeeper without access lists (default: the endpoints file's ZooKeeper "
        "and credential; drivers always use the endpoints file)",
    )
    parser.add_argument(
        "--address",
        help="the address at which slots listen, for a host that is not in the site file; "
        "needs --cpu and --memory",
    )
    parser.add_argument("--zone", default="onprem", help="with --address: the host's zone, such as ec2")
    parser.add_argument("--labels", default="", help="with --address: the host's labels, separated by commas")
    parser.add_argument("--cpu", type=float, help="with --address: how many cores units may use")
    parser.add_argument("--memory", help="with --address: how much memory units may use, such as 4g")
    parser.add_argument(
        "--metadata",
        help="the address of the metadata service of the EC2 instance that this host is, such as "
        "http://169.254.169.254; the agent reads its spot notices there",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        help="the file with this host's join token, made by `sluice token`; "
        "the agent deletes the file after the host is registered",
    )
    parser.add_argument(
        "--cpu-share",
        type=float,
        default=1.0,
        help="the part of its quantum that a unit is promised, on a machine that several hosts share "
        "(embedded platform only); a unit that gets less counts as starved",
    )
    parser.add_argument("--stop-all", action="store_true", help="end every unit of the host, then exit")
    return parser.parse_args(words)


def lock_host(folder: HostFolder, host: str) -> IO[str]:
    """Lock the host's folder, and return the open lock file: closing it releases the lock.

    Raise HostTakenError if another process of this machine holds the lock.
    """
    folder.make()
    file = (folder.path / "lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        other = folder.agent()
        holder = "as a process without a pid file" if other is None else f"as process {other.pid}"
        message = f"an agent of host {host!r} runs already on this machine, {holder}; stop that agent first"
        raise HostTakenError(message) from error
    this_process = live_process(os.getpid())
    if this_process is not None:
        with log_write_errors("the agent's pid (agent.json)"):
            folder.write_agent(this_process)
    return file


def serve(  # noqa: PLR0913, PLR0917 - one parameter for each option
    facts: HostFacts,
    site_file: Path,
    site: Site,
    zookeeper: str | None,
    token_file: Path | None,
    own_log: OwnLog,
    *,
    cpu_share: float = 1.0,
    metadata: str | None = None,
) -> None:
    """Run the agent until SIGTERM or SIGINT."""
    services = endpoints.load()
    check_address(facts)
    home = project.home()
    folder = HostFolder(home, facts.name)
    with lock_host(folder, facts.name):
        containers = open_containers(home, facts.name, Capacity(cpu=facts.cpu, memory=facts.memory))
        containers, cores = open_cores(home, facts, cores_of(facts.name, site), containers)
        containers, network = open_network(home, facts.name, link_of(facts.name, site), containers)
        installation = Installation(
            home, services.home, endpoints.file(), site_file, services.spark, services.spark_secret, facts
        )
        process_control = ProcessControl(folder, containers, installation)
        neighbours, disks, heartbeats = (
            Neighbours(process_control, cpu_share),
            Disks(process_control),
            Heartbeats(process_control),
        )
        rebooter = Rebooter(folder, facts.name, site.reboot)
        rebooter.check_reboot()
        joins = token_file is not None and token_file.exists()
        is_checked = (joins or rebooter.has_rebooted()) and any(
            host.name == facts.name for host in site.hosts
        )
        credential = None if zookeeper else services.required_credential(Role.AGENT)
        if credential is not None:
            own = folder.credential()
            credential = replace(credential, own=own)
            facts = facts.model_copy(update={"known_as": own.known_as})
        channel = Channel(zookeeper or services.zookeeper, credential)
        presence = Presence(channel, facts, home, os.getpid(), token_file)
        agent = Agent(
            channel=channel,
            presence=presence,
            process_control=process_control,
            neighbours=neighbours,
            disks=disks,
            heartbeats=heartbeats,
            notices=SpotNotices(metadata),
            folder=folder,
            reboot=rebooter,
            checkup=Checkup(doctor_of(facts.name) if is_checked else None, rebooter.lost_capacity),
            reclaim_seconds=task_seconds(site.reclaim_seconds),
        )
        signal.signal(signal.SIGTERM, lambda *_: agent.end())
        signal.signal(signal.SIGINT, lambda *_: agent.end())
        log.info(
            "agent started",
            host=facts.name,
            address=facts.address,
            zone=facts.zone,
            limits=containers.limits,
            cores=cores,
            network=network,
        )
        channel.kazoo.start_async()
        exporter = Exporter(role=Role.AGENT, address=f"{facts.address}:0", host=facts.name)
        metrics_server.serve(
            channel,
            exporter,
            AgentMetrics(process_control, containers, presence, neighbours, disks, heartbeats),
        )
        LogServer(channel, paths.host_logs(facts.name), facts.name, LogReader(folder.path, own_log)).start()
        try:
            agent.run()
        except DecommissionedError:
            channel.stop()  # the host's records can be removed at once
            raise
        log.info("agent stopped; its units continue, and the next agent adopts them", host=facts.name)


def stop_all(host: str) -> int:
    """End every unit of a host; return the number of units that still run after 20 s."""
    home = project.home()
    if host not in (known_hosts := host_names(home)):
        message = (
            f"host {host!r} has no units to end: no agent of this host has run with SLUICE_HOME {home}; "
            f"agents of these hosts have: {', '.join(known_hosts) or 'none'}"
        )
        raise UnknownHostError(message)
    folder = HostFolder(home, host)
    with lock_host(folder, host):
        process_control = ProcessControl(
            folder, find_network(home, host, find_cores(home, host, find_containers(home, host))), None
        )
        ages, deadline = TimestampAges(), time.monotonic() + STOP_SECONDS
        while (units := process_control.find()) and time.monotonic() < deadline:
            ages.track(timestamps(units))
            units = [on_monotonic_clock(found_unit, ages.first_seen) for found_unit in units]
            for action in reconcile(Assignment(), units, time.monotonic(), reclaim_seconds=0.0).actions:
                process_control.do(action)
            time.sleep(0.1)
        if not units:
            process_control.close()
    for found_unit in units:
        log.error(
            "unit still runs: the kernel did not end its processes; run --stop-all again or reboot the host",
            unit=found_unit.unit.id,
            pid=found_unit.pid,
            waited_seconds=STOP_SECONDS,
        )
    return len(units)


def main(words: list[str] | None = None) -> int:
    """Run the command, and return its exit code; an expected error is one line on stderr."""
    arguments = arguments_of(words)
    own_log = OwnLog()
    configure_logs(own_log)
    try:
        if arguments.stop_all:
            return 1 if stop_all(arguments.host) else 0
        java.check_own()
        if arguments.token_file is not None:
            folder = HostFolder(project.home(), arguments.host)
            with lock_host(folder, arguments.host):
                join(arguments.token_file, folder.credential())
        site_file = project.site_path()
        site = load_site(site_file)
        facts = facts_from(arguments) if arguments.address else facts_of(arguments.host, site, site_file)
        zookeeper = arguments.zookeeper and endpoints.check_zookeeper(arguments.zookeeper)
        serve(
            facts,
            site_file,
            site,
            zookeeper,
            arguments.token_file,
            own_log,
            cpu_share=arguments.cpu_share,
            metadata=arguments.metadata,
        )
    except (*REFUSED, FileNotFoundError) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG_USAGE
    except DecommissionedError as error:
        sys.stderr.write(f"{error}\n")
        stop_all(arguments.host)
        HostFolder(project.home(), arguments.host).forget()
        return DECOMMISSIONED_EXIT
    except (OtherAgentError, ChannelAwayError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # The ZooKeeper session stays open, so that the next agent takes the host over before it counts
    # as lost.
    os._exit(status)
