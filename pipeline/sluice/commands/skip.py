"""`python -m sluice.commands.skip TIER`: let a tier continue after unread input records were
deleted.

`sluice skip` calls this command. Kafka's retention or a person deleted the records, and the tier
stopped: a tier never skips records by itself. The audit reports the skipped records as lost, and
the trail names the operator. Exit codes: 0 done, 1 impossible, 3 a service does not answer.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import psycopg
from confluent_kafka import KafkaException

from sluice.api import declarations
from sluice.audit.book import Book, Missing, Page
from sluice.driver.control.control_channel import read_receipts, starts
from sluice.kafka.output_tail import OutputTail
from sluice.kafka.positions import RENAME_STREAM, RecordsGoneError, known_output
from sluice.kafka.reader import StreamError, Streams, topic_and_number
from sluice.kafka.stream_identity import Identities, SameStreams, Watch, changed, epochs_of, of_positions
from sluice.sinks.ledger import Ledger
from sluice_ops.channel import Channel, ChannelAwayError, ConflictError, Write, trail_queue
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.exit_codes import AWAY, FAILED
from sluice_ops.model.incarnation import TierWanted
from sluice_ops.model.kafka_access import User
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.site import endpoints, project, site_file


class SkipError(Exception):
    """The tier cannot skip the records; the message names the cause."""


@dataclass(frozen=True)
class Gap:
    """Offsets of a partition that a tier has not read and that no longer exist."""

    place: str
    begin: int
    end: int
    replaced: bool = False
    """True if the stream was recreated or cut back.

    An unknown number of records from offset `begin` on is then gone.
    """

    def __str__(self) -> str:
        if self.replaced:
            return (
                f"{self.place} was recreated or cut back: the old records after offset "
                f"{self.begin - 1} are gone, and their number is unknown"
            )
        return f"{self.place}: offsets {self.begin} to {self.end - 1}"


def gaps(done: Mapping[str, int], oldest: Mapping[str, int]) -> list[Gap]:
    """Return the gaps between a tier's positions `done` and the oldest offsets of its inputs."""
    return [
        Gap(place, done[place], first)
        for place, first in sorted(oldest.items())
        if done.get(place, first) < first
    ]


def main(arguments: list[str] | None = None) -> int:
    """Skip the deleted records of a tier; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m sluice.commands.skip",
        description="Let a tier continue after unread input records were deleted.",
    )
    parser.add_argument("tier", help="the tier that stopped because input records are gone")
    parser.add_argument("--dry-run", action="store_true", help="only show which offsets would be skipped")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    chosen = parser.parse_args(arguments)
    try:
        skipped = _skip(chosen.tier, dry_run=chosen.dry_run)
    except (
        SkipError,
        RecordsGoneError,
        endpoints.EndpointsError,
        site_file.SiteError,
        declarations.DeclarationError,
        ConflictError,
    ) as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    except FileNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return AWAY
    except (StreamError, KafkaException, psycopg.Error, ChannelAwayError) as error:
        sys.stderr.write(f"a service does not answer: {error}\n")
        return AWAY
    if chosen.json:
        rows = [{"place": f"{gap.place}:{gap.begin}", "records": gap.end - gap.begin} for gap in skipped]
        sys.stdout.write(f"{json.dumps({'tier': chosen.tier, 'dry_run': chosen.dry_run, 'skipped': rows})}\n")
    elif not skipped:
        sys.stdout.write(f"Nothing to skip: all records that {chosen.tier} has not read are in its inputs.\n")
    else:
        count, where = sum(gap.end - gap.begin for gap in skipped), "; ".join(map(str, skipped))
        records = f"at most {count} records that were deleted before {chosen.tier} read them: {where}.\n"
        then = (
            f"{chosen.tier} starts again at the oldest existing records. "
            "`sluice audit` reports the skipped records as lost.\n"
        )
        sys.stdout.write(f"Would skip {records}" if chosen.dry_run else f"Skipped {records}{then}")
    return 0


def _skip(name: str, *, dry_run: bool) -> list[Gap]:
    where = endpoints.load()
    tier = declarations.load(site_file.load(project.site_path()).pipeline).tier(name)
    if tier.state is not None:
        message = (
            f'tier "{name}" keeps state, and the state would lack the deleted records, so nothing is '
            "skipped; its last error names the next step: `sluice status`"
        )
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
                recreated = [] if last is None else changed(of_positions(last.ends, last.streams), ids)
                replaced = {place for place in done if topic_and_number(place)[0] in recreated}
                if last is not None:
                    replaced |= _cut(
                        {place: end for place, end in done.items() if place not in replaced},
                        last.epochs,
                        identities,
                    )
                if replaced and tier.inputs[0].columns is None:
                    raise SkipError(_of_outside(sorted({topic_and_number(place)[0] for place in replaced})))
                skipped = [
                    Gap(place, end, end, replaced=True) for place, end in done.items() if place in replaced
                ]
                skipped += gaps(
                    {place: end for place, end in done.items() if place not in replaced}, inputs.oldest
                )
                if skipped and not dry_run:
                    # the next batch shows the audit which offsets were left out
                    ledger.forget_ends([gap.place for gap in skipped])
                    _restart(channel, name, skipped, {})
        else:
            receipts = list(read_receipts(channel, tier.name))
            same = SameStreams(Watch(identities), lambda: receipts, RENAME_STREAM)
            same.refuse_kept(same.ask(inputs.ends))
            started = list(starts(channel, tier.name))
            tail = OutputTail(tier, streams).enough_to_start(
                streams.bounds(tier.written).ends, inputs, started
            )
            skipped = gaps(known_output(started, tail), inputs.oldest)
            if skipped and not dry_run:
                with closing(Book(where.postgres_as(Role.OPERATOR))) as book:
                    book.save(name, Page(), [_lost(name, gap) for gap in skipped])
                _restart(channel, name, skipped, {gap.place: gap.end for gap in skipped})
    return skipped


def _cut(done: Mapping[str, int], known: Mapping[str, int], identities: Identities) -> set[str]:
    """Return the partitions that were cut back below a tier's positions `done`."""
    return set(identities.cut(done, known, epochs_of(identities.ends(identities.ask_ends(done)))))


def _of_outside(streams: Sequence[str]) -> str:
    return (
        f"{', '.join(streams)} comes from outside, and was recreated or cut back: new records have the "
        "origins of old ones and would be dropped as replays, so nothing is skipped; "
        "the tier's last error names the next step: `sluice status`"
    )


def _lost(tier: str, gap: Gap) -> Missing:
    sentence = (
        f"{gap} were deleted before {tier} read them; "
        f"{trail_queue.cli_user()} skipped them with `sluice skip`"
    )
    return Missing(f"{gap.place}:{gap.begin}", gap.end - gap.begin, sentence)


def _restart(channel: Channel, tier: str, gaps: Sequence[Gap], starts_at: dict[str, int]) -> None:
    """Request a new start of the tier, and add an entry to the trail.

    `starts_at` are the offsets to start from, for a tier that writes streams.
    """
    path, now, by = paths.wanted(tier), time.time(), trail_queue.cli_user()
    node = channel.read(path, TierWanted)
    before = TierWanted() if node is None else node.value
    after = before.model_copy(
        update={"skipped": before.skipped | starts_at, "attempt": before.attempt + 1, "by": by, "at": now}
    )
    entry = Entry(
        at=now,
        by=by,
        what=f"skip deleted records that {tier} has not read: {'; '.join(map(str, gaps))}",
        outcome=Outcome.DONE,
    )
    channel.multi(
        [Write(path, after, None if node is None else node.version), trail_queue.write(Role.OPERATOR, entry)]
    )


if __name__ == "__main__":
    sys.exit(main())
