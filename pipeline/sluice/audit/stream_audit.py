"""The audit of a tier that writes streams: every input offset needs a record in an output stream or
in quarantine.
"""

import math
import time

import structlog

from sluice.api.declarations import Tier
from sluice.audit.book import Book, Line, Missing, Page
from sluice.audit.coverage import Coverage, ranges
from sluice.kafka.reader import Seen, Streams, topic_and_number

log = structlog.get_logger()

BEFORE_MS = 30_000
"""How far back the first check reads, to find every active input partition.

The first check judges none of these records.
"""
BACKLOG = 200_000
"""With more new output records than this, a check reads one step only, to limit its memory."""
STEP_MS = 60_000
"""The length of a step. All partitions are read up to the same time, because a record in one
partition claims records in others. The claims of a step wait for the next check.
"""
GONE = "earlier output of the tier was already deleted from its streams at the audit's first check"
MAX_EMPTY = 1_000
"""The most waiting offsets of a partition that one check tests for records."""


class StreamAudit:
    """The audit of one tier that writes streams."""

    def __init__(self, tier: Tier, streams: Streams, book: Book) -> None:
        """Continue from the book, or start at the first record of the tier's output."""
        self._tier = tier
        self._streams = streams
        self._book = book
        self._inputs = [stream.name for stream in tier.inputs]
        self._topics = tier.written
        self._claimed: dict[str, int] = {}
        """The last claimed offset by input partition; some output before it may be unread."""
        page = book.load(tier.name)
        self._read = page.read
        self._coverages = {partition: _coverage(line) for partition, line in page.lines.items()}
        self._before: dict[str, Coverage] = {}
        self._judged_before: dict[str, int] = {}
        self._since = {partition: (line.since, line.partial) for partition, line in page.lines.items()}
        self._first: dict[str, int] = {}
        """The oldest input offsets, if the whole output of the tier still exists."""

    def check(self) -> list[Missing]:
        """Read new output records, judge the input offsets, and return the newly lost records."""
        sooner = self._streams.bounds(self._topics).ends
        # read the ends a second time: records before `sooner` claim records before these ends
        bounds = self._streams.bounds(self._topics)
        if not self._read and not any(bounds.oldest.values()):
            # the first check, and the tier's whole output still exists
            self._first = self._streams.bounds(self._inputs).oldest
            self._read = dict(bounds.oldest)
        # unread output was deleted, or the tier now writes other streams
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
            if seen.out.tier == self._tier.name:  # other readers of an input use the same quarantine
                out.setdefault(seen.out.partition, []).append(seen.out.offset)
                _claim(safe if ends == bounds.ends and seen.is_before(sooner) else self._claimed, seen)
        for partition, offsets in out.items():
            if partition not in self._coverages:
                remembered = self._before.pop(partition, None)
                coverage = self._coverages[partition] = remembered or Coverage(0)
                # a first check may miss output records of earlier offsets
                first = max(offsets) + 1 if fresh else min(*offsets, self._first.get(partition, offsets[0]))
                if remembered is None:
                    coverage.begin(first)
                    self._since[partition] = (first, GONE if fresh else "")
                else:
                    self._pass_over(partition, first)
            for offset in offsets:
                self._coverages[partition].add(offset)
        lost = [missing for partition, offset in safe.items() for missing in self._judge(partition, offset)]
        self._add_empty_offsets()
        self._read = dict(ends)
        self._book.save(
            self._tier.name,
            Page({partition: self._line(partition) for partition in self._coverages}, self._read),
            lost,
        )
        return lost

    def _step(self, starts: dict[str, int], ends: dict[str, int]) -> dict[str, int]:
        """Return the offsets to read up to: the ends, or with a backlog, one step.

        A step ends one minute after the oldest unread record.
        """
        if sum(ends.values()) - sum(starts.values()) <= BACKLOG:
            return ends
        stamps = self._streams.times_at(
            {place: offset for place, offset in starts.items() if offset < ends[place]}
        )
        until = self._streams.at(self._topics, min(stamps.values(), default=0) + STEP_MS, ends)
        step = {place: max(starts[place], until[place]) for place in ends}
        return step if step != starts else ends  # a wrong clock stamped later records with earlier times

    def done(self) -> dict[str, int]:
        """Return, by input partition, the offset before which all records came out or are lost."""
        return {
            partition: coverage.judged for partition, coverage in (self._before | self._coverages).items()
        }

    def _pass_over(self, partition: str, first: int) -> None:
        """Continue at offset `first`, and log how many offsets before it are not judged."""
        coverage, before = self._coverages[partition], self._coverages[partition].unseen
        coverage.pass_over(first)
        if (unseen := coverage.unseen - before) > 0:
            log.warning(
                "output was deleted before the audit read it, so lost records would not be found; "
                "give the streams a longer retention",
                tier=self._tier.name,
                partition=partition,
                records=unseen,
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
            existing = self._streams.offsets_with_records(partition, missing[0], missing[-1] + 1)
            reported = self._book.reported(self._tier.name, partition)  # such as skipped records
            missing = [
                offset
                for offset in missing
                if offset in existing and not any(offset in offsets for offsets in reported)
            ]
        if not missing:
            return []
        named = ", ".join(
            f"{first}" if first == last else f"{first} to {last}" for first, last in ranges(missing)[:5]
        )
        sentence = (
            f"{len(missing)} records of {partition} were read by {self._tier.name} and have not come out: "
            f"offsets {named}; they are still in the stream"
        )
        return [Missing(f"{partition}:{missing[0]}", len(missing), sentence)]

    def _add_empty_offsets(self) -> None:
        """In partitions without progress, treat offsets without a record as come out.

        Markers of transactions, for example, have offsets and are no records.
        """
        before = self._judged_before
        self._judged_before = {partition: coverage.judged for partition, coverage in self._coverages.items()}
        waiting = [
            partition for partition, judged in self._judged_before.items() if before.get(partition) == judged
        ]
        ends = self._streams.bounds(self._inputs).ends if waiting else {}
        for partition in waiting:
            first = self._judged_before[partition]
            end = min(ends.get(partition, first), first + MAX_EMPTY)
            if first < end:
                self._coverages[partition].add_empty(
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
    """Keep the last input offset that a record claims to be out, by partition."""
    if seen.out.acked is not None:
        claims[seen.out.partition] = max(seen.out.acked - 1, claims.get(seen.out.partition, -1))


def _coverage(line: Line) -> Coverage:
    ahead = {offset for first, last in line.ahead for offset in range(first, last + 1)}
    return Coverage(line.judged, ahead, line.once, line.again, line.unseen)
