"""Audits a tier that writes a stream: every offset of its input has a record in its output or in the quarantine."""

import math
import time

import structlog

from sluice.api.declarations import Tier
from sluice.audit.book import Book, Line, Missing, Page
from sluice.audit.coverage import Coverage, ranges
from sluice.kafka.reader import Seen, Streams, topic_and_number

log = structlog.get_logger()

BEFORE_MS = 30_000
"""How far the first look goes back: far enough to meet every partition that something comes out of; nothing that it reads is judged."""
BACKLOG = 200_000
"""When more was put out since the last look, it is read in steps: what was away for a day is not held in memory at once."""
STEP_MS = 60_000
"""A step; of all partitions the same time, for a run's records in one claim those in another. Its claims wait for the next look."""
GONE = "what the tier put out before was no longer in its streams when the audit first looked"
AT_ONCE = 1_000
"""So many offsets that are waited for are looked at in one look, whether they hold a record at all."""


class StreamAudit:
    """One tier."""

    def __init__(self, tier: Tier, streams: Streams, book: Book) -> None:
        """Go on from what the book remembers; without a page, begin with the first record of the tier's output."""
        self._tier = tier
        self._streams = streams
        self._book = book
        self._inputs = [stream.name for stream in tier.inputs]
        self._topics = tier.written
        self._claimed: dict[str, int] = {}
        """By input partition, the last offset that is out by what was read, where what it was made of may not have been read yet."""
        page = book.load(tier.name)
        self._read = page.read
        self._coverages = {partition: _coverage(line) for partition, line in page.lines.items()}
        self._before: dict[str, Coverage] = {}
        self._stood: dict[str, int] = {}
        self._since = {partition: (line.since, line.partial) for partition, line in page.lines.items()}
        self._first: dict[str, int] = {}
        """Of a tier whose whole output is there to be read: the offsets that its input begins with."""

    def look(self) -> list[Missing]:
        """Read what has come out since the last look, judge it, and return what is newly lost."""
        sooner = self._streams.bounds(self._topics).ends
        bounds = self._streams.bounds(
            self._topics
        )  # only now: what a record before `sooner` claims lies before these ends
        if not self._read and not any(
            bounds.oldest.values()
        ):  # the first look, and all that the tier ever put out is there
            self._first = self._streams.bounds(self._inputs).oldest
            self._read = dict(bounds.oldest)
        # output that was to be read is gone, or the tier writes other streams now
        fresh = not self._read or any(
            bounds.oldest.get(place, math.inf) > position for place, position in self._read.items()
        )
        if fresh:
            self._before |= self._coverages
            self._coverages = {}
            ends = bounds.ends
            records = self._streams.since(self._topics, bounds.ends, int(time.time() * 1000) - BEFORE_MS)
        else:
            starts = {place: self._read.get(place, oldest) for place, oldest in bounds.oldest.items()}
            ends = self._step(starts, bounds.ends)
            records = self._streams.read(
                {topic_and_number(place): offset for place, offset in starts.items()}, ends
            )
        out: dict[str, list[int]] = {}
        safe, self._claimed = self._claimed, {}
        for seen in records:
            if self._mine(seen):
                out.setdefault(seen.out.partition, []).append(seen.out.offset)
                _claim(safe if ends == bounds.ends and seen.is_before(sooner) else self._claimed, seen)
        for partition, offsets in out.items():
            if partition not in self._coverages:
                remembered = self._before.pop(partition, None)
                coverage = self._coverages[partition] = remembered or Coverage(0)
                # of what a first look reads, a part may lie before what was read
                first = max(offsets) + 1 if fresh else min(*offsets, self._first.get(partition, offsets[0]))
                if remembered is None:
                    coverage.begin(first)
                    self._since[partition] = (first, GONE if fresh else "")
                else:
                    self._pass_over(partition, first)
            for offset in offsets:
                self._coverages[partition].add(offset)
        lost = [missing for partition, offset in safe.items() for missing in self._judge(partition, offset)]
        self._leave_empty()
        self._read = dict(ends)
        self._book.save(
            self._tier.name,
            Page({partition: self._line(partition) for partition in self._coverages}, self._read),
            lost,
        )
        return lost

    def _step(self, starts: dict[str, int], ends: dict[str, int]) -> dict[str, int]:
        """Return up to where to read: everything, or where much waits, what was put out within a minute of the oldest of it."""
        if sum(ends.values()) - sum(starts.values()) <= BACKLOG:
            return ends
        stamps = self._streams.times_at(
            {place: offset for place, offset in starts.items() if offset < ends[place]}
        )
        until = self._streams.at(self._topics, min(stamps.values(), default=0) + STEP_MS, ends)
        step = {place: max(starts[place], until[place]) for place in ends}
        return step if step != starts else ends  # clocks that were wrong put later records before these

    def done(self) -> dict[str, int]:
        """Return the offset of each input partition before which everything has come out or is told as lost."""
        return {
            partition: coverage.judged for partition, coverage in (self._before | self._coverages).items()
        }

    def _mine(self, seen: Seen) -> bool:
        """A quarantine belongs to the stream, whoever of its readers found the record bad."""
        return seen.out.tier == self._tier.name

    def _pass_over(self, partition: str, first: int) -> None:
        """Go on from an offset where what came out before it can no longer be read, and say how many are not judged."""
        coverage, before = self._coverages[partition], self._coverages[partition].unseen
        coverage.pass_over(first)
        if (gone := coverage.unseen - before) > 0:
            log.warning(
                "what came out was gone before it was looked at: nobody knows whether records are lost; "
                "give the streams a longer retention",
                tier=self._tier.name,
                partition=partition,
                records=gone,
                before=first,
            )

    def _judge(self, partition: str, safe: int) -> list[Missing]:
        coverage = self._coverages.get(partition)
        if coverage is None:
            return []
        if self._tier.filters:
            coverage.skip(safe)
            return []
        missing = coverage.judge(safe)
        if missing:
            held = self._streams.offsets_with_records(partition, missing[0], missing[-1] + 1)
            told_lost = self._book.told(self._tier.name, partition)  # who skips what is gone tells it as lost
            missing = [
                offset
                for offset in missing
                if offset in held and not any(offset in each for each in told_lost)
            ]
        if not missing:
            return []
        named = ", ".join(
            f"{first}" if first == last else f"{first} to {last}" for first, last in ranges(missing)[:5]
        )
        sentence = (
            f"{len(missing)} records of {partition} were read by {self._tier.name} and have not come out: offsets {named}; "
            f"they are still in the stream"
        )
        return [Missing(f"{partition}:{missing[0]}", len(missing), sentence)]

    def _leave_empty(self) -> None:
        """Where nothing moves, do not wait for offsets that hold no record, as marks of transactions."""
        before, self._stood = (
            self._stood,
            {partition: coverage.judged for partition, coverage in self._coverages.items()},
        )
        waiting = [partition for partition, judged in self._stood.items() if before.get(partition) == judged]
        ends = self._streams.bounds(self._inputs).ends if waiting else {}
        for partition in waiting:
            first = self._stood[partition]
            end = min(ends.get(partition, first), first + AT_ONCE)
            if first < end:
                self._coverages[partition].leave(
                    set(range(first, end)) - self._streams.offsets_with_records(partition, first, end)
                )

    def _line(self, partition: str) -> Line:
        coverage = self._coverages[partition]
        return Line(
            coverage.judged,
            coverage.once,
            coverage.again,
            ranges(coverage.ahead),
            not self._tier.filters,
            coverage.unseen,
            *self._since[partition],
        )


def _claim(claims: dict[str, int], seen: Seen) -> None:
    """Note the last offset of the input that is out by what a record tells."""
    if seen.out.acked is not None:
        claims[seen.out.partition] = max(seen.out.acked - 1, claims.get(seen.out.partition, -1))


def _coverage(line: Line) -> Coverage:
    ahead = {offset for first, last in line.ahead for offset in range(first, last + 1)}
    return Coverage(line.judged, ahead, line.once, line.again, line.unseen)
