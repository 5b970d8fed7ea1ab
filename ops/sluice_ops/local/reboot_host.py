"""`python -m sluice_ops.local.reboot_host HOST`: the `reboot` command of the embedded platform.

It kills everything on the host, the agent last; supervisord restarts the agent. A real host has its
own command, such as `systemctl reboot`.
"""

import signal
import sys

from sluice_ops.agent.host.processes import kill_all
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.limits.control_groups import find_containers
from sluice_ops.site import project


def reboot(host: str) -> int:
    """Kill all processes of the host; return 1 if it has no agent."""
    home = project.home()
    folder = HostFolder(home, host)
    agent = folder.agent()
    if agent is None or not agent.alive:
        sys.stderr.write(f"no agent of host {host!r} runs in {home}, so nothing was rebooted\n")
        return 1
    agent.send(signal.SIGSTOP)  # so that it does not restart the killed units
    containers = find_containers(home, host)
    for unit in folder.units():
        session = unit.session()
        kill_all(containers.processes(unit.id, session.pid if session else None))
    try:
        request = folder.reboot()
        if request is not None:
            # this machine never boots, so the request is marked as done here
            folder.write_reboot(request.model_copy(update={"done": True}))
    finally:
        agent.send(signal.SIGKILL)  # also if the disk is full: supervisord restarts only an ended agent
    return 0


if __name__ == "__main__":
    sys.exit(reboot(sys.argv[1]))
