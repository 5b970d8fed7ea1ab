"""The life of a replay's process: part by part, at the pace that live records bear, until all is done or it is told to stop."""

import sys
import threading
import time

from sluice.api.declarations import Pipeline, Tier
from sluice.api.origins import REPLAY
from sluice.driver.engine.intake import portion
from sluice.failures import error_text
from sluice.kafka.reader import StreamError, Streams, split
from sluice.replay.book import Book, BrokenOffError, Replay, ReplayError, gone
from sluice.replay.live_records import Watch
from sluice.replay.pace import Pace
from sluice.replay.reader import Reader
from sluice.replay.target import Part, Target, into
from sluice.sinks.ledger import Counts
from sluice_ops.model.access import Role
from sluice_ops.model.routing_epochs import Ways
from sluice_ops.site import endpoints

PART_SECONDS = 2.0
"""So much of its pace is one part: what is read by one job of Spark, and put twice when it is killed."""
SAY_SECONDS = 1.0
SHOW_SECONDS = 5.0


class StoppedError(Exception):
    """It was told to stop in the middle of a part."""


class Player:
    """Plays one replay."""

    def __init__(  # noqa: PLR0913, PLR0917 — what one replay is
        self,
        where: endpoints.Endpoints,
        kafka: str,
        pipeline: Pipeline,
        tier: Tier,
        book: Book,
        replay: Replay,
        ways: Ways | None,
    ) -> None:
        """Prepare; nothing is started yet."""
        self._where, self._kafka, self._tier, self._book, self.replay = where, kafka, tier, book, replay
        self._ways = ways
        self._streams = Streams(kafka)
        self._pace = Pace(replay.rate)
        self._watch = Watch(kafka, where.postgres_as(Role.OPERATOR), pipeline, self._pace)
        self._stop = threading.Event()
        self._quiet = False
        self._said = self._shown = 0.0

    def play(self, stop: threading.Event, *, quiet: bool) -> None:
        """Take all that is left through the tier, or what can be until `stop`; a part that is not done then is done by who goes on."""
        self._stop, self._quiet = stop, quiet
        where, kafka, replay = self._where, self._kafka, self.replay
        reader = Reader(kafka, where.home, self._tier, replay, self._streams, self._ways)
        target = into(
            kafka,
            where.postgres_as(Role.OPERATOR),
            self._tier,
            replay,
            self._book,
            frozenset() if replay.quarantined else self._bad(),
        )
        self._watch.start()
        try:
            while self.replay.left:
                self._part(reader, target)
        except StoppedError:
            pass
        except (ReplayError, BrokenOffError):
            raise
        except Exception as error:
            if not stop.is_set():  # Ctrl-C ends Spark's JVM too
                if lost := self._gone():
                    raise ReplayError(lost) from error
                message = f"{error_text(error)}\nNothing is lost: go on with `sluice replay --resume {replay.number}`"
                raise BrokenOffError(message) from error
        finally:
            self._watch.end()
            target.close()

    def _gone(self) -> str | None:
        """Say what of its records is not there any more, as far as Kafka tells."""
        try:
            known = self._streams.bounds(sorted({split(place)[0] for place in self.replay.ends}))
        except StreamError:
            return None
        return gone(self.replay, known.oldest)

    def _part(self, reader: Reader, target: Target) -> None:
        while not (rate := self._rate()):
            time.sleep(0.1)
        begun, done = time.monotonic(), self.replay.done
        until = portion(done, self.replay.ends, max(1, min(self._tier.max_offsets, int(rate * PART_SECONDS))))
        rows, records = reader.rows(done, until)
        part = Part(rows, records, self.replay.at(until), lambda whole: reader.rows(done, until, whole)[0])
        target.put(part, self._rate)
        self.replay = part.after
        taken = sum(until.values()) - sum(done.values())
        while self.replay.left and time.monotonic() < begun + taken / max(self._rate(), 0.01):
            time.sleep(0.02)

    def _rate(self) -> float:
        """Return the pace now; say now and then how it is doing, and stop when told to."""
        if self._stop.is_set():
            raise StoppedError
        if self._watch.failure is not None:
            raise self._watch.failure
        now, pace = time.monotonic(), self._pace
        if now > self._said + SAY_SECONDS:
            self._said = now
            self._book.say(self.replay, pace.rate, pace.sentence)
        if now > self._shown + SHOW_SECONDS and not self._quiet:
            self._shown = now
            counts = self._book.counts(self.replay)
            sys.stderr.write(f"  {progress(self.replay, counts, pace.rate, pace.sentence)}\n")
        return pace.rate

    def _bad(self) -> frozenset[str]:
        """Return the places of those records that the tier has put into quarantine: they are taken up from there only.

        With others of their stream they would be new on a second way, and be counted twice.
        """
        known = self._streams.bounds([stream.quarantine for stream in self._tier.inputs])
        put = self._streams.read({split(place): offset for place, offset in known.oldest.items()}, known.ends)
        mine = (seen.out for seen in put if seen.out.tier.partition(REPLAY)[0] == self._tier.name)
        return frozenset(f"{out.partition}:{out.offset}" for out in mine)


def progress(replay: Replay, counts: Counts, pace: float, sentence: str) -> str:
    """Say how far it is and when it will be done."""
    about = f", about {replay.left / pace:.0f} s at {pace:.0f}/s" if pace else ""
    aside = f", {counts.quarantined} in quarantine" if counts.quarantined else ""
    why = f"; it {sentence}" if sentence else ""
    return f"{counts.rows_out} put, {counts.replays} dropped{aside}; {replay.left} left{about}{why}"
