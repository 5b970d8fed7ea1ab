"""The outputs of a workload, and how long each record took until it was visible there."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import psycopg

from tests.bench.figures import first_of_each, waits
from tests.bench.flow import QUIET_SECONDS, Feed, Flow, ends, load, sent

LOOK_SECONDS = 0.02
"""The pause between two looks at a table."""
PAGES = 256
"""How many pages before a table's end a look begins: PostgreSQL fills free pages before the end."""


class Window(NamedTuple):
    """The result of a rate that was offered for a while."""

    sent: int
    expected: int
    """How many records should come out."""
    waited: list[float]
    """How long each took from its due time on, in the order of the due times. Unit: seconds."""
    end: float
    """When the last one was due. Unit: seconds since 1970."""


class Output(Protocol):
    def expected(self, feed: Feed, count: int) -> int:
        """Return how many records come out of this many records."""

    def count(self) -> int:
        """Return how many records are out."""

    def window(self, feed: Feed, rate: int, seconds: float) -> Window:
        """Offer a rate; return when all records are out, or none has come for `QUIET_SECONDS`."""


@dataclass
class StreamOutput:
    """The records of a stream, as a consumer gets them."""

    kafka: str
    stream: str

    def expected(self, feed: Feed, count: int) -> int:  # noqa: ARG002 — each record comes out
        return count

    def count(self) -> int:
        return sum(ends(self.kafka, self.stream).values())

    def window(self, feed: Feed, rate: int, seconds: float) -> Window:
        with Flow(self.kafka, rate, seconds, feed=feed, last=self.stream) as flow:
            count = flow.wait()
        first = sorted(first_of_each(flow.arrivals), key=lambda arrival: arrival.due)
        waited = [arrival.at - arrival.due for arrival in first]
        return Window(count, count, waited, max((arrival.due for arrival in first), default=0.0))


class Looks:
    """Asks for a count again and again, inside `with`."""

    def __init__(self, postgres: str, query: str) -> None:
        self._postgres, self._query = postgres, query
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.counts: list[tuple[float, int]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        with psycopg.connect(self._postgres, autocommit=True) as connection:
            while not self._stopped.wait(LOOK_SECONDS):
                count = counted(connection, self._query)
                self.counts.append((time.time(), count))


def counted(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


@dataclass
class TableOutput:
    """The rows of a table, or the sum of its counts, as another client sees them.

    The Nth record that should come counts as out when the table has N.
    """

    kafka: str
    postgres: str
    table: str
    counts: str = ""
    """The sum of the table's counts, as SQL. Empty: each record is one row, and none is updated."""
    comes: Callable[[int], bool] = lambda _: True
    """Tells of the number of a record whether it should come out."""

    def expected(self, feed: Feed, count: int) -> int:
        return sum(map(self.comes, range(feed.first, feed.first + count)))

    def count(self) -> int:
        with psycopg.connect(self.postgres) as connection:
            return counted(connection, self._query(""))

    def window(self, feed: Feed, rate: int, seconds: float) -> Window:
        with psycopg.connect(self.postgres, autocommit=True) as connection:
            query = self._query(self._newest(connection))
            before = counted(connection, query)
        with Looks(self.postgres, query) as looks:
            count, start = sent(load(self.kafka, rate, seconds, feed))
            numbers = [number for number in range(count) if self.comes(feed.first + number)]
            out, quiet = 0, time.monotonic()
            while out < len(numbers) and time.monotonic() < quiet + QUIET_SECONDS:
                time.sleep(LOOK_SECONDS)
                now = looks.counts[-1][1] - before
                out, quiet = now, time.monotonic() if now > out else quiet
        dues = [start / 1e9 + number / rate for number in numbers]
        waited = waits(dues, [(at, each - before) for at, each in looks.counts])
        return Window(count, len(numbers), waited, dues[-1])

    def _query(self, condition: str) -> str:
        return f"SELECT coalesce({self.counts or 'count(*)'}, 0) FROM {self.table}{condition}"  # noqa: S608

    def _newest(self, connection: psycopg.Connection) -> str:
        """Return the condition that leaves old rows out, so that a look takes few milliseconds."""
        if self.counts:
            return ""
        query = f"SELECT pg_relation_size('{self.table}') / current_setting('block_size')::int"
        return f" WHERE ctid >= '({max(counted(connection, query) - PAGES, 0)},0)'::tid"
