"""Divide a link by weights with the kernel's HTB queue, which the command `tc` sets up.

Each unit has a class. A class is entitled to its part of the link, and may use what other classes
leave. A packet belongs to the class that its socket's priority names, so no filters are needed. All
other senders of the machine share one class. `network` calls this module.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sluice_ops.model.resources import Link

HANDLE = 0x511C
"""The handle of the agent's queue: another program set up a queue with another handle."""
LINK = 1
"""The class of the whole link."""
STEP = 0x10
"""Class numbers are multiples of this: if the agent's queue is removed, other queues treat all
these priorities alike.
"""
OTHERS = STEP
"""The class of all senders that are no units."""
LAST = 0xFFF0
"""The highest class number."""
LEAST_OTHERS = 100
"""The least weight of other senders, such as Kafka and ssh: one unit's default weight.

Their weight is a tenth of all units' weights if that is more, because units depend on them.
"""
TURN_SECONDS = 0.01
"""Unused bandwidth is given out in turns of this length: a packet waits for less than one turn, and
a turn fits the largest packets.
"""
BURST_SECONDS = 0.001
"""How long a class may send at full speed."""
LEAST_BYTES = 1600
"""One frame."""
LEAST_BURST = 16_384
"""The smallest burst. Unit: bytes."""
TC_SECONDS = 10.0
"""How long one `tc` command may take."""
SBIN = "/usr/sbin:/sbin"


class NotDividedError(Exception):
    """The link cannot be divided; the message says why, and what to do."""


@dataclass(frozen=True)
class ClassShare:
    """The share of the link of one class."""

    rate: int
    """The rate to which the class is entitled. Unit: bits a second."""
    quantum: int
    """How much unused bandwidth the class may use in one turn. Unit: bytes."""


def shares(link: Link, weights: Mapping[int, int]) -> dict[int, ClassShare]:
    """Divide the whole link among classes by their weights."""
    bits, total = link.mbit * 1_000_000, sum(weights.values())
    turn = int(bits * TURN_SECONDS) // 8
    return {
        number: ClassShare(bits * weight // total, max(LEAST_BYTES, turn * weight // total))
        for number, weight in weights.items()
    }


def with_others(weights: Mapping[int, int]) -> dict[int, int]:
    """Add the class of all senders that are no units."""
    return {OTHERS: max(LEAST_OTHERS, sum(weights.values()) // 10), **weights}


def free_class(used: Iterable[int]) -> int:
    """Return the lowest unused class number; NotDividedError if all 4,094 are used."""
    taken = {LINK, OTHERS, *used}
    for number in range(OTHERS, LAST + 1, STEP):
        if number not in taken:
            return number
    message = f"{len(taken)} classes exist already: there are no more class numbers"
    raise NotDividedError(message)


def priority(number: int) -> int:
    """Return the priority of packets of a class."""
    return HANDLE << 16 | number


def class_of(packet_priority: int) -> int | None:
    """Return the unit's class that a priority names; None if it names no unit's class."""
    number = packet_priority & 0xFFFF
    return number if packet_priority >> 16 == HANDLE and number not in {LINK, OTHERS} else None


def tc_commands(link: Link, weights: Mapping[int, int], existing: frozenset[int] | None) -> Iterator[str]:
    """Yield the `tc` commands that leave exactly the classes of `weights`.

    `existing` are the present classes; None means that the agent's queue does not exist.
    """
    device, bits = f"dev {link.interface}", link.mbit * 1_000_000
    burst = max(LEAST_BURST, int(bits * BURST_SECONDS) // 8)
    if existing is None:
        yield f"qdisc replace {device} root handle {HANDLE:x}: htb default {OTHERS:x}"
    shape = f"ceil {bits}bit burst {burst}b cburst {burst}b"
    whole_link = f"parent {HANDLE:x}: classid {HANDLE:x}:{LINK:x}"
    yield f"class replace {device} {whole_link} htb rate {bits}bit {shape} quantum {LEAST_BURST}"
    divided = shares(link, with_others(weights))
    for number, share in divided.items():
        names = f"parent {HANDLE:x}:{LINK:x} classid {HANDLE:x}:{number:x}"
        yield f"class replace {device} {names} htb rate {share.rate}bit {shape} quantum {share.quantum}"
    for removed in sorted((existing or frozenset()) - divided.keys() - {LINK}):
        yield f"class del {device} classid {HANDLE:x}:{removed:x}"


def divide(link: Link, weights: Mapping[int, int]) -> None:
    """Divide a link among the classes of `weights`, in place: waiting packets stay in the queue."""
    commands = tc_commands(link, weights, classes(link.interface))
    _tc("-batch", "-", stdin="\n".join(commands) + "\n")


def restore_queue(interface: str) -> None:
    """Remove the agent's queue, so that the interface gets its own queue back."""
    if classes(interface) is not None:
        _tc("qdisc", "del", "dev", interface, "root")


def classes(interface: str) -> frozenset[int] | None:
    """Return the classes of the agent's queue; None without one.

    Raise NotDividedError if another program set up a queue.
    """
    queue = next((words for words in _show("qdisc", interface) if "root" in words[3:4]), None)
    if queue is None or queue[2] == "0:":
        return None
    _, kind, handle, *_ = queue
    if handle != f"{HANDLE:x}:":
        message = (
            f"another program set up the queue of {interface} ({kind} {handle}), and the agent leaves it "
            f"alone; to have the link divided, remove the queue: tc qdisc del dev {interface} root"
        )
        raise NotDividedError(message)
    return frozenset(int(words[2].split(":")[1], 16) for words in _show("class", interface))


def _show(kind: str, interface: str) -> list[list[str]]:
    """Return the words of lines such as `class htb 511c:10 parent 511c:1`.

    The text form is used, because older versions of `tc` show classes in no other form.
    """
    return [
        line.split()
        for line in _tc(kind, "show", "dev", interface).splitlines()
        if line.startswith(f"{kind} ")
    ]


def _tc(*words: str, stdin: str | None = None) -> str:
    command = shutil.which("tc", path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}")
    if command is None:
        message = "the command `tc` is not installed: install iproute2"
        raise NotDividedError(message)
    try:
        done = subprocess.run(
            [command, *words], input=stdin, capture_output=True, text=True, timeout=TC_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        message = f"`tc {' '.join(words)}` did not end within {TC_SECONDS:g} s"
        raise NotDividedError(message) from error
    if done.returncode:
        message = f"`tc {' '.join(words)}` failed: {' '.join(done.stderr.split())}"
        raise NotDividedError(message)
    return done.stdout
