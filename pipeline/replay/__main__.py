"""`python -m pipeline.replay STREAM … | --resume NUMBER`: put records into their stream again. Called by `sluice replay`.

Exit codes: 0 done, 1 it cannot be done so, 2 a service does not answer, 130 ended before it was done.
"""

import argparse
import getpass
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

from ops import endpoints, site
from ops.channel import Channel, ChannelAwayError, ConflictError, trail
from ops.model.access import Role
from ops.model.streams import User
from ops.model.trail import Entry, Outcome
from pipeline import declare
from pipeline.declare import QUARANTINE, Pipeline, Stream
from pipeline.driver.streams import StreamError, Streams
from pipeline.replay.book import Book, Replay, ReplayError
from pipeline.replay.player import Player, target
from pipeline.replay.span import span

RATE = 100.0
WRONG = 1
AWAY = 2
STOPPED = 130


def main(arguments: list[str] | None = None) -> int:
    """Replay."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.replay", description="Put records into their stream again.")
    parser.add_argument("stream", nargs="?", help="the stream that they are put into")
    parser.add_argument("--quarantine", action="store_true", help="the bad records of the stream, instead of the stream itself")
    parser.add_argument("--from", dest="begin", help="a time, or a place (partition:offset); all that there is, if not given")
    parser.add_argument("--to", dest="end", help="likewise; up to now, if not given")
    parser.add_argument("--rate", type=float, help=f"records per second; {RATE:g} if not given")
    parser.add_argument("--resume", type=int, help="go on with the replay of this number")
    parser.add_argument("--dry-run", action="store_true", help="say what would be put")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    chosen = parser.parse_args(arguments)
    if (chosen.stream is None) == (chosen.resume is None):
        parser.error("name a stream, or a replay to --resume")
    if chosen.rate is not None and chosen.rate <= 0:
        parser.error("--rate must be more than 0")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        return _replay(chosen, stop)
    except (ReplayError, FileNotFoundError, endpoints.EndpointsError, site.SiteError, declare.DeclarationError) as error:
        sys.stderr.write(f"{error}\n")
        return WRONG
    except (StreamError, KafkaException, psycopg.Error, ChannelAwayError, ConflictError) as error:
        sys.stderr.write(f"a service does not answer: {error}\n")
        return AWAY


def _replay(chosen: argparse.Namespace, stop: threading.Event) -> int:
    where = endpoints.load()
    pipeline = declare.load(site.load(Path(os.environ.get("SLUICE_SITE", "site.yaml"))).pipeline)
    kafka = where.kafka_as(User.OPERATOR)
    book, streams = Book(where.postgres), Streams(kafka)
    if chosen.resume is None:
        stream = _stream(pipeline, chosen.stream)
        if chosen.quarantine:
            _refuse_several(pipeline, stream)
        replay = _planned(chosen, book, streams, stream)
    else:
        replay = book.find(chosen.resume)
        replay = replace(replay, rate=chosen.rate or replay.rate)
        stream = _stream(pipeline, replay.stream)
    if chosen.dry_run or not replay.left:
        return _say(chosen, replay, 0, 0.0)
    _tell(where, replay)
    if chosen.resume is None:
        replay = book.add(replay)
    if not chosen.json:
        sys.stderr.write(f"Replay {replay.number}: {_what(replay)}.\n")
    begun = time.monotonic()
    put = Player(kafka, book, replay, target(streams, stream)).play(stop, quiet=chosen.json)
    return _say(chosen, replay, put, time.monotonic() - begun)


def _tell(where: endpoints.Endpoints, replay: Replay) -> None:
    """Have it in the trail before anything is put."""
    entry = Entry(at=time.time(), by=f"cli:{getpass.getuser()}", what=f"replay {_what(replay)}", outcome=Outcome.BEGUN)
    with Channel(where.zookeeper, where.credential(Role.OPERATOR)) as channel:
        channel.multi([trail.write(Role.OPERATOR, entry)])


def _stream(pipeline: Pipeline, wanted: str) -> Stream:
    for stream in pipeline.streams:
        if stream.name == wanted:
            return stream
    known = ", ".join(stream.name for stream in pipeline.streams)
    hint = "; name the stream itself, and say --quarantine" if wanted.endswith(QUARANTINE) else ""
    message = f'there is no stream "{wanted}"{hint}; the pipeline has {known}'
    raise ReplayError(message)


def _refuse_several(pipeline: Pipeline, stream: Stream) -> None:
    """Refuse where a record that was bad for one reader would be new for the others too, which have it already."""
    readers = [tier.name for tier in pipeline.tiers if stream in tier.inputs]
    if len(readers) > 1:
        message = (
            f"{stream.name} is read by {', '.join(readers)}: a record that one of them found bad would be counted twice by the others; "
            f"put it in again further up, where one tier reads it"
        )
        raise ReplayError(message)


def _planned(chosen: argparse.Namespace, book: Book, streams: Streams, stream: Stream) -> Replay:
    source = stream.quarantine if chosen.quarantine else stream.name
    begins, ends = span(streams, source, chosen.begin, chosen.end)
    if chosen.quarantine and chosen.begin is None:
        begins = {key: min(offset, ends[key]) for key, offset in book.after(source, begins).items()}
    return Replay(0, stream.name, source, chosen.rate or RATE, begins, begins, ends)


def _what(replay: Replay) -> str:
    about = f"{replay.left / replay.rate:.0f} s"
    return f"up to {replay.left} records of {replay.source} into {replay.stream} at {replay.rate:g}/s, in about {about}"


def _say(chosen: argparse.Namespace, replay: Replay, put: int, seconds: float) -> int:
    if chosen.json:
        done = {"number": replay.number, "stream": replay.stream, "source": replay.source, "put": put, "left": replay.left}
        sys.stdout.write(f"{json.dumps({**done, 'seconds': round(seconds, 1)})}\n")
    elif chosen.dry_run and replay.left:
        sys.stdout.write(f"Would put {_what(replay)}.\n")
    elif not put and not replay.left:
        sys.stdout.write(f"Nothing of {replay.source} is left to be put.\n")
    else:
        then = f"; {replay.left} left: go on with `sluice replay --resume {replay.number}`" if replay.left else ""
        sys.stdout.write(f"Put {put} records of {replay.source} into {replay.stream} again, in {seconds:.0f} s{then}.\n")
    return STOPPED if replay.left and not chosen.dry_run else 0


if __name__ == "__main__":
    sys.exit(main())
