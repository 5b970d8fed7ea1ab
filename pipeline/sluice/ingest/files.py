"""Follow log files, and write each new line into a stream once.

`python -m sluice.ingest.files --stream raw --name web-h1 PATTERN…`, as `sluice ingest files` does.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from sluice.ingest import source_metrics
from sluice.ingest.followed_files import Batch, FollowedFiles, Line, Position
from sluice.ingest.process import parser, run, watchdog
from sluice.ingest.registration import Measured, Registration, new_record
from sluice.ingest.source import KEY_BYTES, RECORD_BYTES, NotWrittenError, Record, Source, key_of
from sluice.ingest.source_metrics import Gauges, SourceMetrics, Written
from sluice_ops.model.kafka_access import User
from sluice_ops.model.source import MOST_FILES, SourceKind
from sluice_ops.site import endpoints

log = structlog.get_logger()

LOOK_SECONDS = 0.25
"""The pause after a look that found nothing new."""
AGAIN_SECONDS = 1.0
"""The pause after Kafka took nothing."""
BATCH_BYTES = 4 * 1024 * 1024
"""About the most bytes of one transaction."""
FILE = "file/"
"""The parts of the source's memory that hold positions."""


def positions(memory: dict[str, bytes]) -> list[Position]:
    """Return the positions in a source's memory."""
    return [
        Position.model_validate_json(value, extra="allow")
        for part, value in memory.items()
        if part.startswith(FILE)
    ]


def record(line: Line, field: str | None) -> Record:
    """Return the record of a line. It has no key if the line is no JSON object."""
    key = None
    if field is not None:
        try:
            key = key_of(json.loads(line.value), field)
        except (ValueError, RecursionError):
            key = None
    if key is not None and len(key) > KEY_BYTES:
        key = None
    return Record(key, line.value, f"{line.file}:{line.offset}")


def write(source: Source, batch: Batch, field: str | None) -> None:
    """Write a batch, and remember its positions."""
    memory = {
        f"{FILE}{identity}": None if position is None else position.model_dump_json().encode()
        for identity, position in batch.positions.items()
    }
    source.write([record(line, field) for line in batch.lines], memory)


def follow(  # noqa: PLR0913, PLR0917 - what a source reads, writes and tells
    source: Source,
    files: FollowedFiles,
    field: str | None,
    stop: threading.Event,
    written: Written,
    turn: Callable[[], None] = lambda: None,
) -> None:
    """Write new lines, and count them, until `stop` is set. `turn` is called at each look."""
    is_refused = False
    while not stop.is_set():
        turn()
        files.look()
        batch = files.read(BATCH_BYTES)
        if not batch:
            stop.wait(LOOK_SECONDS)
            continue
        written.begin()
        try:
            write(source, batch, field)
        except NotWrittenError as error:
            if not is_refused:
                log.warning("Kafka took no lines; the source tries again each second", reason=str(error))
            is_refused = True
            written.refuse(str(error))
            stop.wait(AGAIN_SECONDS)
            continue
        is_refused = False
        written.add(line.value for line in batch.lines)
        files.done(batch)


def gauges(files: FollowedFiles) -> Gauges:
    """Return the gauges of a source of log files."""
    return (
        ("open_files", "Files that are followed.", lambda: files.open_files),
        ("unread_bytes", "Bytes of these files that are not committed yet.", lambda: files.unread_bytes),
    )


def measured(written: Written, files: FollowedFiles) -> Measured:
    """Return the figures of a source of log files."""
    return Measured(
        records=written.records,
        last=written.last or None,
        refused=written.refused,
        waiting_bytes=files.unread_bytes,
        files=files.positions(MOST_FILES),
    )


def serve(chosen: argparse.Namespace, stop: threading.Event) -> None:
    """Follow the files until `stop` is set."""
    where = endpoints.load()
    # before the source is taken over: a second process here must not end the first
    registry = source_metrics.serve(chosen.metrics)
    source = Source(where.kafka_as(User.OUTSIDE), chosen.stream, chosen.name, stopped=stop.is_set)
    remembered = positions(source.take_over())
    files = FollowedFiles(
        chosen.patterns, remembered, line_bytes=RECORD_BYTES, clock=time.monotonic, wall_clock=time.time
    )
    files.look()
    written = Written()
    registry.register(SourceMetrics(chosen.name, written, gauges(files)))
    log.info(
        "source started",
        source=chosen.name,
        stream=chosen.stream,
        patterns=chosen.patterns,
        files=files.open_files,
        remembered=len(remembered),
    )
    if not files.open_files:
        log.warning("no readable file with content matches yet; the source waits", patterns=chosen.patterns)
    record = new_record(chosen.name, chosen.stream, SourceKind.FILES, " ".join(chosen.patterns))
    try:
        with Registration(
            where, record, partial(measured, written, files), written.trouble, stop, metrics=chosen.metrics
        ) as registration:
            dog = watchdog("source", registration.hung)
            dog.start()
            follow(source, files, chosen.key, stop, written, dog.turn)
            dog.stop()
    finally:
        files.close()
    log.info("source stopped", source=chosen.name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow files until Ctrl-C or SIGTERM."""
    options = parser("sluice.ingest.files", "Follow log files, and write each new line into a stream once.")
    options.add_argument("patterns", nargs="+", metavar="PATTERN", help="paths of files, with * ? [ ] and **")
    return run(options.parse_args(arguments), serve)


if __name__ == "__main__":
    sys.exit(main())
