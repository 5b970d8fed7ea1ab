"""The oracle of every scenario: each hit that was fed is delivered exactly once.

It also measures gaps.
"""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, TopicPartition

from tests.scenarios.live import ROOT, WAIT_SECONDS, Live, until

_ID = re.compile(rb'"hit-(\d+)"')
RANGE = 10_000_000
"""The size of one load's range of numbers; the numbers of the shipped feed are far below."""
DELIVERED_NUMBERS = (
    "select substring(id from 5)::bigint as id from delivered where batch > %s and "
    "substring(id from 5)::bigint between %s and %s"
)
"""A query of the numbers of a load's delivered hits."""
_NEXT_NUMBER = [time.time_ns() // 10**9 * RANGE]
"""The first number of the next load, above the numbers of earlier runs."""


class Stream:
    """Follows a stream from its current end, and records when each hit of a range first
    appeared.
    """

    def __init__(self, live: Live, topic: str, hits: range) -> None:
        self._hits = hits
        # Fetch in large pieces: times are read from the records, and the oracle must not slow the
        # pipeline.
        large_fetches = {"fetch.min.bytes": 1_000_000, "fetch.wait.max.ms": 500}
        self._consumer = Consumer(
            {**live.kafka, "group.id": f"oracle-{topic}-{time.time_ns()}", **large_fetches}
        )
        partitions = self._consumer.list_topics(topic, timeout=20).topics[topic].partitions
        ends = [
            TopicPartition(
                topic,
                number,
                self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20)[1],
            )
            for number in partitions
        ]
        self._consumer.assign(ends)
        self.first_seen: dict[int, float] = {}
        self.duplicates = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._stopped.is_set():
            for message in self._consumer.consume(500, 0.2):
                match = _ID.search(message.value() or b"")
                if message.error() or match is None:
                    continue
                number = int(match[1])
                if number not in self._hits:
                    continue
                if number in self.first_seen:
                    self.duplicates += 1
                else:
                    self.first_seen[number] = message.timestamp()[1] / 1000
        self._consumer.close()

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()

    def has_all(self, other: "Stream", until_number: int) -> bool:
        """Tell whether this stream has every hit of `other` up to a number."""
        return {
            number for number in list(other.first_seen) if number <= until_number
        } <= self.first_seen.keys()

    def largest_gap(self) -> tuple[float, float]:
        """Return the longest time without a new hit, and its beginning."""
        times = sorted(self.first_seen.values())
        return max((later - earlier, earlier) for earlier, later in pairwise(times))


class Load:
    """Feeds numbered hits inside `with Load(live, 500) as load:`; `load.check()` compares them with
    the deliveries.
    """

    def __init__(self, live: Live, rate: int) -> None:
        self.live = live
        self.rate = rate
        self.hits = range(_NEXT_NUMBER[0], _NEXT_NUMBER[0] + RANGE)
        _NEXT_NUMBER[0] += RANGE
        self.fed = 0

    def __enter__(self) -> Self:
        self.raw = Stream(self.live, "raw", self.hits)
        self.enriched = Stream(self.live, "enriched", self.hits)
        # By batch, which has an index, because the table may be long. Earlier batches have no hits
        # of this load.
        last_batch = self.live.rows("select coalesce(max(batch), -1) from delivered")[0][0]
        self._query_values = (last_batch, self.hits.start, self.hits.stop - 1)
        words = ["feed", "--rate", str(self.rate), "--first", str(self.hits.start), "--json"]
        command = [str(Path(sys.executable).with_name("sluice")), *words]
        self._process = subprocess.Popen(
            command, env=self.live.env, cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        until("the feed's first hit", WAIT_SECONDS, lambda: self.raw.first_seen, every=0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._process.send_signal(signal.SIGINT)
            output, _ = self._process.communicate(timeout=WAIT_SECONDS)
            if kind is None:
                assert self._process.returncode == 0, output
                self.settle(json.loads(output)["count"])
        finally:
            self._process.kill()
            self.raw.close()
            self.enriched.close()

    def settle(self, fed: int) -> None:
        """Wait until all hits that were fed are in `raw`, and delivered."""
        self.fed = fed
        until(f"{fed} hits are seen in raw", WAIT_SECONDS, lambda: len(self.raw.first_seen) >= fed)
        until(
            f"{self.fed} hits from hit-{self.hits.start} on are delivered",
            WAIT_SECONDS,
            lambda: self.delivered()[0] >= self.fed,
            every=1.0,
        )

    def delivered(self) -> tuple[int, int]:
        """Return the delivered rows of this load, and their different ids."""
        count = f"select count(*), count(distinct id) from ({DELIVERED_NUMBERS}) as mine"  # noqa: S608
        rows, ids = self.live.rows(count, *self._query_values)[0]
        return int(rows), int(ids)

    def has_delivered(self, until_number: int) -> bool:
        """Tell whether every hit in `raw` up to a number is delivered."""
        numbers = {row[0] for row in self.live.rows(DELIVERED_NUMBERS, *self._query_values)}
        return {number for number in list(self.raw.first_seen) if number <= until_number} <= numbers

    def has_counted(self) -> bool:
        """Tell whether the counts include every hit that is delivered now."""
        delivered = self.live.rows("select count(*) from delivered")[0][0]
        return bool(
            self.live.rows(
                "select coalesce(sum(views + clicks + buys), 0) >= %s from campaign_counts", delivered
            )[0][0]
        )

    def check(self) -> None:
        """Assert that each hit is delivered once, and that the platform's audit reports no loss."""
        rows, ids = self.delivered()
        assert (rows, ids) == (self.fed, self.fed), f"fed {self.fed}, delivered {rows} rows of {ids} ids"
        numbers = {row[0] for row in self.live.rows(DELIVERED_NUMBERS, *self._query_values)}
        assert numbers == set(self.raw.first_seen)
        audit = json.loads(self.live.sluice("audit", "--json", check=False).stdout)
        assert audit["lost"] == [], f"the platform's audit reports losses: {audit}"

    def gap(self) -> float:
        """Return the longest time without a new hit in `enriched`, and print it."""
        seconds, began = self.enriched.largest_gap()
        print(
            f"largest gap in enriched: {seconds:.3f} s at {began:.1f}; "
            f"duplicates there: {self.enriched.duplicates}"
        )
        return seconds


def counts_agree(live: Live) -> None:
    """Wait until the sum of all counts equals the number of deliveries."""
    query = (
        "select (select coalesce(sum(views + clicks + buys), 0) from campaign_counts), (select "
        "count(*) from delivered)"
    )

    def same() -> bool:
        counted, delivered = live.rows(query)[0]
        return int(counted) == int(delivered)

    until("campaign_counts sums to delivered", WAIT_SECONDS, same, every=1.0)
