"""The life of a replay's process: part after part, at the pace that live records allow, until all
parts are done or a signal stops the process.
"""

import sys
import threading
import time

from sluice.api.declarations import Tier
from sluice.api.origins import REPLAY
from sluice.driver.engine.intake import portion
from sluice.failures import error_text
from sluice.kafka.reader import StreamError, Streams, topic_and_number
from sluice.releases import Loaded
from sluice.replay.book import Book, BrokenOffError, Replay, ReplayError, deleted_records
from sluice.replay.live_records import LatencyWatch
from sluice.replay.pace import Pace
from sluice.replay.reader import Reader
from sluice.replay.target import Part, Target, target_of
from sluice.sinks.ledger import Counts
from sluice_ops.model.access import Role
from sluice_ops.model.routing_epochs import RoutingEpochs
from sluice_ops.site import endpoints

PART_SECONDS = 2.0
"""The duration of one part at the current pace.

One Spark job reads a part; after a kill, the part is written twice.
"""
SAVE_SECONDS = 1.0
"""The time between two saves of the pace, for `sluice status`."""
SHOW_SECONDS = 5.0
"""The time between two lines of progress."""


class StoppedError(Exception):
    """A signal stopped the replay in the middle of a part."""


class Player:
    """Carries out one replay."""

    def __init__(  # noqa: PLR0913, PLR0917 — the parts of one replay
        self,
        where: endpoints.Endpoints,
        kafka: str,
        code: Loaded,
        tier: Tier,
        book: Book,
        replay: Replay,
        routing: RoutingEpochs | None,
        *,
        packed: bool,
    ) -> None:
        """Prepare; `packed` as in `sluice.api.lineage_header`."""
        self._where, self._kafka, self._tier, self._book, self.replay = where, kafka, tier, book, replay
        self._routing, self._packed = routing, packed
        self._streams, self._environment = Streams(kafka), code.environment
        self._pace = Pace(replay.rate)
        self._watch = LatencyWatch(kafka, where.postgres_as(Role.OPERATOR), code.pipeline, self._pace)
        self._stop = threading.Event()
        self._quiet = False
        self._saved_at = self._shown_at = 0.0

    def play(self, stop: threading.Event, *, quiet: bool) -> None:
        """Process the remaining records, until all are done or `stop` is set.

        A resumed replay repeats the unfinished part. Raise ReplayError if the replay cannot
        continue, BrokenOffError if it can be resumed.
        """
        self._stop, self._quiet = stop, quiet
        where, kafka, replay = self._where, self._kafka, self.replay
        reader = Reader(
            kafka,
            where.home,
            self._tier,
            replay,
            self._streams,
            self._routing,
            self._environment,
            packed=self._packed,
        )
        target = target_of(
            kafka,
            where.postgres_as(Role.OPERATOR),
            self._tier,
            replay,
            self._book,
            frozenset() if replay.quarantined else self._quarantined(),
            packed=self._packed,
        )
        self._watch.start()
        try:
            while self.replay.left:
                self._process_part(reader, target)
        except StoppedError:
            pass
        except (ReplayError, BrokenOffError):
            raise
        except Exception as error:
            if not stop.is_set():  # Ctrl-C also ends Spark's JVM, which is no failure
                if deleted := self._deleted():
                    raise ReplayError(deleted) from error
                message = (
                    f"replay {replay.number} failed: {error_text(error)}\n"
                    f"No record is lost; continue with `sluice replay --resume {replay.number}`"
                )
                raise BrokenOffError(message) from error
        finally:
            self._watch.end()
            target.close()

    def _deleted(self) -> str | None:
        """Return a sentence if Kafka deleted records of the replay.

        None: Kafka has all records, or does not answer.
        """
        try:
            known = self._streams.bounds(sorted({topic_and_number(place)[0] for place in self.replay.ends}))
        except StreamError:
            return None
        return deleted_records(self.replay, known.oldest)

    def _process_part(self, reader: Reader, target: Target) -> None:
        while not (rate := self._rate()):
            time.sleep(0.1)
        started, done = time.monotonic(), self.replay.done
        until = portion(done, self.replay.ends, max(1, min(self._tier.max_offsets, int(rate * PART_SECONDS))))
        rows, records = reader.rows(done, until)
        part = Part(rows, records, self.replay.at(until), lambda whole: reader.rows(done, until, whole)[0])
        target.put(part, self._rate)
        self.replay = part.after
        taken = sum(until.values()) - sum(done.values())
        while self.replay.left and time.monotonic() < started + taken / max(self._rate(), 0.01):
            time.sleep(0.02)

    def _rate(self) -> float:
        """Return the current pace (records per second); save and print the progress when due.

        Raise StoppedError after a signal, and the exception of a failed watch.
        """
        if self._stop.is_set():
            raise StoppedError
        if self._watch.failure is not None:
            raise self._watch.failure
        now, pace = time.monotonic(), self._pace
        if now > self._saved_at + SAVE_SECONDS:
            self._saved_at = now
            self._book.save_pace(self.replay, pace.rate, pace.sentence)
        if now > self._shown_at + SHOW_SECONDS and not self._quiet:
            self._shown_at = now
            counts = self._book.counts(self.replay)
            sys.stderr.write(f"  {progress(self.replay, counts, pace.rate, pace.sentence)}\n")
        return pace.rate

    def _quarantined(self) -> frozenset[str]:
        """Return the places of records that the tier put into quarantine.

        Only `--quarantine` reprocesses these records. A replay of their stream would send them
        along a second path, and they would count twice.
        """
        known = self._streams.bounds([stream.quarantine for stream in self._tier.inputs])
        records = self._streams.read(
            {topic_and_number(place): offset for place, offset in known.oldest.items()}, known.ends
        )
        own = (seen.out for seen in records if seen.out.tier.partition(REPLAY)[0] == self._tier.name)
        return frozenset(f"{out.partition}:{out.offset}" for out in own)


def progress(replay: Replay, counts: Counts, pace: float, sentence: str) -> str:
    """Return one line with the counts, the remaining records and the remaining time."""
    remaining = f", about {replay.left / pace:.0f} s at {pace:.0f}/s" if pace else ""
    quarantined = f", {counts.quarantined} in quarantine" if counts.quarantined else ""
    reason = f"; the replay {sentence}" if sentence else ""
    return (
        f"{counts.rows_out} written, {counts.replays} dropped as duplicates{quarantined}; "
        f"{replay.left} left{remaining}{reason}"
    )
