"""`python -m sluice.replay TIER … | --resume NUMBER | --cancel NUMBER`: take records through a tier again. Called by `sluice replay`.

The process is the replay's incarnation: it reads, transforms and writes by itself. Exit codes: 0 done, 1 it cannot be done so,
3 a service does not answer, 130 ended before it was done.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psycopg
from confluent_kafka import KafkaException

from sluice import releases
from sluice.api import declarations
from sluice.api.declarations import Pipeline, Tier
from sluice.driver.control.control_channel import said_ways
from sluice.kafka.reader import StreamError, Streams
from sluice.replay.book import Book, BrokenOffError, Replay, ReplayError
from sluice.replay.refusals import refuse
from sluice.replay.request import span
from sluice_ops.channel import Channel, ChannelAwayError, ConflictError, trail_queue
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord
from sluice_ops.model.kafka_access import User
from sluice_ops.model.release import Release
from sluice_ops.model.routing_epochs import Ways, newest
from sluice_ops.model.tier import TierSpec
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.site import endpoints, site_file

RATE = 100.0
WRONG = 1
AWAY = 3
STOPPED = 130


def main(arguments: list[str] | None = None) -> int:
    """Replay."""
    parser = argparse.ArgumentParser(
        prog="python -m sluice.replay", description="Take records through a tier again."
    )
    parser.add_argument("tier", nargs="?", help="the tier that takes them")
    parser.add_argument(
        "--quarantine",
        action="store_true",
        help="the records that it has set aside, instead of those of its inputs",
    )
    parser.add_argument(
        "--from",
        dest="begin",
        help="a time, or a place ([stream/]partition:offset); all that there is, if not given",
    )
    parser.add_argument("--to", dest="end", help="likewise; up to now, if not given")
    parser.add_argument("--rate", type=float, help=f"the most records per second; {RATE:g} if not given")
    parser.add_argument("--resume", type=int, help="go on with the replay of this number")
    parser.add_argument(
        "--cancel", type=int, help="end the replay of this number for good, wherever it goes on"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be taken")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    chosen = parser.parse_args(arguments)
    if sum(each is not None for each in (chosen.tier, chosen.resume, chosen.cancel)) != 1:
        parser.error("name a tier, or a replay to --resume or to --cancel")
    if chosen.tier is None and (chosen.quarantine or chosen.begin or chosen.end):
        parser.error("--quarantine, --from and --to are for a new replay")
    if chosen.rate is not None and chosen.rate <= 0:
        parser.error("--rate must be more than 0")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        return _cancel(chosen) if chosen.cancel is not None else _replay(chosen, stop)
    except (
        ReplayError,
        endpoints.EndpointsError,
        site_file.SiteError,
        declarations.DeclarationError,
        releases.ChangedError,
    ) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG
    except (BrokenOffError, FileNotFoundError) as error:
        sys.stderr.write(f"{error}\n")
        return AWAY
    except (StreamError, KafkaException, psycopg.Error, ChannelAwayError, ConflictError) as error:
        sys.stderr.write(f"a service does not answer: {error}\n")
        return AWAY


def _replay(chosen: argparse.Namespace, stop: threading.Event) -> int:
    where = endpoints.load()
    book = Book(where.postgres_as(Role.OPERATOR))
    known = None if chosen.resume is None else book.find(chosen.resume)
    name = chosen.tier if known is None else known.tier
    release, pipeline = _code(where, name)
    tier = pipeline.tier(name)
    refuse(pipeline, tier, quarantine=chosen.quarantine if known is None else known.quarantined)
    kafka = where.kafka_as(User.OPERATOR)
    replay = (
        _planned(chosen, book, Streams(kafka), tier)
        if known is None
        else replace(known, rate=chosen.rate or known.rate)
    )
    if chosen.dry_run or not replay.left:
        return _say(chosen, book, pipeline, replay, 0.0)
    _tell(where, f"replay {_what(replay)}")
    replay = book.take(book.add(replay) if known is None else replay)
    if not chosen.json:
        sys.stderr.write(
            f"Replay {replay.number}: {_what(replay)}, with the code of {release or 'the checkout'}.\n"
        )
    from sluice.replay.player import Player  # noqa: PLC0415 — Spark takes a second, which is lost on what is refused

    begun, player = time.monotonic(), Player(where, kafka, pipeline, tier, book, replay, _ways(where, name))
    player.play(stop, quiet=chosen.json)
    return _say(chosen, book, pipeline, player.replay, time.monotonic() - begun)


def _cancel(chosen: argparse.Namespace) -> int:
    where = endpoints.load()
    book = Book(where.postgres_as(Role.OPERATOR))
    replay = book.find(chosen.cancel)
    _tell(where, f"cancel replay {replay.number} of {replay.tier}")
    book.cancel(replay.number)
    if chosen.json:
        sys.stdout.write(f"{json.dumps({'number': replay.number, 'left': replay.left})}\n")
    else:
        sys.stdout.write(
            f"Replay {replay.number} of {replay.tier} is over, with {replay.left} records of {replay.source} not taken.\n"
        )
    return 0


def _code(where: endpoints.Endpoints, tier: str) -> tuple[str | None, Pipeline]:
    """Return the code that the tier runs now; the one that is published, where it does not run."""
    with Channel(where.zookeeper, where.credential(Role.OPERATOR)) as channel:
        owner, spec = channel.read(paths.owner(tier), OwnerRecord), channel.read(paths.tier(tier), TierSpec)
        release = None if spec is None else spec.value.release
        if owner is not None and owner.value.owner is not None:
            running = channel.read(paths.incarnation(tier, owner.value.owner), IncarnationSpec)
            release = release if running is None else running.value.release
        said = None if release is None else channel.read(paths.release(release), Release)
    if release is not None:
        return release, releases.load(where.home, release, None if said is None else said.value)
    return None, declarations.load(site_file.load(Path(os.environ.get("SLUICE_SITE", "site.yaml"))).pipeline)


def _ways(where: endpoints.Endpoints, tier: str) -> Ways | None:
    """Return by which ways the tier has put its records; None where no run of it has said that."""
    with Channel(where.zookeeper, where.credential(Role.OPERATOR)) as channel:
        return newest(said_ways(channel, tier))


def _tell(where: endpoints.Endpoints, what: str) -> None:
    """Have it in the trail before anything is done."""
    entry = Entry(at=time.time(), by=trail_queue.cli_user(), what=what, outcome=Outcome.BEGUN)
    with Channel(where.zookeeper, where.credential(Role.OPERATOR)) as channel:
        channel.multi([trail_queue.write(Role.OPERATOR, entry)])


def _planned(chosen: argparse.Namespace, book: Book, streams: Streams, tier: Tier) -> Replay:
    topics = [stream.quarantine if chosen.quarantine else stream.name for stream in tier.inputs]
    begins, ends = span(streams, topics, chosen.begin, chosen.end)
    if not chosen.quarantine:
        ends = _behind(book, tier, begins, ends)
    elif chosen.begin is None:
        begins = {place: min(offset, ends[place]) for place, offset in book.after(tier.name, begins).items()}
    return Replay(0, tier.name, chosen.rate or RATE, begins, begins, ends)


def _behind(book: Book, tier: Tier, begins: dict[str, int], ends: dict[str, int]) -> dict[str, int]:
    """Return the ends, no further than where the tier itself is: whatever is taken before it comes there would hide what it puts out."""
    through = book.through(tier)
    if not through:
        message = f"nothing is known to have gone through {tier.name} yet" + (
            "; the audit finds it out: does it run (`sluice logs audit`)?" if tier.outputs else ""
        )
        raise ReplayError(message)
    known = {place: max(begins[place], min(end, through.get(place, 0))) for place, end in ends.items()}
    if waits := sum(ends.values()) - sum(known.values()):
        sys.stderr.write(
            f"{waits} more records are left out: they are not known to have gone through {tier.name} yet.\n"
        )
    return known


def _what(replay: Replay) -> str:
    about = f"{replay.left / replay.rate:.0f} s"
    return f"up to {replay.left} records of {replay.source} through {replay.tier} at {replay.rate:g}/s at most, in {about} at least"


def _say(chosen: argparse.Namespace, book: Book, pipeline: Pipeline, replay: Replay, seconds: float) -> int:
    counts = book.counts(replay)
    further = book.dropped(_further(pipeline, replay.tier), replay)
    if chosen.json:
        said = {
            "number": replay.number,
            "tier": replay.tier,
            "source": replay.source,
            "left": replay.left,
            "put": counts.rows_out,
        }
        more = {
            "filtered": counts.filtered,
            "quarantined": counts.quarantined,
            "dropped": counts.replays,
            "dropped_further_on": further,
        }
        sys.stdout.write(f"{json.dumps({**said, **more, 'seconds': round(seconds, 1)})}\n")
    elif chosen.dry_run and replay.left:
        sys.stdout.write(f"Would take {_what(replay)}.\n")
    elif not replay.number:
        sys.stdout.write(f"Nothing of {replay.source} is left to be taken.\n")
    else:
        done = [f"put {counts.rows_out}"] + [f"dropped {counts.replays} that were there"] * bool(
            counts.replays
        )
        done += [f"left {counts.quarantined} in quarantine"] * bool(counts.quarantined)
        done += [f"{tier} has dropped {dropped} since it began" for tier, dropped in further.items()]
        then = (
            f"; {replay.left} left: go on with `sluice replay --resume {replay.number}`"
            if replay.left
            else ""
        )
        sys.stdout.write(
            f"Replay {replay.number} of {replay.tier}: {', '.join(done)}; {seconds:.0f} s{then}.\n"
        )
    return STOPPED if replay.left and not chosen.dry_run else 0


def _further(pipeline: Pipeline, tier: str) -> list[str]:
    """Name the tiers with a sink that get what this one puts into its streams."""
    streams, found = {stream.name for stream in pipeline.tier(tier).outputs}, set[str]()
    while (
        more := {each.name for each in pipeline.tiers if streams & {stream.name for stream in each.inputs}}
        - found
    ):
        found |= more
        streams |= {stream.name for each in pipeline.tiers if each.name in more for stream in each.outputs}
    return sorted(each.name for each in pipeline.tiers if each.name in found and each.sink is not None)


if __name__ == "__main__":
    sys.exit(main())
