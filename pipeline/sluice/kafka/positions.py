"""Where a realtime tier starts: computed from what is in its output, so that nothing is left out and little is done twice. Pure.

Each run of a query writes in the order of its input. As it hands a record over, its executor knows up to which offset of that input
partition Kafka has acknowledged everything, and writes that offset into the record (`ProducerGuard.java`). So everything before it is out,
and everything before the place where the run started was out before. The highest of these offsets holds. No clock has a part in it
(decision record 0044).

Where each record makes exactly one, they can be counted off from there on: what is in the output without a break is out, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

GIVE_UP_MS = 8_000
"""After this time a record that Kafka has not taken ends the executor (`delivery.timeout.ms`)."""
SETTLED_MS = 10_000
"""Greater than GIVE_UP_MS by more than an executor is late in noticing it, on its monotonic clock."""

WAY_OUT = (
    "it goes on by itself when the stream is as long again; where it was made anew, give it another name in the pipeline, and publish "
    "(where it is one from outside, empty the tables that its records go into, and their rows in marks: new records have names of old ones)"
)
"""What a person can do about a stream that is shorter than what was read of it."""
OTHER_NAME = (
    "give the stream another name in the pipeline, and publish (where it is one from outside, empty the tables that its records go "
    "into, and their rows in marks: new records have names of old ones)"
)
"""What a person can do where a stream was made anew, and its reader keeps its place in its own output."""


@dataclass(frozen=True)
class PutOut:
    """One record of a tier's output, as its lineage tells."""

    by: str
    """The run that wrote it: `tier/incarnation`, with `.run` after a restart in place."""
    partition: str
    """The input partition that it was made of, `stream/partition`."""
    offset: int
    at: int
    """When it was put out, for people and figures only. Unit: epoch ms."""
    acked: int | None = None
    """All that the run made of this partition's records before this offset is out; None where the record does not tell."""

    @property
    def tier(self) -> str:
        """Name the tier whose run wrote it."""
        return self.by.partition("/")[0]


class GoneError(Exception):
    """Records that were not processed are no longer in the input, or others are in their place."""


def start(
    oldest: Mapping[str, int],
    ends: Mapping[str, int],
    started: Iterable[Mapping[str, int]],
    tail: Iterable[PutOut],
) -> dict[str, int]:
    """Return the offset to start from for each input partition.

    `oldest` and `ends` bound the input, `started` is where each earlier run started, `tail` is the end of the output.
    """
    done, chosen = known(started, tail), dict[str, int]()
    for partition, first in oldest.items():
        offset = done.get(partition, first)
        if offset < first:
            message = (
                f"{partition}: offsets {offset} to {first - 1} were never processed and are no longer there; `sluice skip` has the tier "
                f"go on without them; give the stream a longer retention (retention.ms), and put them in again from where they came from"
            )
            raise GoneError(message)
        chosen[partition] = min(offset, ends[partition])
    return chosen


def known(started: Iterable[Mapping[str, int]], tail: Iterable[PutOut]) -> dict[str, int]:
    """Return up to where all is known to be out, by input partition."""
    done: dict[str, int] = {}
    for begin in (*started, acknowledged(tail)):
        for partition, offset in begin.items():
            done[partition] = max(offset, done.get(partition, 0))
    return done


def refuse_shorter(done: Mapping[str, int], ends: Mapping[str, int], way_out: str) -> None:
    """Refuse to go on where new records would be taken for old ones."""
    for partition, end in ends.items():
        if end < done.get(partition, 0):
            message = f"{partition} ends at {end}, and was read up to {done[partition]}: the stream was cut back or made anew; {way_out}"
            raise GoneError(message)


def unbroken(begins: Mapping[str, int], ends: Mapping[str, int], tail: Iterable[PutOut]) -> dict[str, int]:
    """Return up to where every record from `begins` on has been put out; only for where each makes exactly one."""
    out: dict[str, set[int]] = {partition: set() for partition in begins}
    for record in tail:
        if record.partition in out:
            out[record.partition].add(record.offset)
    reached = dict(begins)
    for partition, offsets in out.items():
        while reached[partition] < ends[partition] and reached[partition] in offsets:
            reached[partition] += 1
    return reached


def acknowledged(tail: Iterable[PutOut]) -> dict[str, int]:
    """Return, for each input partition, the offset before which everything is out, as far as the records tell."""
    safe: dict[str, int] = {}
    for record in tail:
        if record.acked is not None:
            safe[record.partition] = max(record.acked, safe.get(record.partition, record.acked))
    return safe
