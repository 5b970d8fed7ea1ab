"""What a driver cannot begin without may be away: Kafka, PostgreSQL, ZooKeeper. It waits, and says what for; nobody counts that."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg
import structlog
from confluent_kafka import KafkaException

from ops.channel.client import ChannelAwayError
from pipeline.driver.failure import plainly
from pipeline.driver.streams import NoStreamError, StreamError
from pipeline.postgres import AWAY

if TYPE_CHECKING:
    from pipeline.driver.flow import Flow
    from pipeline.driver.follow import Follow
    from pipeline.driver.restarts import Restarts

log = structlog.get_logger()

AGAIN_SECONDS = 2.0
"""Between two tries."""


def is_away(error: Exception) -> bool:
    """Tell whether an error means that a service does not answer now; a stream that is not there will not come by waiting."""
    return isinstance(error, (*AWAY, StreamError, KafkaException, ChannelAwayError)) and not isinstance(error, NoStreamError)


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
        flow.away = plainly(error)
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
            away = f"PostgreSQL: {plainly(error)}" if isinstance(error, psycopg.Error) else plainly(error)
            if self._follow.report.away != away:
                log.warning("it waits for what is away", away=away)
            self._follow.note(away=away)
            return False
        if self._follow.report.away is not None:
            log.info("what was away is back")
            self._follow.note(away=None, since=time.time())
        return True
