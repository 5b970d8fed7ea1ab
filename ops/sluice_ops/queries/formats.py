"""Times and changes in a form for people."""

import time

from sluice_ops.model.change import ChangeSpec

MINUTE = 60
HOUR = 3600
DAY = 86_400


def ago(at: float | None) -> str:
    """Return how long ago a time was, such as `3 min`; `-` for no time."""
    if not at:
        return "-"
    seconds = max(0, int(time.time() - at))
    if seconds < MINUTE:
        return f"{seconds} s"
    if seconds < HOUR:
        return f"{seconds // MINUTE} min"
    if seconds < DAY:
        return f"{seconds // HOUR} h"
    return f"{seconds // DAY} d"


def clock(at: float | None) -> str:
    """Return a time on this machine's clock, with the date if it is over a day away."""
    if at is None:
        return "-"
    return time.strftime("%H:%M" if abs(at - time.time()) < DAY else "%Y-%m-%d %H:%M", time.localtime(at))


def moment(at: float) -> str:
    """Return a date and time on this machine's clock, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def subject(spec: ChangeSpec) -> str:
    """Return the subject of a change: `h2`, `enrich → zone:ec2`, `entry k=2`."""
    words = [
        str(word)
        for word in (spec.fault, *spec.named_hosts, *spec.named_tiers, *spec.workers, spec.shift)
        if word is not None
    ]
    if spec.k is not None:
        words.append(f"k={spec.k}")
    if spec.partitions is not None:
        words.append(f"partitions={spec.partitions}")
    if spec.layer is not None:
        words.append(f"layer={spec.layer}")
    words += [f"→ {place}" for place in (spec.to, spec.release) if place is not None]
    if spec.until is not None:
        words.append(f"until {clock(spec.until)}")
    return " ".join(words)
