"""Whether a run has read all that there was when it began: what tells that it is level where little comes out of what it reads."""

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sluice.driver.spark.slots import records_read
from sluice.kafka.reader import StreamError, Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASK_SECONDS = 0.5
"""Between two questions to the JVM about what was read: they cost it some hundred calls."""
STANDS_SECONDS = 5.0
"""Where nothing was read for so long, what there was to read is counted, record by record: executors tell every two seconds."""


class Reading:
    """Compares what the tasks of a run have read with what lay before them."""

    def __init__(self, begins: Mapping[str, int], ends: Mapping[str, int]) -> None:
        """Expect all that lies between, of each partition."""
        self._begins, self._ends = begins, ends
        self.needed = sum(ends[place] - begin for place, begin in begins.items())
        """So many offsets, which are more than records where senders use transactions."""
        self._count, self._stands_since = -1, 0.0
        """So many it had read at the last look, and since when."""
        self._asked = 0.0

    def is_over(self, session: "SparkSession", streams: Streams) -> bool:
        """Tell whether all of it is read, as far as was heard at the last look."""
        now = time.monotonic()
        if now < self._asked + ASK_SECONDS:
            return False
        self._asked = now
        count, tasks = records_read(session)
        if count != self._count:
            self._count, self._stands_since = count, now
        elif count < self.needed and now > self._stands_since + STANDS_SECONDS:
            waiting = {
                place: (first, end)
                for place, first in self._begins.items()
                if (end := self._ends[place]) > first
            }
            try:
                self.needed = sum(len(streams.held(place, *within)) for place, within in waiting.items())
            except StreamError:
                return False  # Kafka is away: nobody knows, and what runs goes on
            self._stands_since = math.inf
        return tasks >= len(self._begins) and count >= self.needed
