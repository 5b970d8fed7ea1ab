"""A network to a namespace, over a router that drops packets on request.

The router is a namespace too. It drops packets that it forwards, so neither end learns of the loss:
no socket error, no RST.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

NEEDS = "this test needs root and iproute2, iptables and nsenter"
AVAILABLE = os.geteuid() == 0 and all(shutil.which(tool) for tool in ("ip", "iptables", "nsenter"))
HERE, NEAR, FAR, THERE = "10.213.80.1", "10.213.80.2", "10.213.81.1", "10.213.81.2"
"""The addresses of this machine, of the router's two sides, and of the far end."""


class Wire:
    """The namespaces of the router and of the far end, and the router's rules."""

    address = THERE

    def __init__(self) -> None:
        """Choose names that contain this process's id."""
        number = os.getpid()
        self._router, self._end, self._here = f"wire-{number}", f"end-{number}", f"wire{number}"

    def inside(self, *words: str) -> list[str]:
        """Return a command that runs another command at the far end."""
        return ["nsenter", f"--net=/run/netns/{self._end}", *words]

    def lose(self, part: float) -> None:
        """Drop packets at random in both directions; `part` is the probability, 0 to 1."""
        self._firewall(
            "-A", "FORWARD", "-m", "statistic", "--mode", "random", "--probability", str(part), "-j", "DROP"
        )

    def cut(self) -> None:
        """Drop every packet in both directions."""
        self._firewall("-A", "FORWARD", "-j", "DROP")

    def mend(self) -> int:
        """Drop no more packets; return how many were dropped."""
        rules = self._firewall("-nvxL", "FORWARD").splitlines()[2:]
        self._firewall("-F", "FORWARD")
        return sum(int(rule.split()[0]) for rule in rules)

    def make(self) -> None:
        """Create both namespaces, their links and routes."""
        for space in (self._router, self._end):
            _ip("netns", "add", space)
        _ip("link", "add", self._here, "type", "veth", "peer", "name", "near", "netns", self._router)
        _ip(
            "-n",
            self._router,
            "link",
            "add",
            "far",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            self._end,
        )
        _ip("addr", "add", f"{HERE}/30", "dev", self._here)
        _ip("link", "set", self._here, "up")
        for space, interface, address in (
            (self._router, "near", NEAR),
            (self._router, "far", FAR),
            (self._end, "eth0", THERE),
        ):
            _ip("-n", space, "addr", "add", f"{address}/30", "dev", interface)
            _ip("-n", space, "link", "set", interface, "up")
        _ip("-n", self._end, "link", "set", "lo", "up")
        _ip("-n", self._end, "route", "add", "default", "via", FAR)
        _ip("route", "add", f"{THERE}/32", "via", NEAR)
        forwards = [
            "nsenter",
            f"--net=/run/netns/{self._router}",
            "sh",
            "-c",
            "echo 1 > /proc/sys/net/ipv4/ip_forward",
        ]
        subprocess.run(forwards, check=True)

    def remove(self) -> None:
        """Remove the namespaces and links that exist."""
        subprocess.run(["ip", "link", "del", self._here], check=False)  # removes the route too
        for space in (self._router, self._end):
            subprocess.run(["ip", "netns", "del", space], check=False)

    def _firewall(self, *words: str) -> str:
        command = ["nsenter", f"--net=/run/netns/{self._router}", "iptables", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def wired() -> Iterator[Wire]:
    """Create a link; remove it at the end."""
    wire = Wire()
    try:
        wire.make()
        yield wire
    finally:
        wire.remove()
