"""Reboot an embedded host: kill at once everything that it runs, the agent last; its supervisor starts the agent again.

`python -m ops.agent.reboot HOST` is the embedded site's `reboot` command. A real host's is its own, such as `systemctl reboot`.
"""

import signal
import sys

from ops import endpoints
from ops.agent.containers import find_containers
from ops.agent.processes import kill_all
from ops.agent.store import HostFolder


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
            folder.keep_reboot(asked.model_copy(update={"done": True}))  # the machine that it stands for has booted: this one never does
    finally:
        agent.send(signal.SIGKILL)  # also where the disk is full: stopped, it would never be there again
    return 0


if __name__ == "__main__":
    sys.exit(reboot(sys.argv[1]))
