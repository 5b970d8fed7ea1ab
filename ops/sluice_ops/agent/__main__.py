"""`python -m sluice_ops.agent --host NAME`: the agent of one host; with `--stop-all`, the end of everything that it runs."""

import argparse
import fcntl
import logging
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import IO

import structlog

from sluice_ops.agent.agent_metrics import AgentMetrics
from sluice_ops.agent.host.facts import (
    ForeignAddressError,
    UnknownHostError,
    check_address,
    cores_of,
    facts_from,
    facts_of,
    link_of,
    site_path,
)
from sluice_ops.agent.host.presence import OtherAgentError, Presence
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
from sluice_ops.channel.client import Channel, ChannelAwayError
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import Assignment, HostFacts
from sluice_ops.model.exporter import Exporter
from sluice_ops.model.resources import Capacity
from sluice_ops.operations.joining import JoinError, join
from sluice_ops.process import metrics_server
from sluice_ops.process.durations import TimestampAges
from sluice_ops.site import endpoints
from sluice_ops.site.site_file import Site, SiteError
from sluice_ops.site.site_file import load as load_site

log = structlog.get_logger()

WRONG_USAGE = 2
STOP_SECONDS = GRACE_SECONDS + 10


class HostTakenError(Exception):
    """An agent of this host runs on this machine already."""


REFUSED = (
    UnknownHostError,
    ForeignAddressError,
    HostTakenError,
    SiteError,
    endpoints.EndpointsError,
    JoinError,
)
"""What a person has to mend before the agent can start."""


def arguments_of(words: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m sluice_ops.agent", description=__doc__)
    parser.add_argument("--host", required=True, help="the host's name, as in the site file")
    parser.add_argument(
        "--zookeeper",
        help="host:port/chroot of a channel that is open to all; without it, the endpoints file's, which its drivers use in any case",
    )
    parser.add_argument(
        "--address", help="for a host that is not in the site file: the address that its slots listen at"
    )
    parser.add_argument("--zone", default="onprem", help="likewise: its zone, such as ec2")
    parser.add_argument("--labels", default="", help="likewise: its labels, with commas")
    parser.add_argument("--cpu", type=float, help="likewise: the cores that it gives")
    parser.add_argument("--memory", help="likewise: the memory that it gives, such as 4g")
    parser.add_argument(
        "--token-file",
        type=Path,
        help="what `sluice token` has made for this host: it joins with it, once; the file goes when the host is registered",
    )
    parser.add_argument("--stop-all", action="store_true", help="end every unit of the host, then exit")
    return parser.parse_args(words)


def hold(folder: HostFolder, host: str) -> IO[str]:
    """Make sure to be this host's only agent on this machine, for as long as the returned file is open."""
    folder.make()
    file = (folder.path / "lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        other = folder.agent()
        message = f"an agent of host {host!r} runs already, process {other.pid if other else '?'}: stop that one first"
        raise HostTakenError(message) from error
    me = live_process(os.getpid())
    if me is not None:
        with log_write_errors("who serves the host"):
            folder.keep_agent(me)
    return file


def serve(
    facts: HostFacts, site_file: Path, site: Site, zookeeper: str | None, token_file: Path | None
) -> None:
    """Run the agent until SIGTERM."""
    where = endpoints.load()
    check_address(facts)
    home = endpoints.home()
    folder = HostFolder(home, facts.name)
    with hold(folder, facts.name):
        containers = open_containers(home, facts.name, Capacity(cpu=facts.cpu, memory=facts.memory))
        containers, cores = open_cores(home, facts, cores_of(facts.name, site), containers)
        containers, network = open_network(home, facts.name, link_of(facts.name, site), containers)
        installation = Installation(
            home, where.home, endpoints.file(), site_file, where.spark, where.spark_secret, facts
        )
        process_control = ProcessControl(folder, containers, installation)
        neighbours, disks, heartbeats = (
            Neighbours(process_control),
            Disks(process_control),
            Heartbeats(process_control),
        )
        rebooter = Rebooter(folder, facts.name, site.reboot)
        rebooter.came_back()
        credential = None if zookeeper else where.needed(Role.AGENT)
        if credential is not None:
            own = folder.credential()
            credential = replace(credential, own=own)
            facts = facts.model_copy(update={"known_as": own.known_as})
        channel = Channel(zookeeper or where.zookeeper, credential)
        presence = Presence(channel, facts, home, os.getpid(), token_file)
        agent = Agent(
            channel=channel,
            presence=presence,
            process_control=process_control,
            neighbours=neighbours,
            disks=disks,
            heartbeats=heartbeats,
            folder=folder,
            reboot=rebooter,
            reclaim_seconds=site.reclaim_seconds,
        )
        signal.signal(signal.SIGTERM, lambda *_: agent.end())
        signal.signal(signal.SIGINT, lambda *_: agent.end())
        said = {"limits": containers.limits, "cores": cores, "network": network}
        log.info("agent started", host=facts.name, address=facts.address, zone=facts.zone, **said)
        channel.kazoo.start_async()
        exporter = Exporter(role=Role.AGENT, address=f"{facts.address}:0", host=facts.name)
        metrics_server.serve(
            channel,
            exporter,
            AgentMetrics(process_control, containers, presence, neighbours, disks, heartbeats),
        )
        agent.run()
        log.info("agent ends; its units go on", host=facts.name)


def stop_all(host: str) -> int:
    """End every unit of a host; return how many could not be ended."""
    home = endpoints.home()
    if host not in (known := host_names(home)):
        message = (
            f"no agent of host {host!r} has run in {home}; of these one has: {', '.join(known) or 'none'}"
        )
        raise UnknownHostError(message)
    folder = HostFolder(home, host)
    with hold(folder, host):
        process_control = ProcessControl(
            folder, find_network(home, host, find_cores(home, host, find_containers(home, host))), None
        )
        ages, until = TimestampAges(), time.monotonic() + STOP_SECONDS
        while (found := process_control.find()) and time.monotonic() < until:
            ages.track(timestamps(found))
            there = [on_monotonic_clock(found_unit, ages.first_seen) for found_unit in found]
            for action in reconcile(Assignment(), there, time.monotonic(), reclaim_seconds=0.0).actions:
                process_control.do(action)
            time.sleep(0.1)
        if not found:
            process_control.close()
    for left in found:
        log.error("could not be ended", unit=left.unit.id, pid=left.pid)
    return len(found)


def main(words: list[str] | None = None) -> int:
    """Read the command line and do it; every foreseeable error is one clear line."""
    arguments = arguments_of(words)
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # the loop says itself when ZooKeeper is away, once
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        if arguments.stop_all:
            return 1 if stop_all(arguments.host) else 0
        if arguments.token_file is not None:
            folder = HostFolder(endpoints.home(), arguments.host)
            with hold(folder, arguments.host):
                join(arguments.token_file, folder.credential())
        site_file = site_path()
        site = load_site(site_file)
        facts = facts_from(arguments) if arguments.address else facts_of(arguments.host, site, site_file)
        zookeeper = arguments.zookeeper and endpoints.ensemble(arguments.zookeeper)
        serve(facts, site_file, site, zookeeper, arguments.token_file)
    except (*REFUSED, FileNotFoundError) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG_USAGE
    except (OtherAgentError, ChannelAwayError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(
        status
    )  # the session is left open: the next agent takes it over before anybody sees the host lost
