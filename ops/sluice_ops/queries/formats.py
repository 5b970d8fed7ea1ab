"""Times as people read them."""

import time

MINUTE = 60
HOUR = 3600
DAY = 86_400


def ago(at: float | None) -> str:
    """Write how long ago something was."""
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
    """Write when something is, on this machine's clock; the date too where it is not within a day."""
    if at is None:
        return "-"
    return time.strftime("%H:%M" if abs(at - time.time()) < DAY else "%Y-%m-%d %H:%M", time.localtime(at))


def moment(at: float) -> str:
    """Write a date and time on this machine's clock, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
