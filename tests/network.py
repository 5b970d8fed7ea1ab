"""Hosts with a network of their own: network namespaces on a common switch, with links that a test
can cut.

This machine is on the switch too, through an interface that is removed with the network. Only root
can make a network.
"""

import os
import shutil
import subprocess
from contextlib import suppress

import pytest

PREFIX = "10.213.78"
HERE = 254
"""The last byte of this machine's address."""

needs_network = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make network namespaces"),
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in ("ip", "iptables", "nsenter")),
        reason="needs iproute2 and iptables",
    ),
]


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


class Network:
    """Hosts by number; number `n` has the address PREFIX.n."""

    def __init__(self, *numbers: int) -> None:
        """Create the switch and the hosts."""
        process = os.getpid()
        self._switch = f"sluice-switch-{process}"
        self._here = f"slh{process}"
        self._spaces = {number: f"sluice-host{number}-{process}" for number in numbers}
        try:
            self._make_switch()
            for number in numbers:
                self._make_host(number)
        except BaseException:
            self.close()
            raise

    def _make_switch(self) -> None:
        _run("ip", "netns", "add", self._switch)
        _run("ip", "-n", self._switch, "link", "add", "switch", "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "switch", "up")
        _run("ip", "link", "add", self._here, "type", "veth", "peer", "name", "here", "netns", self._switch)
        _run("ip", "addr", "add", f"{PREFIX}.{HERE}/24", "dev", self._here)
        _run("ip", "link", "set", self._here, "up")
        self._plug("here")

    def _make_host(self, number: int) -> None:
        space = self._spaces[number]
        _run("ip", "netns", "add", space)
        _run(
            "ip",
            "-n",
            space,
            "link",
            "add",
            "eth0",
            "type",
            "veth",
            "peer",
            "name",
            f"host{number}",
            "netns",
            self._switch,
        )
        _run("ip", "-n", space, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
        for interface in ("lo", "eth0"):
            _run("ip", "-n", space, "link", "set", interface, "up")
        self._plug(f"host{number}")

    def _plug(self, port: str) -> None:
        _run("ip", "-n", self._switch, "link", "set", port, "master", "switch")
        _run("ip", "-n", self._switch, "link", "set", port, "up")

    def address(self, number: int) -> str:
        return f"{PREFIX}.{number}"

    def inside(self, number: int) -> list[str]:
        """Return the command prefix that runs a program on a host."""
        return ["nsenter", f"--net=/run/netns/{self._spaces[number]}"]

    def cut(self, number: int) -> None:
        """Drop all packets of a host, both ways, without an error on either side."""
        for chain, way in (("INPUT", "-i"), ("OUTPUT", "-o")):
            _run(*self.inside(number), "iptables", "-I", chain, way, "eth0", "-j", "DROP")

    def mend(self, number: int) -> None:
        for chain in ("INPUT", "OUTPUT"):
            _run(*self.inside(number), "iptables", "-F", chain)

    def unplug(self, number: int) -> None:
        """Take the host's link down; the host sees that."""
        _run("ip", "-n", self._switch, "link", "set", f"host{number}", "down")

    def plug(self, number: int) -> None:
        _run("ip", "-n", self._switch, "link", "set", f"host{number}", "up")

    def close(self) -> None:
        """Remove the network; end the processes on its hosts first."""
        with suppress(FileNotFoundError):
            subprocess.run(
                ["ip", "link", "del", self._here], check=False, capture_output=True
            )  # its namespace would remove it later
        for space in (*self._spaces.values(), self._switch):
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
