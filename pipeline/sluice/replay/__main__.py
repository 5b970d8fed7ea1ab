"""`python -m sluice.replay TIER … | --resume NUMBER | --cancel NUMBER`: process old or quarantined
records of a tier again.

`sluice replay` calls this command. The process is the replay's incarnation: it reads, transforms
and writes. Exit codes: 0 done, 1 refused, 3 a service does not answer, 130 stopped early.
"""

import argparse
import json
import signal
import sys
import threading
import time
from dataclasses import replace

import psycopg
from confluent_kafka import KafkaException

from sluice import releases, schema_registry
from sluice.api import declarations
from sluice.api.declarations import Pipeline, Tier
from sluice.driver.control import packed_lineage
from sluice.driver.control.control_channel import reported_routing
from sluice.kafka.reader import StreamError, Streams
from sluice.replay.book import Book, BrokenOffError, Replay, ReplayError
from sluice.replay.request import refuse, span
from sluice_ops.channel import Channel, ChannelAwayError, ConflictError, trail_queue
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.exit_codes import AWAY, FAILED, INTERRUPTED
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord
from sluice_ops.model.kafka_access import User
from sluice_ops.model.release import Release
from sluice_ops.model.routing_epochs import RoutingEpochs, newest
from sluice_ops.model.tier import TierSpec
from sluice_ops.model.trail import Entry, Outcome
from sluice_ops.site import endpoints, project, site_file

DEFAULT_RATE = 100.0
"""Unit: records per second."""


def main(arguments: list[str] | None = None) -> int:
    """Run, resume or cancel a replay; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m sluice.replay", description="Process old or quarantined records of a tier again."
    )
    parser.add_argument("tier", nargs="?", help="the tier that processes the records")
    parser.add_argument(
        "--quarantine",
        action="store_true",
        help="read the records that the tier put into quarantine, instead of the inputs",
    )
    parser.add_argument(
        "--from",
        dest="begin",
        help=(
            "a time, or a place ([stream/]partition:offset); default: the oldest record, "
            "or with --quarantine the oldest that no replay has processed"
        ),
    )
    parser.add_argument("--to", dest="end", help="a time or a place; default: the newest record")
    parser.add_argument(
        "--rate", type=float, help=f"the maximum of records per second; default: {DEFAULT_RATE:g}"
    )
    parser.add_argument("--name", help="a name for the replay; a replay with this name continues")
    parser.add_argument("--resume", type=int, help="continue the replay with this number")
    parser.add_argument("--cancel", type=int, help="end the replay with this number for good")
    parser.add_argument("--dry-run", action="store_true", help="only show which records would be read")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    chosen = parser.parse_args(arguments)
    if sum(choice is not None for choice in (chosen.tier, chosen.resume, chosen.cancel)) != 1:
        parser.error("give one of: a tier, --resume NUMBER, --cancel NUMBER")
    if chosen.tier is None and (chosen.quarantine or chosen.begin or chosen.end or chosen.name):
        parser.error("--quarantine, --from, --to and --name need a new replay: name a tier")
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
        return FAILED
    except psycopg.errors.UndefinedColumn as error:
        sys.stderr.write(f"an earlier version of Sluice made the tables; run `sluice publish` first: {error}")
        return FAILED
    except (BrokenOffError, FileNotFoundError) as error:
        sys.stderr.write(f"{error}\n")
        return AWAY
    except (StreamError, KafkaException, psycopg.Error, ChannelAwayError, ConflictError) as error:
        sys.stderr.write(f"a service does not answer: {error}\n")
        return AWAY


def _replay(chosen: argparse.Namespace, stop: threading.Event) -> int:
    where = endpoints.load()
    book = Book(where.postgres_as(Role.OPERATOR))
    earlier = None if chosen.resume is None else book.find(chosen.resume)
    if chosen.name is not None:
        earlier = book.named(chosen.name)
    name = chosen.tier if earlier is None else earlier.tier
    release, loaded = _code_of(where, name)
    pipeline = loaded.pipeline
    tier = pipeline.tier(name)
    refuse(pipeline, tier, quarantine=chosen.quarantine if earlier is None else earlier.quarantined)
    kafka = where.kafka_as(User.OPERATOR)
    replay = (
        _new_replay(chosen, book, Streams(kafka), tier)
        if earlier is None
        else replace(earlier, rate=chosen.rate or earlier.rate)
    )
    if chosen.dry_run or not replay.left:
        return _report(chosen, book, pipeline, replay, 0.0)
    _add_to_trail(where, f"replay {_summary(replay)}", chosen.name)
    replay = book.take(book.add(replay, chosen.name) if earlier is None else replay)
    if not chosen.json:
        sys.stderr.write(
            f"Replay {replay.number}: {_summary(replay)}, with the code of {release or 'the checkout'}.\n"
        )
    # importing Spark takes a second, and a refused replay does not need it
    from sluice.replay.player import Player  # noqa: PLC0415

    started = time.monotonic()
    with Channel(where.zookeeper, where.credential(Role.OPERATOR)) as channel:
        packed = packed_lineage.is_written(channel, site_file.load(project.site_path()))
    routing = _routing_epochs(where, name)
    player = Player(where, kafka, loaded, tier, book, replay, routing, packed=packed)
    player.play(stop, quiet=chosen.json)
    return _report(chosen, book, pipeline, player.replay, time.monotonic() - started)


def _cancel(chosen: argparse.Namespace) -> int:
    where = endpoints.load()
    book = Book(where.postgres_as(Role.OPERATOR))
    replay = book.find(chosen.cancel)
    _add_to_trail(where, f"cancel replay {replay.number} of {replay.tier}", None)
    book.cancel(replay.number)
    if chosen.json:
        sys.stdout.write(f"{json.dumps({'number': replay.number, 'left': replay.left})}\n")
    else:
        sys.stdout.write(
            f"Replay {replay.number} of {replay.tier} is cancelled; "
            f"{replay.left} records of {replay.source} were not processed.\n"
        )
    return 0


def _code_of(where: endpoints.Endpoints, tier: str) -> tuple[str | None, releases.Loaded]:
    """Return the release and its code that the tier runs, or the published ones if it does not run.

    The release is None if the tier has none; the code is then the checkout's.
    """
    with Channel(where.zookeeper, where.credential(Role.OPERATOR)) as channel:
        owner, spec = channel.read(paths.owner(tier), OwnerRecord), channel.read(paths.tier(tier), TierSpec)
        release = None if spec is None else spec.value.release
        if owner is not None and owner.value.owner is not None:
            running = channel.read(paths.incarnation(tier, owner.value.owner), IncarnationSpec)
            release = release if running is None else running.value.release
        node = None if release is None else channel.read(paths.release(release), Release)
    site = site_file.load(project.site_path())
    if release is None:
        loaded, described = releases.Loaded(declarations.load(site.pipeline)), None
    else:
        described = None if node is None else node.value
        loaded = releases.load(where.home, release, described)
    ids = {} if described is None else described.schemas
    with_ids = schema_registry.with_ids(loaded.pipeline, ids, site.schema_registry)
    return release, replace(loaded, pipeline=with_ids)


def _routing_epochs(where: endpoints.Endpoints, tier: str) -> RoutingEpochs | None:
    """Return the routing epochs of the tier's outputs, or None if no run has reported them."""
    with Channel(where.zookeeper, where.credential(Role.OPERATOR)) as channel:
        return newest(reported_routing(channel, tier))


def _add_to_trail(where: endpoints.Endpoints, what: str, name: str | None) -> None:
    """Add an entry to the trail, before the operation begins; a replay's name is its author."""
    entry = Entry(at=time.time(), by=name or trail_queue.cli_user(), what=what, outcome=Outcome.BEGUN)
    with Channel(where.zookeeper, where.credential(Role.OPERATOR)) as channel:
        channel.multi([trail_queue.write(Role.OPERATOR, entry)])


def _new_replay(chosen: argparse.Namespace, book: Book, streams: Streams, tier: Tier) -> Replay:
    topics = [stream.quarantine if chosen.quarantine else stream.name for stream in tier.inputs]
    begins, ends = span(streams, topics, chosen.begin, chosen.end)
    if not chosen.quarantine:
        ends = _limited(book, tier, begins, ends)
    elif chosen.begin is None:
        begins = {place: min(offset, ends[place]) for place, offset in book.after(tier.name, begins).items()}
    return Replay(0, tier.name, chosen.rate or DEFAULT_RATE, begins, begins, ends)


def _limited(book: Book, tier: Tier, begins: dict[str, int], ends: dict[str, int]) -> dict[str, int]:
    """Return the ends, limited to the live tier's position.

    If the replay wrote records before the live tier, later tiers would drop the live tier's records
    as replays.
    """
    through = book.through(tier)
    if not through:
        message = f"no record is known to have gone through {tier.name} yet, so nothing can be replayed"
        if tier.outputs:
            message += "; the audit finds this out: check that the audit runs with `sluice logs audit`"
        raise ReplayError(message)
    limited = {place: max(begins[place], min(end, through.get(place, 0))) for place, end in ends.items()}
    if waiting := sum(ends.values()) - sum(limited.values()):
        sys.stderr.write(
            f"{waiting} more records are left out: they are not known to have gone through {tier.name} yet.\n"
        )
    return limited


def _summary(replay: Replay) -> str:
    return (
        f"up to {replay.left} records of {replay.source} through {replay.tier}, "
        f"at most {replay.rate:g}/s, in at least {replay.left / replay.rate:.0f} s"
    )


def _report(
    chosen: argparse.Namespace, book: Book, pipeline: Pipeline, replay: Replay, seconds: float
) -> int:
    """Print the result, and return the exit code."""
    counts = book.counts(replay)
    dropped_later = book.dropped(_sinks_after(pipeline, replay.tier), replay)
    if chosen.json:
        result = {
            "number": replay.number,
            "tier": replay.tier,
            "source": replay.source,
            "left": replay.left,
            "put": counts.rows_out,
            "filtered": counts.filtered,
            "quarantined": counts.quarantined,
            "dropped": counts.replays,
            "dropped_further_on": dropped_later,
            "seconds": round(seconds, 1),
        }
        sys.stdout.write(f"{json.dumps(result)}\n")
    elif chosen.dry_run and replay.left:
        sys.stdout.write(f"Would replay {_summary(replay)}.\n")
    elif not replay.number:
        sys.stdout.write(f"Nothing to replay: no record of {replay.source} is left.\n")
    else:
        results = [f"{counts.rows_out} records written"]
        if counts.replays:
            results.append(f"{counts.replays} dropped as duplicates")
        if counts.quarantined:
            results.append(f"{counts.quarantined} left in quarantine")
        results += [
            f"{tier} dropped {dropped} as duplicates since the replay began"
            for tier, dropped in dropped_later.items()
        ]
        next_step = (
            f"; {replay.left} left, continue with `sluice replay --resume {replay.number}`"
            if replay.left
            else ""
        )
        sys.stdout.write(
            f"Replay {replay.number} of {replay.tier}: {', '.join(results)}; {seconds:.0f} s{next_step}.\n"
        )
    return INTERRUPTED if replay.left and not chosen.dry_run else 0


def _sinks_after(pipeline: Pipeline, tier: str) -> list[str]:
    """Return the tiers with a sink that this tier's records reach, directly or indirectly."""
    streams, reached = {stream.name for stream in pipeline.tier(tier).outputs}, set[str]()
    while (
        readers := {
            other.name for other in pipeline.tiers if streams & {stream.name for stream in other.inputs}
        }
        - reached
    ):
        reached |= readers
        streams |= {
            stream.name for other in pipeline.tiers if other.name in readers for stream in other.outputs
        }
    return sorted(other.name for other in pipeline.tiers if other.name in reached and other.sink is not None)


if __name__ == "__main__":
    sys.exit(main())
