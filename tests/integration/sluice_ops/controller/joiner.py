"""`python -m tests.integration.sluice_ops.controller.joiner HOST TOKEN-FILE STEP`: register a host; be killed before effect STEP.

Effects are what outlives the process: files that are written or removed, and writes to the channel. It prints how many it had.
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
from sluice_ops.site import endpoints


class Fuse:
    """Kills this process before one of its effects."""

    def __init__(self, step: int) -> None:
        self.left = step
        self.effects = 0

    def before(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def acting(*words: Any, **more: Any) -> Any:
            if self.left == self.effects:
                os.kill(os.getpid(), signal.SIGKILL)
            self.effects += 1
            return act(*words, **more)

        return acting


def join(host: str, file: Path) -> None:
    """Do as `sluice agent` does until the host is registered."""
    folder = HostFolder(endpoints.home(), host)
    folder.make()
    joining.join(file, folder.credential())
    where, own = endpoints.load(), folder.credential()
    facts = HostFacts(
        name=HostName(host), address="127.0.0.1", zone="onprem", cpu=1, memory=1, known_as=own.known_as
    )
    with Channel(where.zookeeper, replace(where.needed(Role.AGENT), own=own)) as channel:
        assert Presence(channel, facts, endpoints.home(), os.getpid(), file).ensure()


def main() -> None:
    """Read the command line."""
    host, file, step = sys.argv[1:]
    fuse = Fuse(int(step))
    for module in (joining, store):
        module.write_private = fuse.before(module.write_private)
    for name in ("create", "multi", "put"):
        setattr(Channel, name, fuse.before(getattr(Channel, name)))
    Path.unlink = fuse.before(Path.unlink)
    join(host, Path(file))
    sys.stdout.write(f"{fuse.effects}\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
