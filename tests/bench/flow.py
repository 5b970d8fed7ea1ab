"""One window of load into a stream, and what comes out of another: the same for every system."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Consumer, Message, TopicPartition

from tests.bench.figures import Arrival, has_no_lag
from tests.lab import ROOT

PARTITIONS = range(2)
"""The partitions of each stream of the chain."""
QUIET_SECONDS = 40.0
"""How long no record arrives after the load's end until missing records count as lost.

Storm replays after 30 s.
"""

LATE_SECONDS = 1.0


class Feed(NamedTuple):
    """The records that the load sends, and their stream."""

    stream: str = "raw"
    records: str = "chain"
    """A key of `tests.bench.records.SMALL`, or a file of templates."""
    first: int = 0
    """The number of the first record."""


class Sent(NamedTuple):
    """The result of a load."""

    count: int
    start: int
    """When the first record was due. Unit: ns since 1970."""


CHAIN = Feed()


def ends(kafka: str, stream: str) -> dict[int, int]:
    """Return the end of each partition."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "bench"})
    offsets = {
        number: consumer.get_watermark_offsets(TopicPartition(stream, number), timeout=20)[1]
        for number in PARTITIONS
    }
    consumer.close()
    return offsets


def load(kafka: str, rate: int, seconds: float, feed: Feed = CHAIN) -> "subprocess.Popen[str]":
    """Start the load. `sent` returns what it sent, after its end or SIGINT."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.bench.load", kafka, str(rate), str(seconds)),
            *(feed.stream, feed.records, str(feed.first)),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def sent(process: "subprocess.Popen[str]") -> Sent:
    """Wait for the load's end; return its result. An exception meanwhile ends the load."""
    with process:  # waits for the load, and closes its output
        try:
            answer = json.loads(process.communicate()[0])
        finally:
            process.kill()
    return Sent(answer["sent"], answer["start"])


class Flow:
    """Load and meter, inside `with` until `end` or `wait`."""

    def __init__(
        self,
        kafka: str,
        rate: int,
        seconds: float = 3600.0,
        new: Callable[[Message], bool] = lambda _: True,
        feed: Feed = CHAIN,
        last: str = "three",
    ) -> None:
        self._kafka = kafka
        self._rate = rate
        self._seconds = seconds
        self._new = new
        self._feed = feed
        self._last = last
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.arrivals: list[Arrival] = []

    def __enter__(self) -> Self:
        self._begins = ends(self._kafka, self._last)
        self._since = time.time_ns()
        self._thread.start()
        self._load = load(self._kafka, self._rate, self._seconds, self._feed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        with self._load:  # waits for the load, and closes its output
            self._load.kill()

    def _read(self) -> None:
        """Poll one record at a time: a call for several waits for several."""
        settings = {
            "bootstrap.servers": self._kafka,
            "group.id": "bench",
            "fetch.wait.max.ms": 5,
            "fetch.min.bytes": 1,
        }
        consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 2})
        consumer.assign(
            [TopicPartition(self._last, number, offset) for number, offset in self._begins.items()]
        )
        while not self._stopped.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            at = time.time()
            record = json.loads(message.value())
            new = self._new(message)
            if record["sent"] >= self._since:  # replays of an earlier window do not count
                self.arrivals.append(Arrival(record["id"], record["sent"] / 1e9, at, new))
        consumer.close()

    def has_no_lag(self) -> bool:
        """Tell whether every record that was due a second ago has arrived."""
        return has_no_lag(self.arrivals[:], self._rate, time.time() - LATE_SECONDS)

    def end(self) -> int:
        """End the load; return the number of sent records after all have arrived, or none arrives
        any more.
        """
        self._load.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> int:
        """Wait for the load's own end; return the number of sent records after all have arrived, or
        none arrives any more.
        """
        count = sent(self._load).count
        numbers: set[int] = set()
        read, quiet = 0, time.monotonic()
        while len(numbers) < count and time.monotonic() < quiet + QUIET_SECONDS:
            time.sleep(0.2)
            news = self.arrivals[read:]
            if news:
                read, quiet = read + len(news), time.monotonic()
                numbers.update(arrival.number for arrival in news)
        time.sleep(2.0)  # replays arrive after the records that they repeat
        return count
