"""`python -m tests.integration.sluice_ops.controller.joiner HOST TOKEN-FILE STEP`: register a host,
killed before effect STEP.

Effects outlive the process: files that it writes or removes, and writes to the channel. The process
prints the number of its effects.
"""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sluice_ops.agent.host import store
from sluice_ops.agent.host.presence import Presence
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.channel import Channel
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import HostFacts
from sluice_ops.model.ids import HostName
from sluice_ops.operations import joining
from sluice_ops.site import endpoints, project


class KillSwitch:
    """Kills this process before one of its effects."""

    def __init__(self, step: int) -> None:
        self.effects_until_kill = step
        self.effects = 0

    def before(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*words: Any, **more: Any) -> Any:
            if self.effects_until_kill == self.effects:
                os.kill(os.getpid(), signal.SIGKILL)
            self.effects += 1
            return act(*words, **more)

        return counted


def join(host: str, file: Path) -> None:
    """Register a host, as `sluice agent` does."""
    folder = HostFolder(project.home(), host)
    folder.make()
    joining.join(file, folder.credential())
    site_endpoints, own = endpoints.load(), folder.credential()
    facts = HostFacts(
        name=HostName(host), address="127.0.0.1", zone="onprem", cpu=1, memory=1, known_as=own.known_as
    )
    credential = replace(site_endpoints.required_credential(Role.AGENT), own=own)
    with Channel(site_endpoints.zookeeper, credential) as channel:
        assert Presence(channel, facts, project.home(), os.getpid(), file).ensure()


def main() -> None:
    """Register the host of the command line."""
    host, file, step = sys.argv[1:]
    kill_switch = KillSwitch(int(step))
    for module in (joining, store):
        module.write_private = kill_switch.before(module.write_private)
    for name in ("create", "multi", "put"):
        setattr(Channel, name, kill_switch.before(getattr(Channel, name)))
    Path.unlink = kill_switch.before(Path.unlink)
    join(host, Path(file))
    sys.stdout.write(f"{kill_switch.effects}\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
