"""Where a realtime tier starts: computed from what is in its output, so that nothing is left out and little is done twice. Pure.

Each run of a query writes in the order of its input, and a record that Kafka does not take stops it within `SETTLED_MS`, before a later
one is put behind it (`pipeline.driver.holes`). So of each run and input partition, everything up to a record that was put out `SETTLED_MS`
before the run's last one there is safely out, and everything before the place where the run started was out before. The best of these
statements holds.

Where each record makes exactly one, they can be counted off from there on: what is in the output without a break is out, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

GIVE_UP_MS = 8_000
"""After this time a record that Kafka has not taken ends the executor (`delivery.timeout.ms`)."""
SETTLED_MS = 10_000
"""Greater than GIVE_UP_MS by more than clocks and callbacks are late."""

WAY_OUT = (
    "it goes on by itself when the stream is as long again; where it was made anew, give it another name in the pipeline, and publish "
    "(where it is one from outside, empty the tables that its records go into, and their rows in marks: new records have names of old ones)"
)
"""What a person can do about a stream that is shorter than what was read of it."""


@dataclass(frozen=True)
class PutOut:
    """One record of a tier's output, as its lineage tells."""

    by: str
    """The run that wrote it: `tier/incarnation`, with `.run` after a restart in place."""
    partition: str
    """The input partition that it was made of, `stream/partition`."""
    offset: int
    at: int
    """When it was put out. Unit: epoch ms."""

    @property
    def tier(self) -> str:
        """Name the tier whose run wrote it."""
        return self.by.partition("/")[0]


class GoneError(Exception):
    """Records that were not processed are no longer in the input, or others are in their place."""


def start(
    oldest: Mapping[str, int], ends: Mapping[str, int], started: Iterable[Mapping[str, int]], tail: Iterable[PutOut]
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
    for begin in (*started, {partition: offset + 1 for partition, offset in settled(tail).items()}):
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


def settled(tail: Iterable[PutOut]) -> dict[str, int]:
    """Return, for each input partition, the last offset that is safely out together with all before it."""
    records = list(tail)
    last: dict[tuple[str, str], int] = {}
    for record in records:
        key = (record.by, record.partition)
        last[key] = max(record.at, last.get(key, record.at))
    safe: dict[str, int] = {}
    for record in records:
        if record.at < last[record.by, record.partition] - SETTLED_MS:
            safe[record.partition] = max(record.offset, safe.get(record.partition, record.offset))
    return safe
