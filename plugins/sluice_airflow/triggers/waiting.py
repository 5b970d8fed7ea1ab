"""How a trigger waits for a change of the control channel, also while ZooKeeper is away."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

from sluice_airflow.hooks.sluice import shared_channel
from sluice_ops.channel import ChannelAwayError

T = TypeVar("T")

RECHECK_SECONDS = 10.0
"""A ZooKeeper watch tells when to read again. This interval covers a watch that was missed."""
SETTLE_SECONDS = 0.1
"""Changes come in bursts: after the first change, wait for this long and read once."""


async def rest(bell: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(bell.wait(), seconds)
        await asyncio.sleep(SETTLE_SECONDS)
    bell.clear()


async def first_value(look: Callable[[], T | None], end: float, sluice_conn_id: str | None) -> T | None:
    """Return the first value that `look` gives, also while ZooKeeper is away; None at the end.

    `look` watches the nodes that it reads. `end` is on the monotonic clock.
    """
    with shared_channel(sluice_conn_id).bell() as bell:
        while True:
            with contextlib.suppress(ChannelAwayError):
                value = await asyncio.to_thread(look)
                if value is not None:
                    return value
            left = end - time.monotonic()
            if left <= 0:
                return None
            await rest(bell, min(RECHECK_SECONDS, left))


def monotonic(until: float) -> float:
    """Convert a wall-clock time to the monotonic clock, so that a jump of the wall clock ends no
    wait.
    """
    return time.monotonic() + until - time.time()
