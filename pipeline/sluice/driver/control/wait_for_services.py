"""What a driver needs may be away: Kafka, PostgreSQL, ZooKeeper, or room on a disk. It waits, and says what for; nobody counts that."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg
import structlog
from confluent_kafka import KafkaException

from sluice.failures import error_text, is_disk_full
from sluice.kafka.reader import NoStreamError, StreamError
from sluice.postgres import UNAVAILABLE
from sluice_ops.channel.client import ChannelAwayError

if TYPE_CHECKING:
    from sluice.driver.control.control_channel import Follow
    from sluice.driver.control.restarts import Restarts
    from sluice.driver.counters import Flow

log = structlog.get_logger()

AGAIN_SECONDS = 2.0
"""Between two tries."""
ROOM_SECONDS = 5.0
"""The same where a disk is full: each try begins a query."""


def is_away(error: Exception) -> bool:
    """Tell whether a service does not answer now, or a disk is full; a stream that is not there will not come by waiting."""
    away = isinstance(error, (*UNAVAILABLE, StreamError, KafkaException, ChannelAwayError)) or is_disk_full(
        error
    )
    return away and not isinstance(error, NoStreamError)


def bear(error: BaseException, restarts: "Restarts", flow: "Flow", *, give_up: bool) -> None:
    """Have a query that has failed begun again in place, or raise its error: to `give_up`, or since it fails too often.

    What a full disk has ended is begun again for as long as it takes, and has not failed.
    """
    if is_disk_full(error):
        restarts.put_off(time.monotonic(), ROOM_SECONDS)
        flow.away = error_text(error)
        log.warning("the query is begun again once a disk has room", away=flow.away)
        return
    if give_up or not restarts.failed(time.monotonic()):
        raise error
    flow.restarts += 1
    flow.failure = error_text(error)
    log.warning("the query failed and is begun again in place", error=flow.failure)


def run_again(run: Callable[[], object], restarts: "Restarts", flow: "Flow") -> None:
    """Begin a query again that has failed, a little later where what it needs is away; who asks is told."""
    restarts.begun()
    try:
        run()
        flow.away = None
    except Exception as error:
        if not is_away(error):
            raise
        restarts.put_off(time.monotonic(), AGAIN_SECONDS)
        flow.away = error_text(error)
        log.warning("the query is begun again once what it needs is back", away=flow.away)


class Patience:
    """Tries again later what cannot be done now."""

    def __init__(self, follow: "Follow") -> None:
        """Say in its report what it waits for."""
        self._follow = follow
        self._due = 0.0

    def done(self, act: Callable[[], object]) -> bool:
        """Do it if it is time to, and return whether it was done."""
        if time.monotonic() < self._due:
            return False
        try:
            act()
        except Exception as error:
            if not is_away(error):
                raise
            self._due = time.monotonic() + AGAIN_SECONDS
            away = (
                f"PostgreSQL: {error_text(error)}" if isinstance(error, psycopg.Error) else error_text(error)
            )
            if self._follow.report.away != away:
                log.warning("it waits for what is away", away=away)
            self._follow.note(away=away)
            return False
        if self._follow.report.away is not None:
            log.info("what was away is back")
            self._follow.note(away=None, since=time.time())
        return True
