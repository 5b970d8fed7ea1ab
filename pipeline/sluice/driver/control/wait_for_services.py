"""Postpones the work of a driver while a service or a disk is unavailable; this does not count as a
failure.
"""

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
    from sluice.driver.control.control_channel import ChannelFollower
    from sluice.driver.control.restarts import Restarts
    from sluice.driver.counters import Flow

log = structlog.get_logger()

RETRY_SECONDS = 2.0
"""Time between two tries."""
ROOM_SECONDS = 5.0
"""Time between two tries while a disk is full, because each try starts a query."""


def is_away(error: Exception) -> bool:
    """Tell whether a service does not answer now, or a disk is full.

    A missing stream does not count: waiting does not help.
    """
    away = isinstance(error, (*UNAVAILABLE, StreamError, KafkaException, ChannelAwayError)) or is_disk_full(
        error
    )
    return away and not isinstance(error, NoStreamError)


def restart_or_raise(error: BaseException, restarts: "Restarts", flow: "Flow", *, give_up: bool) -> None:
    """Schedule the restart of a failed query; raise its error with `give_up`, or if it failed too
    often.

    A query that a full disk ended restarts until the disk has room, and does not count as failed.
    """
    if is_disk_full(error):
        restarts.put_off(time.monotonic(), ROOM_SECONDS)
        flow.away = error_text(error)
        log.warning("a disk is full; the query restarts once the disk has room", away=flow.away)
        return
    if give_up or not restarts.failed(time.monotonic()):
        raise error
    flow.restarts += 1
    flow.failure = error_text(error)
    log.warning("the query failed and restarts in place", error=flow.failure)


def restart(run: Callable[[], object], restarts: "Restarts", flow: "Flow") -> None:
    """Restart a query; if a service does not answer, put the restart off and name the service in
    `flow.away`.
    """
    restarts.begun()
    try:
        run()
        flow.away = None
    except Exception as error:
        if not is_away(error):
            raise
        restarts.put_off(time.monotonic(), RETRY_SECONDS)
        flow.away = error_text(error)
        log.warning("a service does not answer; the query restarts once it does", away=flow.away)


class ServiceWait:
    """Retries an action until the services that it needs answer."""

    def __init__(self, follower: "ChannelFollower") -> None:
        """Name the services that do not answer in the incarnation's report."""
        self._follower = follower
        self._due = 0.0

    def done(self, act: Callable[[], object]) -> bool:
        """Do the action if a try is due; return whether it was done."""
        if time.monotonic() < self._due:
            return False
        try:
            act()
        except Exception as error:
            if not is_away(error):
                raise
            self._due = time.monotonic() + RETRY_SECONDS
            away = (
                f"PostgreSQL: {error_text(error)}" if isinstance(error, psycopg.Error) else error_text(error)
            )
            if self._follower.report.away != away:
                log.warning("the driver waits for a service that does not answer", away=away)
            self._follower.note(away=away)
            return False
        if self._follower.report.away is not None:
            log.info("all services answer again")
            self._follower.note(away=None, since=time.time())
        return True
