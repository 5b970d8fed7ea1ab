"""`python -m sluice.commands.skip TIER`: have a tier go on where what it has not read is no longer in its inputs. Called by `sluice skip`.

Retention has taken it, or somebody has deleted it: the tier stops, for it leaves out nothing by itself. What is skipped is told as lost,
and who has skipped it is in the trail. Exit codes: 0 done, 1 it cannot be done, 3 a service does not answer.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
from confluent_kafka import KafkaException

from sluice.api import declarations
from sluice.audit.book import Book, Missing, Page
from sluice.driver.control.control_channel import read_receipts, starts
from sluice.kafka.output_tail import Tail
from sluice.kafka.positions import OTHER_NAME, GoneError, known
from sluice.kafka.reader import StreamError, Streams, split
from sluice.kafka.stream_identity import Identities, SameStreams, Watch, changed, epochs_of, of_positions
from sluice.sinks.ledger import Ledger
from sluice_ops.channel import Channel, ChannelAwayError, ConflictError, Write, trail_queue
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.model.kafka_access import User
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.site import endpoints, site_file

WRONG = 1
AWAY = 3


class SkipError(Exception):
    """It cannot be done so."""


@dataclass(frozen=True)
class Gap:
    """What a tier has not read of a partition, and what is no longer there."""

    place: str
    begin: int
    end: int
    anew: bool = False
    """The stream is another one, or was cut back: what was behind `begin` is gone, and nobody knows how much."""

    def __str__(self) -> str:
        """Say it."""
        if self.anew:
            return f"{self.place} was made anew or cut back, and what was behind offset {self.begin - 1} before is gone, however much"
        return f"{self.place}: offsets {self.begin} to {self.end - 1}"


def gaps(done: Mapping[str, int], oldest: Mapping[str, int]) -> list[Gap]:
    """Return what is gone between where a tier is and where its inputs begin."""
    return [
        Gap(place, done[place], first)
        for place, first in sorted(oldest.items())
        if done.get(place, first) < first
    ]


def main(arguments: list[str] | None = None) -> int:
    """Skip."""
    parser = argparse.ArgumentParser(
        prog="python -m sluice.commands.skip",
        description="Have a tier go on where what it has not read is gone.",
    )
    parser.add_argument("tier", help="the tier")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be skipped")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    chosen = parser.parse_args(arguments)
    try:
        found = _skip(chosen.tier, dry_run=chosen.dry_run)
    except (
        SkipError,
        GoneError,
        endpoints.EndpointsError,
        site_file.SiteError,
        declarations.DeclarationError,
        ConflictError,
    ) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG
    except FileNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return AWAY
    except (StreamError, KafkaException, psycopg.Error, ChannelAwayError) as error:
        sys.stderr.write(f"a service does not answer: {error}\n")
        return AWAY
    if chosen.json:
        said = [{"place": f"{gap.place}:{gap.begin}", "records": gap.end - gap.begin} for gap in found]
        sys.stdout.write(f"{json.dumps({'tier': chosen.tier, 'dry_run': chosen.dry_run, 'skipped': said})}\n")
    elif not found:
        sys.stdout.write(f"All that {chosen.tier} has not read is in its inputs: there is nothing to skip.\n")
    else:
        count, where = sum(gap.end - gap.begin for gap in found), "; ".join(map(str, found))
        what = f"at most {count} records of which {chosen.tier} has read none, and which are gone: {where}.\n"
        then = "It is begun again with the oldest that are there; `sluice audit` tells the others as lost.\n"
        sys.stdout.write(f"Would skip {what}" if chosen.dry_run else f"Skipped {what}{then}")
    return 0


def _skip(name: str, *, dry_run: bool) -> list[Gap]:
    where = endpoints.load()
    tier = declarations.load(site_file.load(Path(os.environ.get("SLUICE_SITE", "site.yaml"))).pipeline).tier(
        name
    )
    if tier.state is not None:
        message = f'tier "{name}" holds a state, which would lack what is gone; its last error (`sluice tiers`) says what can be done'
        raise SkipError(message)
    kafka = where.kafka_as(User.OPERATOR)
    with (
        Channel(where.zookeeper, where.credential(Role.OPERATOR)) as channel,
        closing(Streams(kafka)) as streams,
    ):
        names = [stream.name for stream in tier.inputs]
        identities, inputs = Identities(kafka), streams.bounds(names)
        ids = identities.of(names)
        if tier.sink is not None:
            with closing(Ledger(where.postgres_as(Role.OPERATOR), name, 0, tier.sink)) as ledger:
                last = ledger.last()
                done = {} if last is None else last.ends
                others = [] if last is None else changed(of_positions(last.ends, last.streams), ids)
                anew = {place for place in done if split(place)[0] in others}
                if last is not None:
                    anew |= _cut(
                        {place: end for place, end in done.items() if place not in anew},
                        last.epochs,
                        identities,
                    )
                if anew and tier.inputs[0].columns is None:
                    raise SkipError(_of_outside(sorted({split(place)[0] for place in anew})))
                found = [Gap(place, end, end, anew=True) for place, end in done.items() if place in anew]
                found += gaps({place: end for place, end in done.items() if place not in anew}, inputs.oldest)
                if found and not dry_run:
                    ledger.leave(
                        [gap.place for gap in found]
                    )  # the audit sees by the next batch what was left out
                    _want(channel, name, found, {})
        else:
            receipts = list(read_receipts(channel, tier.name))
            same = SameStreams(Watch(identities), lambda: receipts, OTHER_NAME)
            same.refuse_kept(same.ask(inputs.ends))
            started = list(starts(channel, tier.name))
            tail = Tail(tier, streams).telling(streams.bounds(tier.written).ends, inputs, started)
            found = gaps(known(started, tail), inputs.oldest)
            if found and not dry_run:
                with closing(Book(where.postgres_as(Role.OPERATOR))) as book:
                    book.save(name, Page(), [_lost(name, gap) for gap in found])
                _want(channel, name, found, {gap.place: gap.end for gap in found})
    return found


def _cut(done: Mapping[str, int], known: Mapping[str, int], identities: Identities) -> set[str]:
    """Return the partitions that were cut back below where a tier is."""
    return set(identities.cut(done, known, epochs_of(identities.ends(identities.ask_ends(done)))))


def _of_outside(streams: Sequence[str]) -> str:
    return (
        f"{', '.join(streams)} is from outside, and was made anew or cut back: its records have the names of old ones, and would be "
        f"dropped as replays; the tier's last error (`sluice tiers`) says what can be done"
    )


def _lost(tier: str, gap: Gap) -> Missing:
    sentence = f"{gap} were gone from the stream before {tier} read them, and {trail_queue.cli_user()} had it go on without"
    return Missing(f"{gap.place}:{gap.begin}", gap.end - gap.begin, sentence)


def _want(channel: Channel, tier: str, found: Sequence[Gap], skipped: dict[str, int]) -> None:
    """Have the tier begun again, and have it in the trail."""
    path, now, by = paths.wanted(tier), time.time(), trail_queue.cli_user()
    read = channel.read(path, TierWanted)
    before = TierWanted() if read is None else read.value
    after = before.model_copy(
        update={"skipped": before.skipped | skipped, "attempt": before.attempt + 1, "by": by, "at": now}
    )
    entry = Entry(
        at=now,
        by=by,
        what=f"skip what {tier} has not read and is gone: {'; '.join(map(str, found))}",
        outcome=Outcome.DONE,
    )
    channel.multi(
        [Write(path, after, None if read is None else read.version), trail_queue.write(Role.OPERATOR, entry)]
    )


if __name__ == "__main__":
    sys.exit(main())
