"""`python -m sluice_ops.local.ec2_runner`: simulate EC2's machines; embedded platform only.

For each running instance, the runner starts a local agent, as the instance's user data would. The
runner restarts an agent that dies, and ends the host when the instance is terminated. A restarted
runner adopts the running agents.
"""

import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import structlog

from sluice_ops.agent.host.processes import Process, live_process
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.channel import Channel, ChannelAwayError
from sluice_ops.cloud import ec2
from sluice_ops.cloud.errors import CloudError
from sluice_ops.cloud.instance import Instance
from sluice_ops.cloud.reaper import retire
from sluice_ops.local.ec2_metadata import MetadataService
from sluice_ops.local.machines import Machine, Machines, cpu_share
from sluice_ops.local.memory import processors
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.ids import HostName
from sluice_ops.planning.placement.cluster import BURST_ZONE
from sluice_ops.process.logs import configure_logs
from sluice_ops.site import endpoints, project
from sluice_ops.site.site_file import Site, SiteError
from sluice_ops.site.site_file import load as load_site

log = structlog.get_logger()

POLL_SECONDS = 1.5
END_TRIES = 3
STOP_SECONDS = 40
"""Limit for the units of a host to end."""
BY = "the simulated EC2"
"""The requester of retired hosts in the trail."""
RESTART_SECONDS = 2.0
"""The pause before a dead agent is restarted."""


class Runner:
    """Starts and ends agents so that they match EC2's instances, and serves their metadata."""

    def __init__(self, home: Path, site: Site) -> None:
        """Simulate instances of the site's kind in `home`."""
        self._home = home
        self._capacity = site.ec2.capacity
        self._cpu_share = cpu_share(site, processors())
        self._file = home / "ec2" / "machines.json"
        self._metadata = MetadataService(home / "ec2" / "metadata")
        self._machines = Machines.read(self._file)
        self._leaving: set[HostName] = set()
        self._started: dict[str, float] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._away = False

    def step(self) -> None:
        """Read EC2's instances once; start and end agents accordingly."""
        try:
            instances = ec2.the_cloud().instances()
        except CloudError as error:
            if not self._away:
                log.warning("EC2 does not answer; running hosts continue", error=str(error))
            self._away = True
        else:
            self._away = False
            running = [instance.id for instance in instances if instance.state == "running"]
            machines, ended = self._machines.following(running)
            for machine in ended:
                self._end(machine)
                # a terminated instance loses its disk, too
                shutil.rmtree(HostFolder(self._home, machine.host).path, ignore_errors=True)
                self._leaving.add(machine.host)
            if machines != self._machines:
                machines.write(self._file)
                self._machines = machines
            self._retire_ended(instances)
        for machine in self._machines.machines:
            self._keep_up(machine)

    def end_all(self) -> None:
        """End every host; EC2 keeps the instances."""
        for machine in self._machines.machines:
            self._end(machine)

    def _keep_up(self, machine: Machine) -> None:
        if self._agents(machine):
            return
        if time.monotonic() - self._started.get(machine.host, -RESTART_SECONDS) < RESTART_SECONDS:
            return
        self._started[machine.host] = time.monotonic()
        words = ["--host", machine.host, "--address", machine.address, "--zone", BURST_ZONE]
        words += ["--cpu", f"{self._capacity.cpu:g}", "--memory", f"{self._capacity.memory}m"]
        words += ["--cpu-share", f"{self._cpu_share:g}", "--metadata", self._metadata.address(machine.host)]
        logs = self._home / "logs"
        logs.mkdir(exist_ok=True)
        with (logs / f"agent-{machine.host}.log").open("ab") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "sluice_ops.agent", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._children[machine.host] = child
        log.info(
            "burst host booted",
            host=machine.host,
            instance=machine.instance,
            address=machine.address,
            pid=child.pid,
        )

    def _end(self, machine: Machine) -> None:
        """End a host as EC2 does, but give its units time to stop."""
        if not HostFolder(self._home, machine.host).path.exists() and not self._agents(machine):
            return  # the instance was terminated before its agent started
        command = [sys.executable, "-m", "sluice_ops.agent", "--stop-all", "--host", machine.host]
        for _ in range(END_TRIES):
            while agents := self._agents(machine):
                for agent in agents:
                    agent.send(signal.SIGKILL)
                time.sleep(0.05)
            with suppress(subprocess.TimeoutExpired):
                if (
                    subprocess.run(
                        command, check=False, timeout=STOP_SECONDS, stdin=subprocess.DEVNULL
                    ).returncode
                    == 0
                ):
                    log.info("burst host ended", host=machine.host, instance=machine.instance)
                    return
        log.warning(
            "burst host did not end completely; end the rest with: sluice agent --host HOST --stop-all",
            host=machine.host,
            folder=str(HostFolder(self._home, machine.host).path),
        )

    def _agents(self, machine: Machine) -> list[Process]:
        """Return the host's live agents: the registered one, and one that is still starting."""
        child = self._children.get(machine.host)
        if child is not None and child.poll() is not None:
            del self._children[machine.host]
            child = None
        agents = {HostFolder(self._home, machine.host).agent(), live_process(child.pid) if child else None}
        return [agent for agent in agents if agent is not None and agent.alive]

    def _retire_ended(self, instances: list[Instance]) -> None:
        """Retire the hosts of ended instances at once; retried while ZooKeeper is away."""
        if not self._leaving:
            return
        try:
            services = endpoints.load()
            with Channel(services.zookeeper, services.credential(Role.OPERATOR)) as channel:
                retire(channel, instances, BY)
                self._leaving = {host for host in self._leaving if channel.exists(paths.host(host))}
        except ChannelAwayError as error:
            log.warning(
                "ended hosts not removed from the channel, because ZooKeeper is away; retrying",
                hosts=sorted(self._leaving),
                error=str(error),
            )


def main() -> int:
    """Run until SIGTERM, then end every host."""
    configure_logs()
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    signal.signal(signal.SIGINT, lambda *_: ending.set())
    try:
        site = load_site(project.site_path())
    except SiteError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    runner = Runner(project.home(), site)
    while not ending.is_set():
        runner.step()
        ending.wait(POLL_SECONDS)
    runner.end_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
