"""A network between this machine and a namespace of a test's own, with a router in between that loses packets when it is told to.

The router is a namespace too. It drops what it forwards, so neither end learns of a loss: no error of a socket, no RST.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

NEEDS = "this test needs root and iproute2, iptables and nsenter"
AVAILABLE = os.geteuid() == 0 and all(shutil.which(tool) for tool in ("ip", "iptables", "nsenter"))
HERE, NEAR, FAR, THERE = "10.213.80.1", "10.213.80.2", "10.213.81.1", "10.213.81.2"
"""This machine, the two sides of the router, and the far end."""


class Wire:
    """The two namespaces, and what the router drops."""

    address = THERE

    def __init__(self) -> None:
        """Name them by this process."""
        number = os.getpid()
        self._router, self._end, self._here = f"wire-{number}", f"end-{number}", f"wire{number}"

    def inside(self, *words: str) -> list[str]:
        """Return a command that runs another one at the far end."""
        return ["nsenter", f"--net=/run/netns/{self._end}", *words]

    def lose(self, part: float) -> None:
        """Drop so much of all packets, either way, by chance."""
        self._firewall(
            "-A", "FORWARD", "-m", "statistic", "--mode", "random", "--probability", str(part), "-j", "DROP"
        )

    def cut(self) -> None:
        """Drop every packet, either way."""
        self._firewall("-A", "FORWARD", "-j", "DROP")

    def mend(self) -> int:
        """Drop nothing any more; return how many packets were dropped."""
        rules = self._firewall("-nvxL", "FORWARD").splitlines()[2:]
        self._firewall("-F", "FORWARD")
        return sum(int(rule.split()[0]) for rule in rules)

    def make(self) -> None:
        """Make both namespaces, and what joins them."""
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
        """Remove what is there of it."""
        subprocess.run(["ip", "link", "del", self._here], check=False)  # the route goes along
        for space in (self._router, self._end):
            subprocess.run(["ip", "netns", "del", space], check=False)

    def _firewall(self, *words: str) -> str:
        command = ["nsenter", f"--net=/run/netns/{self._router}", "iptables", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def wired() -> Iterator[Wire]:
    """Make one; it is gone afterwards."""
    wire = Wire()
    try:
        wire.make()
        yield wire
    finally:
        wire.remove()
