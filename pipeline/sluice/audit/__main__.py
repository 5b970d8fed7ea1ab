"""`python -m sluice.audit`: look at every tier every few seconds, and say at once what is lost.

Environment: SLUICE_HOME, SLUICE_ENDPOINTS, SLUICE_SITE; SLUICE_HOST_ADDRESS, where it serves its figures (127.0.0.1 if not set).
It audits the tiers that were published last, whichever site file published them, and restarts when a pipeline is published.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psycopg
import structlog
from confluent_kafka import KafkaException

from sluice import published, releases
from sluice.api import declarations
from sluice.api.declarations import Tier
from sluice.audit import retention, trail_archive
from sluice.audit.audit_metrics import AuditMetrics
from sluice.audit.book import Book, Missing
from sluice.audit.fold import fold
from sluice.audit.frontier import Frontier
from sluice.audit.stream_audit import StreamAudit
from sluice.audit.table_audit import TableAudit
from sluice.kafka.reader import NoStreamError, StreamError, Streams, topic_and_number
from sluice.kafka.stream_identity import Identities, epochs_of
from sluice_ops.channel import Channel, ChannelAwayError, ConflictError
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.exporter import Exporter
from sluice_ops.model.kafka_access import User
from sluice_ops.model.release import Release
from sluice_ops.model.status import Loss
from sluice_ops.process import metrics_server
from sluice_ops.site import endpoints, site_file

log = structlog.get_logger()

EVERY_SECONDS = 5.0
FOLD_SECONDS = 3600.0
"""Between two looks for what of the ledger is old enough to be folded; days that wait are folded one with each look at the tiers."""


class Auditor:
    """Looks at all tiers of a pipeline, each with what it needs; one that cannot be looked at does not keep the others from it."""

    def __init__(self, tiers: tuple[Tier, ...], where: endpoints.Endpoints) -> None:
        """Prepare; nothing is asked yet."""
        self._tiers = tiers
        self._where = where
        self._streams = Streams(where.kafka_as(User.AUDIT))
        self._arriving = Streams(where.kafka_as(User.AUDIT), committed=False)
        self._identities = Identities(where.kafka_as(User.AUDIT))
        self._book = Book(where.postgres_as(Role.AUDIT))
        self._audits: dict[str, StreamAudit | TableAudit] = {}
        self._frontiers: dict[str, Frontier] = {}
        self._writers = {stream.name: tier.name for tier in tiers for stream in tier.outputs}
        self._away: set[str] = set()
        self._fold_at = 0.0
        self._forget_at = 0.0
        self._channel: Channel | None = None
        self._losses_in_channel: dict[str, Loss] | None = None
        self._untold = False
        self.metrics = AuditMetrics()

    def look(self) -> list[Missing]:
        """Look at each tier once; return what was lost."""
        lost: list[Missing] = []
        self._streams.renew()
        self._arriving.renew()
        try:
            lost += self._streams_made_anew()
            lost += self._partitions_cut_back()
        except (psycopg.Error, StreamError, KafkaException) as error:
            log.warning(
                "whether streams were made anew or cut back is looked up later",
                reason=str(error).splitlines()[0],
            )
        for tier in self._tiers:
            try:
                if tier.name not in self._audits:
                    kind = StreamAudit if tier.outputs else TableAudit
                    self._audits[tier.name] = kind(tier, self._streams, self._book)
                missing = self._audits[tier.name].look()
                self._advance(tier)
            except (psycopg.Error, StreamError, KafkaException) as error:
                self._again(tier.name, str(error).splitlines()[0])
                continue
            self.metrics.looked = {**self.metrics.looked, tier.name: time.time()}
            if tier.name in self._away:
                self._away.discard(tier.name)
                log.info("the audit goes on", tier=tier.name)
            for each in missing:
                log.error("records are lost", tier=tier.name, what=each.sentence)
            lost += missing
        frontiers = self._frontiers.items()
        self.metrics.complete = {
            name: frontier.complete for name, frontier in frontiers if frontier.complete is not None
        }
        return lost

    def _streams_made_anew(self) -> list[Missing]:
        """Look whether streams are others than at the last look; what is known of places in the one before is of no account then."""
        lost: list[Missing] = []
        known = self._book.streams()
        for stream in self._names():
            try:
                identity = self._identities.of([stream]).get(stream)
            except NoStreamError:
                continue  # who reads it says so
            if identity is None or known.get(stream) == identity:
                continue
            told = {} if stream not in known else self._lost_with(stream)
            self._book.name(stream, identity, told)
            if told:
                self._audits.clear()  # they read anew what is remembered
                self._frontiers.clear()
            for tier, missing in told.items():
                log.error("a stream was made anew", tier=tier, what=missing.sentence)
                lost.append(missing)
        return lost

    def _partitions_cut_back(self) -> list[Missing]:
        """Look whether a broker has lost what partitions held at the last look; what is known of places in them is of no account then."""
        places: list[str] = []
        for stream in self._names():
            with suppress(NoStreamError):
                places += self._streams.places([stream])
        known, now = self._book.ends(), self._identities.ends(self._identities.ask_ends(places))
        before = {place: end for place, (end, _) in known.items() if place in now}
        cut = self._identities.cut(before, epochs_of(known), epochs_of(now))
        told: dict[str, list[Missing]] = {}
        for place, at in sorted(cut.items()):
            for tier, missing in self._cut_off(place, at, *known[place]).items():
                log.error("a stream was cut back", tier=tier, what=missing.sentence)
                told.setdefault(tier, []).append(missing)
        self._book.reach({place: seen for place, seen in now.items() if known.get(place) != seen}, cut, told)
        if cut:
            self._audits.clear()
            self._frontiers.clear()
        return [missing for each in told.values() for missing in each]

    def _cut_off(self, place: str, at: int, end: int, epoch: int) -> dict[str, Missing]:
        """Say of each tier that reads a partition, or else of who writes it, what was lost with its records from offset `at` on."""
        told: dict[str, Missing] = {}
        for tier, done in self._done_in(topic_and_number(place)[0]):
            first = max(at, done.get(place, 0))
            count = max(0, end - first)
            sentence = (
                f"{place} was cut back from offset {end} to {at}: a broker lost records that it had acknowledged; all before offset "
                f"{first} had come out of {tier}, and at least {count} more are lost"
            )
            told[tier] = Missing(
                f"{place}@{epoch}:{first}", count, sentence
            )  # the epoch tells it from what has these offsets now
        return told

    def _names(self) -> list[str]:
        return sorted(
            {
                name
                for tier in self._tiers
                for name in (*tier.written, *(stream.name for stream in tier.inputs))
            }
        )

    def _done_in(self, stream: str) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield the tiers that read a stream, or else those that write it, each with the offsets before which all has come out."""
        readers = [tier for tier in self._tiers if stream in {each.name for each in tier.inputs}]
        for tier in readers or [tier for tier in self._tiers if stream in tier.written]:
            yield (
                tier.name,
                self._audits[tier.name].done()
                if tier.name in self._audits
                else self._book.load(tier.name).judged,
            )

    def _lost_with(self, stream: str) -> dict[str, Missing]:
        """Say of each tier that reads a stream, or else of who writes it, what nobody knows now that it is another one."""
        told: dict[str, Missing] = {}
        for tier, done in self._done_in(stream):
            upto = ", ".join(
                f"{place} up to {offset}"
                for place, offset in sorted(done.items())
                if topic_and_number(place)[0] == stream
            )
            sentence = (
                f"{stream} was deleted and made anew, or is another cluster's; of the one before, the audit has seen come out of "
                f"{tier}: {upto or 'nothing'}; how many records were behind that, nobody knows"
            )
            told[tier] = Missing(f"{stream}/0:0", 0, sentence)
        return told

    def _advance(self, tier: Tier) -> None:
        """Move the time up to which the tier is complete; of a stream that leads back nobody knows when a round is the last."""
        if any(stream.rounds for stream in tier.inputs):
            return
        if tier.name not in self._frontiers:
            self._frontiers[tier.name] = Frontier(self._book.complete(tier.name))
        frontier = self._frontiers[tier.name]
        before = frontier.complete
        frontier.passed(self._audits[tier.name].done())
        if frontier.complete is not None and frontier.complete != before:
            self._book.save_complete(tier.name, frontier.complete)
        given = [self._complete(stream.name) for stream in tier.inputs]
        arrival_times = [moment for moment in given if moment is not None]
        if len(arrival_times) == len(given):
            # what a sender has not committed yet has arrived, too
            frontier.mark(
                min(arrival_times), self._arriving.bounds([stream.name for stream in tier.inputs]).ends
            )

    def fold(self) -> None:
        """Fold a day of each tier's ledger that is old enough; where there is none, look again later."""
        if time.monotonic() < self._fold_at:
            return
        try:
            fewer = sum(fold(self._book.open(), tier.name) for tier in self._tiers if tier.sink is not None)
        except psycopg.Error as error:
            log.warning("the ledger is folded later", reason=str(error).splitlines()[0])
            fewer = 0
        self._fold_at = time.monotonic() + (0.0 if fewer else FOLD_SECONDS)

    def forget(self) -> None:
        """Delete what is older than it is kept, once an hour."""
        if time.monotonic() < self._forget_at:
            return
        try:
            if count := retention.forget(self._book.open()):
                log.info("what is older than it is kept was deleted", rows=count)
        except psycopg.Error as error:
            log.warning("what is older than it is kept is deleted later", reason=str(error).splitlines()[0])
        self._forget_at = time.monotonic() + retention.EVERY_SECONDS

    def _complete(self, stream: str) -> float | None:
        """Return up to which time of arrival a stream has everything; a stream from outside has it now."""
        writer = self._writers.get(stream)
        if writer is None:
            return time.time()
        return self._frontiers[writer].complete if writer in self._frontiers else None

    def tell(self) -> None:
        """Keep each tier's last loss in the channel until it is settled: the task that supervises the tier alerts."""
        try:
            if self._channel is None:
                self._channel = Channel(self._where.zookeeper, self._where.needed(Role.AUDIT)).start(
                    seconds=EVERY_SECONDS
                )
                address = os.environ.get("SLUICE_HOST_ADDRESS", "127.0.0.1")
                metrics_server.serve(
                    self._channel, Exporter(role=Role.AUDIT, address=f"{address}:0"), self.metrics
                )
            if self._losses_in_channel is None:
                for gone in self._book.forget([tier.name for tier in self._tiers]):
                    log.info("the audit forgets a tier that is not declared any more", tier=gone)
                read = {tier.name: self._channel.read(paths.loss(tier.name), Loss) for tier in self._tiers}
                self._losses_in_channel = {
                    tier: loss.value for tier, loss in read.items() if loss is not None
                }
            trail_archive.move(self._channel, self._book.open())
            losses = self._book.losses()
            for tier in self._tiers:
                loss = losses.get(tier.name)
                if loss == self._losses_in_channel.get(tier.name):
                    continue
                if loss is None:
                    self._channel.delete(paths.loss(tier.name))
                else:
                    self._channel.put(paths.loss(tier.name), loss)
            self._losses_in_channel = losses
            self.metrics.lost = {tier.name: tier.name in losses for tier in self._tiers}
            self._untold = False
        except (psycopg.Error, ChannelAwayError, ConflictError) as error:
            if not self._untold:
                log.warning("what was found is told a little later", reason=str(error).splitlines()[0])
            self._untold = True

    def close(self) -> None:
        """Give the connections back."""
        if self._channel is not None:
            self._channel.stop()
        self._streams.close()
        self._arriving.close()
        self._book.close()

    def _again(self, tier: str, reason: str) -> None:
        """Begin again from the book at the next look, for what was read by halves is judged by halves."""
        self._audits.pop(tier, None)
        if tier not in self._away:
            log.warning("the audit waits; data is not affected", tier=tier, reason=reason)
        self._away.add(tier)


def tiers_to_audit(home: Path, release_of: Callable[[str], Release | None]) -> tuple[Tier, ...]:
    """Return the tiers that were published last, of whichever site file; without a release those of this site's pipeline.

    `release_of` tells what the channel says of a release, by whose digest its code is imported.
    """
    name = published.release()
    if name is not None:
        return releases.load(home, name, release_of(name)).tiers
    return declarations.load(site_file.load(Path(os.environ.get("SLUICE_SITE", "site.yaml"))).pipeline).tiers


def _release_in_channel(where: endpoints.Endpoints, name: str) -> Release | None:
    with Channel(where.zookeeper, where.credential(Role.AUDIT)) as channel:
        read = channel.read(paths.release(name), Release)
    return None if read is None else read.value


def main() -> int:
    """Look until told to end."""
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    try:
        begun = published.changed_at()
        where = endpoints.load()
        where.needed(Role.AUDIT)
        auditor = Auditor(tiers_to_audit(where.home, partial(_release_in_channel, where)), where)
    except (
        site_file.SiteError,
        declarations.DeclarationError,
        endpoints.EndpointsError,
        FileNotFoundError,
        releases.ChangedError,
        ChannelAwayError,
    ) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    while not over.wait(EVERY_SECONDS):
        auditor.look()
        auditor.tell()
        auditor.fold()
        auditor.forget()
        if published.changed_at() != begun:
            log.info("a pipeline was published; the audit starts again with its tiers")
            auditor.close()
            os.execv(sys.executable, [sys.executable, "-m", "sluice.audit"])  # noqa: S606 — the same program, with what is declared now
    auditor.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
