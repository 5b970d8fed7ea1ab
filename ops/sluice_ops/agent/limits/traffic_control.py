"""A link divided by weights: the kernel's HTB, one class for each sender, set up with `tc`. Called by `sluice_ops.agent.limits.network`.

Each class is entitled to its part of the link, and may take what others leave. A packet is in the class that its socket's priority names,
so there are no filters; everything else on the machine that sends is in one class of its own.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sluice_ops.model.resources import Link

HANDLE = 0x511C
"""The number of the queue that this makes: another one on an interface was set up by somebody else."""
LINK = 1
STEP = 0x10
"""Numbers of classes are multiples of it: where our queue is taken away, other queues read all of them alike."""
OTHERS = STEP
"""The class of everything that is no unit."""
LAST = 0xFFF0
LEAST_OTHERS = 100
"""What is no unit weighs as much as one unit does by default, or a tenth of all units, if that is more: it serves them (Kafka, ssh)."""
TURN_SECONDS = 0.01
"""What is left over is handed out in turns of this length: a packet waits for less than one, and a turn holds the largest packets."""
BURST_SECONDS = 0.001
LEAST_BYTES = 1600
"""A frame."""
LEAST_BURST = 16_384
TC_SECONDS = 10.0
SBIN = "/usr/sbin:/sbin"


class NotDividedError(Exception):
    """The link cannot be divided; the message says why, and what to do."""


@dataclass(frozen=True)
class Part:
    """What one class is given."""

    rate: int
    """What it is entitled to. Unit: bits a second."""
    quantum: int
    """What it may send in its turn of what is left over. Unit: bytes."""


def parts(link: Link, weights: Mapping[int, int]) -> dict[int, Part]:
    """Divide a link among classes by their weights: all of it, and no more."""
    bits, total = link.mbit * 1_000_000, sum(weights.values())
    turn = int(bits * TURN_SECONDS) // 8
    return {
        number: Part(bits * weight // total, max(LEAST_BYTES, turn * weight // total))
        for number, weight in weights.items()
    }


def with_others(weights: Mapping[int, int]) -> dict[int, int]:
    """Add the class of everything that is no unit."""
    return {OTHERS: max(LEAST_OTHERS, sum(weights.values()) // 10), **weights}


def free(used: Iterable[int]) -> int:
    """Return the number of a class that is not there yet."""
    taken = {LINK, OTHERS, *used}
    for number in range(OTHERS, LAST + 1, STEP):
        if number not in taken:
            return number
    message = f"{len(taken)} classes are there already: no more can be told apart"
    raise NotDividedError(message)


def priority(number: int) -> int:
    """Return the priority that a class's packets carry."""
    return HANDLE << 16 | number


def number(carried: int) -> int | None:
    """Return the class of a unit that a priority names; None when it is no unit's."""
    found = carried & 0xFFFF
    return found if carried >> 16 == HANDLE and found not in {LINK, OTHERS} else None


def lines(link: Link, weights: Mapping[int, int], there: frozenset[int] | None) -> Iterator[str]:
    """Yield what `tc` is told, so that these classes and no others are there; None when not even the queue is."""
    at, bits = f"dev {link.interface}", link.mbit * 1_000_000
    burst = max(LEAST_BURST, int(bits * BURST_SECONDS) // 8)
    if there is None:
        yield f"qdisc replace {at} root handle {HANDLE:x}: htb default {OTHERS:x}"
    shape = f"ceil {bits}bit burst {burst}b cburst {burst}b"
    yield f"class replace {at} parent {HANDLE:x}: classid {HANDLE:x}:{LINK:x} htb rate {bits}bit {shape} quantum {LEAST_BURST}"
    divided = parts(link, with_others(weights))
    for each, part in divided.items():
        names = f"parent {HANDLE:x}:{LINK:x} classid {HANDLE:x}:{each:x}"
        yield f"class replace {at} {names} htb rate {part.rate}bit {shape} quantum {part.quantum}"
    for gone in sorted((there or frozenset()) - divided.keys() - {LINK}):
        yield f"class del {at} classid {HANDLE:x}:{gone:x}"


def divide(link: Link, weights: Mapping[int, int]) -> None:
    """Divide a link among the classes of these weights, in place: packets that wait go on waiting."""
    _tc("-batch", "-", told="\n".join(lines(link, weights, classes(link.interface))) + "\n")


def undivide(interface: str) -> None:
    """Give the interface its own queue back."""
    if classes(interface) is not None:
        _tc("qdisc", "del", "dev", interface, "root")


def classes(interface: str) -> frozenset[int] | None:
    """Return the classes of our queue; None when it is not there."""
    queue = next((found for found in _shown("qdisc", interface) if "root" in found[3:4]), None)
    if queue is None or queue[2] == "0:":
        return None
    _, kind, handle, *_ = queue
    if handle != f"{HANDLE:x}:":
        message = f"{interface} has a queue that somebody else set up ({kind} {handle}): `tc qdisc del dev {interface} root` takes it away"
        raise NotDividedError(message)
    return frozenset(int(found[2].split(":")[1], 16) for found in _shown("class", interface))


def _shown(what: str, interface: str) -> list[list[str]]:
    """Return lines such as `class htb 511c:10 parent 511c:1`; older versions of `tc` show classes in no other form."""
    return [
        line.split()
        for line in _tc(what, "show", "dev", interface).splitlines()
        if line.startswith(f"{what} ")
    ]


def _tc(*words: str, told: str | None = None) -> str:
    command = shutil.which("tc", path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}")
    if command is None:
        message = "there is no command `tc`: install iproute2"
        raise NotDividedError(message)
    try:
        done = subprocess.run(
            [command, *words], input=told, capture_output=True, text=True, timeout=TC_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        message = f"`tc {' '.join(words)}` does not end"
        raise NotDividedError(message) from error
    if done.returncode:
        message = f"`tc {' '.join(words)}`: {' '.join(done.stderr.split())}"
        raise NotDividedError(message)
    return done.stdout
