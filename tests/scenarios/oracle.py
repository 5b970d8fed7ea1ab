"""The oracle of every scenario: the ids that were fed are the ids that were delivered, none twice; and the gaps seen on the way."""

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

from tests.scenarios.live import PATIENCE, ROOT, Live, until

_ID = re.compile(rb'"hit-(\d+)"')
RANGE = 10_000_000
"""Numbers that one load may use; the shipped feed's are far below."""
MINE = "select substring(id from 5)::bigint as id from delivered where batch > %s and substring(id from 5)::bigint between %s and %s"
"""The numbers of a load's hits that were delivered."""
_FED = [time.time_ns() // 10**9 * RANGE]
"""Where the next load begins: never where an earlier run of the scenarios has been."""


class Stream:
    """Follows a stream from now on and notes when each hit of a range was first put into it."""

    def __init__(self, live: Live, topic: str, hits: range) -> None:
        self._hits = hits
        # in large pieces: times are read from the records, and looking on must not cost what is looked at
        quietly = {"fetch.min.bytes": 1_000_000, "fetch.wait.max.ms": 500}
        self._consumer = Consumer({**live.kafka, "group.id": f"oracle-{topic}-{time.time_ns()}", **quietly})
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
        self.again = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(500, 0.2):
                found = _ID.search(message.value() or b"")
                if message.error() or found is None:
                    continue
                number = int(found[1])
                if number not in self._hits:
                    continue
                if number in self.first_seen:
                    self.again += 1
                else:
                    self.first_seen[number] = message.timestamp()[1] / 1000
        self._consumer.close()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def has_all(self, of: "Stream", until_number: int) -> bool:
        """Tell whether every hit up to a number that was seen in the stream `of` has been seen here."""
        return {number for number in list(of.first_seen) if number <= until_number} <= self.first_seen.keys()

    def largest_gap(self) -> tuple[float, float]:
        """Return the longest time without a new hit, and when it began."""
        times = sorted(self.first_seen.values())
        return max((later - earlier, earlier) for earlier, later in pairwise(times))


class Load:
    """`with Load(live, 500) as load:` feeds numbered hits all the while, then `load.check()` holds them against what was delivered."""

    def __init__(self, live: Live, rate: int) -> None:
        self.live = live
        self.rate = rate
        self.hits = range(_FED[0], _FED[0] + RANGE)
        _FED[0] += RANGE
        self.fed = 0

    def __enter__(self) -> Self:
        self.raw = Stream(self.live, "raw", self.hits)
        self.enriched = Stream(self.live, "enriched", self.hits)
        # by batch, of which there is an index: what was delivered before cannot be of this load, and the table may be long
        before = self.live.rows("select coalesce(max(batch), -1) from delivered")[0][0]
        self._mine = (before, self.hits.start, self.hits.stop - 1)
        words = ["feed", "--rate", str(self.rate), "--first", str(self.hits.start), "--json"]
        command = [str(Path(sys.executable).with_name("sluice")), *words]
        self._process = subprocess.Popen(
            command, env=self.live.env, cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        until("the feed's first hit", PATIENCE, lambda: self.raw.first_seen, every=0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._process.send_signal(signal.SIGINT)
            said, _ = self._process.communicate(timeout=PATIENCE)
            if kind is None:
                assert self._process.returncode == 0, said
                self.settle(json.loads(said)["count"])
        finally:
            self._process.kill()
            self.raw.close()
            self.enriched.close()

    def settle(self, fed: int) -> None:
        """Wait until everything that was fed is seen in `raw`, and delivered."""
        self.fed = fed
        until(f"{fed} hits are seen in raw", PATIENCE, lambda: len(self.raw.first_seen) >= fed)
        until(
            f"{self.fed} hits from hit-{self.hits.start} on are delivered",
            PATIENCE,
            lambda: self.delivered()[0] >= self.fed,
            every=1.0,
        )

    def delivered(self) -> tuple[int, int]:
        """Return how many rows and how many different ids of the range are delivered."""
        count = f"select count(*), count(distinct id) from ({MINE}) as mine"  # noqa: S608 — of constants
        rows, ids = self.live.rows(count, *self._mine)[0]
        return int(rows), int(ids)

    def has_delivered(self, until_number: int) -> bool:
        """Tell whether every hit up to a number that was seen in `raw` is delivered."""
        numbers = {row[0] for row in self.live.rows(MINE, *self._mine)}
        return {number for number in list(self.raw.first_seen) if number <= until_number} <= numbers

    def has_counted(self) -> bool:
        """Tell whether the counts have as many hits as were delivered, before the counts were asked for."""
        delivered = self.live.rows("select count(*) from delivered")[0][0]
        return bool(
            self.live.rows(
                "select coalesce(sum(views + clicks + buys), 0) >= %s from campaign_counts", delivered
            )[0][0]
        )

    def check(self) -> None:
        """All ids, none twice; and the platform's own audit says the same."""
        rows, ids = self.delivered()
        assert (rows, ids) == (self.fed, self.fed), f"fed {self.fed}, delivered {rows} rows of {ids} ids"
        numbers = {row[0] for row in self.live.rows(MINE, *self._mine)}
        assert numbers == set(self.raw.first_seen)
        audit = json.loads(self.live.sluice("audit", "--json", check=False).stdout)
        assert audit["lost"] == [], f"the platform's own audit disagrees: {audit}"

    def gap(self) -> float:
        """Return the longest time without a new hit in `enriched`, and print it for the record."""
        seconds, began = self.enriched.largest_gap()
        print(
            f"largest gap in enriched: {seconds:.3f} s at {began:.1f}; replays seen there: {self.enriched.again}"
        )
        return seconds


def counts_agree(live: Live) -> None:
    """The aggregates say the same as the deliveries, over everything."""
    query = "select (select coalesce(sum(views + clicks + buys), 0) from campaign_counts), (select count(*) from delivered)"

    def same() -> bool:
        counted, delivered = live.rows(query)[0]
        return int(counted) == int(delivered)

    until("campaign_counts sums to delivered", PATIENCE, same, every=1.0)
