"""The simulation's ZooKeeper: the platform's service, in a temporary folder and on a free port."""

import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from sluice_ops.local.layout import ADDRESS, LOWEST_BASE, Layout, Ports
from sluice_ops.local.services import zookeeper
from sluice_ops.local.start.service import NotReadyError
from sluice_ops.site.installation import PlatformError

CHROOT = "simulated"
FIGURES = {
    "znodes": "zk_znode_count",
    "tree_bytes": "zk_approximate_data_size",
    "watches": "zk_watch_count",
    "ephemerals": "zk_ephemerals_count",
}


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return int(probe.getsockname()[1])


class Server:
    """The simulation's ZooKeeper."""

    def __init__(self, folder: Path, heap: int) -> None:
        """Start ZooKeeper in `folder` with this heap in MiB."""
        self._port = free_port()
        layout = Layout(
            home=folder,
            ports=replace(Ports.above(LOWEST_BASE), zookeeper=self._port),
            site=folder / "site.yaml",
        )
        layout.make_folders()
        self._service = zookeeper.service(layout, CHROOT, heap, guarded=False)
        self._service.prepare()
        self._log = layout.logs / "zookeeper.log"
        with self._log.open("w") as out:
            self._process = subprocess.Popen(
                self._service.program.command, stdout=out, stderr=out, start_new_session=True
            )

    def wait(self) -> None:
        """Wait until ZooKeeper answers, then create the chroot.

        PlatformError if ZooKeeper does not start.
        """
        end = time.monotonic() + self._service.ready_seconds
        while True:
            try:
                self._service.ready()
                break
            except (OSError, NotReadyError) as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    message = (
                        f"the simulation's ZooKeeper does not start: {error}; "
                        "correct the cause and try again. "
                        f"The end of its log:\n{self._log.read_text()[-1000:]}"
                    )
                    raise PlatformError(message) from error
                time.sleep(0.05)
        self._service.after()

    @property
    def address(self) -> str:
        """The address with the chroot."""
        return f"{ADDRESS}:{self._port}/sluice/{CHROOT}"

    def figures(self) -> dict[str, int]:
        """Return the numbers of nodes and watches, and the size of the data in bytes."""
        values = dict(
            line.split("\t", 1)
            for line in zookeeper.send_command(self._port, "mntr").splitlines()
            if "\t" in line
        )
        return {name: int(values[key]) for name, key in FIGURES.items()}

    def stop(self) -> None:
        """Kill ZooKeeper; its data is not needed any more."""
        self._process.kill()
        self._process.wait()
