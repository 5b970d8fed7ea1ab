"""Where a realtime tier starts, so that no record is left out and few are repeated. Pure.

The place is computed from the tier's output. Each run of a query writes in the order of its input.
When an executor writes a record, it knows an offset of the input partition before which Kafka has
acknowledged all output. The executor writes this offset into the record (`ProducerGuard.java`). So
all output for earlier offsets is in Kafka. All output for offsets before the start of the run was
in Kafka before. The highest of these offsets is the place. No clock is involved (decision 44).

If each record makes exactly one, the place is later: all records that are in the output without a
gap are done.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

GIVE_UP_MS = 15_000
"""After this time, a record that Kafka has not taken ends the executor (`delivery.timeout.ms`).

Kafka replaces a killed leader within 13 s, so its executors go on (decision 84).
"""
SETTLED_MS = 17_000
"""After this time, a record is in Kafka, or its executor has ended.

The difference to GIVE_UP_MS is more than the delay with which an executor notices the timeout. The
executor's clock is monotonic.
"""

RENAME_STREAM = (
    "give the stream another name in the pipeline, then run `sluice publish`; if the "
    "stream comes from outside, also empty the tables that its records reach, and delete the rows of these "
    "tables' tiers from the table `marks`, because new records have the origins of old ones"
)
"""The next step if a stream was recreated and its reader keeps its position in its own output."""
WAIT_OR_RENAME_STREAM = (
    "the tier continues by itself when the stream is as long again; "
    f"if the stream was recreated, {RENAME_STREAM}"
)
"""The next step if a stream is shorter than the part that was read."""


@dataclass(frozen=True)
class OutputRecord:
    """One record of a tier's output, as its lineage describes it."""

    by: str
    """The run that wrote the record: `tier/incarnation`, with `.run` after a restart in place."""
    partition: str
    """The input partition of the record that this one was made of, `stream/partition`."""
    offset: int
    at: int
    """When the record was written. Only for display and measurements. Unit: epoch ms."""
    acked: int | None = None
    """All output for records of this partition before this offset is in Kafka; None if unknown."""

    @property
    def tier(self) -> str:
        return self.by.partition("/")[0]


class RecordsGoneError(Exception):
    """Unprocessed records are no longer in the input, or other records have their offsets."""


def start(
    oldest: Mapping[str, int],
    ends: Mapping[str, int],
    started: Iterable[Mapping[str, int]],
    tail: Iterable[OutputRecord],
) -> dict[str, int]:
    """Return the offset to start from for each input partition.

    `oldest` and `ends` bound the input. `started` are the offsets where earlier runs started.
    `tail` is the end of the output. RecordsGoneError if unprocessed records are no longer in the
    input.
    """
    done, starts = known_output(started, tail), dict[str, int]()
    for partition, first in oldest.items():
        offset = done.get(partition, first)
        if offset < first:
            message = (
                f"{partition}: offsets {offset} to {first - 1} were never processed and are no longer there, "
                "so the tier has stopped; `sluice skip` lets the tier continue without them; give the stream "
                "a longer retention (retention.ms), and send the records again from their source"
            )
            raise RecordsGoneError(message)
        starts[partition] = min(offset, ends[partition])
    return starts


def known_output(started: Iterable[Mapping[str, int]], tail: Iterable[OutputRecord]) -> dict[str, int]:
    """Return the offset of each input partition before which all output is known to be in Kafka."""
    done: dict[str, int] = {}
    for positions in (*started, acknowledged(tail)):
        for partition, offset in positions.items():
            done[partition] = max(offset, done.get(partition, 0))
    return done


def refuse_shorter(done: Mapping[str, int], ends: Mapping[str, int], way_out: str) -> None:
    """Raise RecordsGoneError if an input ends before its processed offset.

    New records would have the offsets of processed ones.
    """
    for partition, end in ends.items():
        if end < done.get(partition, 0):
            message = (
                f"{partition} ends at {end}, and was read up to {done[partition]}: the stream was cut "
                f"back or recreated, so the tier has stopped; {way_out}"
            )
            raise RecordsGoneError(message)


def output_without_gap(
    begins: Mapping[str, int], ends: Mapping[str, int], tail: Iterable[OutputRecord]
) -> dict[str, int]:
    """Return the offset up to which every record since `begins` is in the output.

    Only valid if each record makes exactly one.
    """
    offsets_out: dict[str, set[int]] = {partition: set() for partition in begins}
    for record in tail:
        if record.partition in offsets_out:
            offsets_out[record.partition].add(record.offset)
    done = dict(begins)
    for partition, offsets in offsets_out.items():
        while done[partition] < ends[partition] and done[partition] in offsets:
            done[partition] += 1
    return done


def acknowledged(tail: Iterable[OutputRecord]) -> dict[str, int]:
    """Return the highest acknowledged offset of each input partition that the records carry."""
    acked: dict[str, int] = {}
    for record in tail:
        if record.acked is not None:
            acked[record.partition] = max(record.acked, acked.get(record.partition, record.acked))
    return acked
