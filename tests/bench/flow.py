"""One window of load into `raw` and what comes out of `three`, the same for every system that is measured."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, Message, TopicPartition

from tests.bench.figures import Arrival, level
from tests.lab import ROOT

PARTITIONS = range(2)
"""Of each stream of the chain."""
QUIET_SECONDS = 40.0
"""How long nothing may come after the load's end until what is missing counts as lost: Storm's replays wait 30 s."""

LATE_SECONDS = 1.0


def ends(kafka: str, stream: str) -> dict[int, int]:
    """Return where each partition ends."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "bench"})
    found = {
        number: consumer.get_watermark_offsets(TopicPartition(stream, number), timeout=20)[1]
        for number in PARTITIONS
    }
    consumer.close()
    return found


def load(kafka: str, rate: int, seconds: float) -> "subprocess.Popen[str]":
    """Start the load, which prints how many records were sent when it is over, or has got SIGINT."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bench.load", kafka, str(rate), str(seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


class Flow:
    """Load and meter, from `with` on until `end` or `wait`."""

    def __init__(
        self, kafka: str, rate: int, seconds: float = 3600.0, new: Callable[[Message], bool] = lambda _: True
    ) -> None:
        self._kafka = kafka
        self._rate = rate
        self._seconds = seconds
        self._new = new
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.arrivals: list[Arrival] = []

    def __enter__(self) -> Self:
        self._begins = ends(self._kafka, "three")
        self._since = time.time_ns()
        self._thread.start()
        self._load = load(self._kafka, self._rate, self._seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        with self._load:  # waits, and closes its output
            self._load.kill()

    def _read(self) -> None:
        """Poll record by record: a call for several waits for several."""
        settings = {
            "bootstrap.servers": self._kafka,
            "group.id": "bench",
            "fetch.wait.max.ms": 5,
            "fetch.min.bytes": 1,
        }
        consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 2})
        consumer.assign([TopicPartition("three", number, offset) for number, offset in self._begins.items()])
        while not self._over.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            at = time.time()
            record = json.loads(message.value())
            new = self._new(message)
            if record["sent"] >= self._since:  # an earlier window's replays are not this one's
                self.arrivals.append(Arrival(record["id"], record["sent"] / 1e9, at, new))
        consumer.close()

    def level(self) -> bool:
        """Tell whether everything that was due a second ago has come."""
        return level(self.arrivals[:], self._rate, time.time() - LATE_SECONDS)

    def end(self) -> int:
        """End the load; return how many records were sent once all have come, or none comes any more."""
        self._load.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> int:
        """Wait until the load is over by itself; return how many records were sent once all have come, or none comes any more."""
        sent = int(self._load.communicate()[0])
        numbers: set[int] = set()
        read, quiet = 0, time.monotonic()
        while len(numbers) < sent and time.monotonic() < quiet + QUIET_SECONDS:
            time.sleep(0.2)
            news = self.arrivals[read:]
            if news:
                read, quiet = read + len(news), time.monotonic()
                numbers.update(arrival.number for arrival in news)
        time.sleep(2.0)  # replays come after what they repeat
        return sent
