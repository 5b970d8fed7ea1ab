"""Reboot an embedded host: kill at once everything that it runs, the agent last; its supervisor starts the agent again.

`python -m sluice_ops.local.reboot_host HOST` is the embedded site's `reboot` command. A real host's is its own, such as `systemctl reboot`.
"""

import signal
import sys

from sluice_ops.agent.host.processes import kill_all
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.limits.control_groups import find_containers
from sluice_ops.site import endpoints


def reboot(host: str) -> int:
    """Kill all that `host` runs."""
    home = endpoints.home()
    folder = HostFolder(home, host)
    agent = folder.agent()
    if agent is None or not agent.alive:
        sys.stderr.write(f"no agent of host {host!r} runs in {home}: there is nothing to reboot\n")
        return 1
    agent.send(signal.SIGSTOP)  # it must not start again what is killed
    containers = find_containers(home, host)
    for unit in folder.units():
        session = unit.session()
        kill_all(containers.processes(unit.id, session.pid if session else None))
    try:
        asked = folder.reboot()
        if asked is not None:
            folder.keep_reboot(
                asked.model_copy(update={"done": True})
            )  # the machine that it stands for has booted: this one never does
    finally:
        agent.send(signal.SIGKILL)  # also where the disk is full: stopped, it would never be there again
    return 0


if __name__ == "__main__":
    sys.exit(reboot(sys.argv[1]))
