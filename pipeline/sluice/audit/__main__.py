"""`python -m sluice.audit`: check every tier every few seconds, and report lost records at once.

Environment: SLUICE_HOME, SLUICE_ENDPOINTS, SLUICE_SITE, and SLUICE_HOST_ADDRESS, the address of
the metrics (127.0.0.1 if not set). The audit checks the tiers that were published last, from
whichever site file, and restarts when a pipeline is published.
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
from sluice.audit.frontier import Frontier, Loop, loops
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
from sluice_ops.process.logs import configure_logs
from sluice_ops.site import endpoints, project, site_file

log = structlog.get_logger()

EVERY_SECONDS = 5.0
FOLD_SECONDS = 3600.0
"""The time between two searches for old days in the ledger.

If more old days wait, each check of the tiers folds one.
"""


class Auditor:
    """Checks all tiers of a pipeline; a tier that cannot be checked does not stop the others."""

    def __init__(self, tiers: tuple[Tier, ...], where: endpoints.Endpoints) -> None:
        """Prepare; nothing is read or connected yet."""
        self._tiers = tiers
        self._where = where
        self._streams = Streams(where.kafka_as(User.AUDIT))
        self._arriving = Streams(where.kafka_as(User.AUDIT), committed=False)
        self._identities = Identities(where.kafka_as(User.AUDIT))
        self._book = Book(where.postgres_as(Role.AUDIT))
        self._audits: dict[str, StreamAudit | TableAudit] = {}
        self._loops = loops(tiers)
        self._frontiers: dict[str, Frontier] = {}
        """By tier; all tiers of a loop have the same."""
        self._writers = {
            stream.name: tier.name for tier in tiers for stream in tier.outputs if tier.state is None
        }
        self._failing: set[str] = set()
        self._fold_at = 0.0
        self._delete_at = 0.0
        self._channel: Channel | None = None
        self._losses_in_channel: dict[str, Loss] | None = None
        self._is_report_late = False
        self.metrics = AuditMetrics()

    def check(self) -> list[Missing]:
        """Check each tier once; return the newly lost records."""
        lost: list[Missing] = []
        self._streams.renew()
        self._arriving.renew()
        try:
            lost += self._recreated_streams()
            lost += self._cut_partitions()
        except (psycopg.Error, StreamError, KafkaException) as error:
            log.warning(
                "cannot check whether streams were recreated or cut back; the audit retries within seconds",
                reason=str(error).splitlines()[0],
            )
        for tier in self._tiers:
            try:
                if tier.name not in self._audits:
                    kind = StreamAudit if tier.sink is None else TableAudit
                    self._audits[tier.name] = kind(tier, self._streams, self._book)
                missing = self._audits[tier.name].check()
            except (psycopg.Error, StreamError, KafkaException) as error:
                self._restart_from_book(tier.name, str(error).splitlines()[0])
                continue
            self.metrics.looked = {**self.metrics.looked, tier.name: time.time()}
            if tier.name in self._failing:
                self._failing.discard(tier.name)
                log.info("the audit checks the tier again", tier=tier.name)
            for loss in missing:
                log.error(
                    "records are lost; list all losses with `sluice audit`",
                    tier=tier.name,
                    what=loss.sentence,
                )
            lost += missing
        for loop in self._loops:
            self._try_to_advance(loop)
        frontiers = self._frontiers.items()
        self.metrics.complete = {
            name: frontier.complete for name, frontier in frontiers if frontier.complete is not None
        }
        return lost

    def _recreated_streams(self) -> list[Missing]:
        """Find streams that were recreated since the last check, and return the losses.

        The saved positions in the old stream are dropped.
        """
        lost: list[Missing] = []
        known = self._book.streams()
        for stream in self._stream_names():
            try:
                identity = self._identities.of([stream]).get(stream)
            except NoStreamError:
                continue  # the check of the stream's readers reports this
            if identity is None or known.get(stream) == identity:
                continue
            losses = {} if stream not in known else self._lost_with(stream)
            self._book.save_stream(stream, identity, losses)
            if losses:
                # the audits load the book again
                self._audits.clear()
                self._frontiers.clear()
            for tier, missing in losses.items():
                log.error("a stream was recreated", tier=tier, what=missing.sentence)
                lost.append(missing)
        return lost

    def _cut_partitions(self) -> list[Missing]:
        """Find partitions of which a broker lost records since the last check; return the losses.

        The saved positions in these partitions are dropped.
        """
        places: list[str] = []
        for stream in self._stream_names():
            with suppress(NoStreamError):
                places += self._streams.places([stream])
        known, now = self._book.ends(), self._identities.ends(self._identities.ask_ends(places))
        before = {place: end for place, (end, _) in known.items() if place in now}
        cut = self._identities.cut(before, epochs_of(known), epochs_of(now))
        losses: dict[str, list[Missing]] = {}
        for place, at in sorted(cut.items()):
            for tier, missing in self._lost_by_cut(place, at, *known[place]).items():
                log.error("a stream was cut back", tier=tier, what=missing.sentence)
                losses.setdefault(tier, []).append(missing)
        changed = {place: end for place, end in now.items() if known.get(place) != end}
        self._book.save_ends(changed, cut, losses)
        if cut:
            self._audits.clear()
            self._frontiers.clear()
        return [missing for of_tier in losses.values() for missing in of_tier]

    def _lost_by_cut(self, place: str, at: int, end: int, epoch: int) -> dict[str, Missing]:
        """Return, by tier, the loss of a partition's records from offset `at` to `end`.

        The tiers are the partition's readers, or its writer if no tier reads it.
        """
        losses: dict[str, Missing] = {}
        for tier, done in self._done_in(topic_and_number(place)[0]):
            first = max(at, done.get(place, 0))
            count = max(0, end - first)
            sentence = (
                f"{place} was cut back from offset {end} to {at}: a broker lost records that it had "
                f"acknowledged; all records before offset {first} had come out of {tier}, "
                f"and at least {count} more are lost"
            )
            # the epoch distinguishes these offsets from the same offsets of new records
            losses[tier] = Missing(f"{place}@{epoch}:{first}", count, sentence)
        return losses

    def _stream_names(self) -> list[str]:
        return sorted(
            {
                name
                for tier in self._tiers
                for name in (*tier.written, *(stream.name for stream in tier.inputs))
            }
        )

    def _done_in(self, stream: str) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield the readers of a stream, or its writers if no tier reads it.

        Each comes with the offsets before which all records have come out.
        """
        readers = [tier for tier in self._tiers if stream in {source.name for source in tier.inputs}]
        for tier in readers or [tier for tier in self._tiers if stream in tier.written]:
            yield (
                tier.name,
                self._audits[tier.name].done()
                if tier.name in self._audits
                else self._book.load(tier.name).judged,
            )

    def _lost_with(self, stream: str) -> dict[str, Missing]:
        """Return, by tier, the loss of an unknown number of records with a recreated stream."""
        losses: dict[str, Missing] = {}
        for tier, done in self._done_in(stream):
            upto = ", ".join(
                f"{place} up to {offset}"
                for place, offset in sorted(done.items())
                if topic_and_number(place)[0] == stream
            )
            sentence = (
                f"{stream} was deleted and recreated, or belongs to another cluster; of the old stream, "
                f"the audit knows that these records came out of {tier}: {upto or 'none'}; "
                "the number of records after them is unknown"
            )
            losses[tier] = Missing(f"{stream}/0:0", 0, sentence)
        return losses

    def _try_to_advance(self, loop: Loop) -> None:
        names = [tier.name for tier in loop.tiers]
        if not loop.is_known or not self._audits.keys() >= set(names):
            return
        try:
            self._advance(loop)
        except (psycopg.Error, StreamError, KafkaException) as error:
            for name in names:
                self._restart_from_book(name, str(error).splitlines()[0])

    def _advance(self, loop: Loop) -> None:
        """Advance the time up to which the tiers of a loop are complete."""
        names = [tier.name for tier in loop.tiers]
        if names[0] not in self._frontiers:
            saved = [self._book.complete(name) for name in names]
            complete = min((moment for moment in saved if moment is not None), default=None)
            frontier = Frontier(None if None in saved else complete, loop.turns)
            self._frontiers |= dict.fromkeys(names, frontier)
        frontier = self._frontiers[names[0]]
        # one stream may have several readers
        done = {
            f"{name} {place}": offset for name in names for place, offset in self._audits[name].done().items()
        }
        inputs = {tier.name: [stream.name for stream in tier.inputs] for tier in loop.tiers}
        outside = {name for read in inputs.values() for name in read if self._writers.get(name) not in names}
        complete_times = [self._complete(name) for name in outside]
        arrival_times = [moment for moment in complete_times if moment is not None]
        # records of open transactions have arrived, too
        ends = {
            f"{name} {place}": end
            for name, read in inputs.items()
            for place, end in self._arriving.bounds(read).ends.items()
        }
        before = frontier.complete
        frontier.passed(done, ends)
        if frontier.complete is not None and frontier.complete != before:
            for tier in loop.tiers:
                by_event_time = tier.state is not None and tier.state.time is not None
                lateness = tier.state.lateness if tier.state is not None and by_event_time else None
                self._book.save_complete(tier.name, frontier.complete, lateness)
        if arrival_times and len(arrival_times) == len(complete_times):
            frontier.mark(min(arrival_times), ends)

    def fold(self) -> None:
        """Fold one old day of each tier's ledger; without old days, search again after an hour."""
        if time.monotonic() < self._fold_at:
            return
        try:
            fewer = sum(fold(self._book.open(), tier.name) for tier in self._tiers if tier.sink is not None)
        except psycopg.Error as error:
            log.warning(
                "the ledger could not be folded; the audit tries again in an hour",
                reason=str(error).splitlines()[0],
            )
            fewer = 0
        self._fold_at = time.monotonic() + (0.0 if fewer else FOLD_SECONDS)

    def delete_expired(self) -> None:
        """Delete rows that are older than their retention, once an hour."""
        if time.monotonic() < self._delete_at:
            return
        try:
            if count := retention.delete_expired(self._book.open()):
                log.info("rows older than their retention were deleted", rows=count)
        except psycopg.Error as error:
            log.warning(
                "rows older than their retention could not be deleted; the audit tries again in an hour",
                reason=str(error).splitlines()[0],
            )
        self._delete_at = time.monotonic() + retention.EVERY_SECONDS

    def _complete(self, stream: str) -> float | None:
        """Return the time of arrival up to which a stream is complete (epoch seconds), or None.

        A stream from outside is complete up to now. So is that of a tier with state, whose records
        arrive when they are written.
        """
        writer = self._writers.get(stream)
        if writer is None:
            return time.time()
        return self._frontiers[writer].complete if writer in self._frontiers else None

    def report(self) -> None:
        """Write each tier's last loss to the channel until the loss is settled.

        The Airflow task that watches the tier alerts.
        """
        try:
            if self._channel is None:
                self._channel = Channel(
                    self._where.zookeeper, self._where.required_credential(Role.AUDIT)
                ).start(seconds=EVERY_SECONDS)
                address = os.environ.get("SLUICE_HOST_ADDRESS", "127.0.0.1")
                metrics_server.serve(
                    self._channel, Exporter(role=Role.AUDIT, address=f"{address}:0"), self.metrics
                )
            if self._losses_in_channel is None:
                for name in self._book.drop_undeclared([tier.name for tier in self._tiers]):
                    log.info("a tier is no longer declared; the audit dropped its results", tier=name)
                nodes = {tier.name: self._channel.read(paths.loss(tier.name), Loss) for tier in self._tiers}
                self._losses_in_channel = {
                    tier: node.value for tier, node in nodes.items() if node is not None
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
            self._is_report_late = False
        except (psycopg.Error, ChannelAwayError, ConflictError) as error:
            if not self._is_report_late:
                log.warning(
                    "the results cannot be written to the channel; the audit retries within seconds",
                    reason=str(error).splitlines()[0],
                )
            self._is_report_late = True

    def close(self) -> None:
        if self._channel is not None:
            self._channel.stop()
        self._streams.close()
        self._arriving.close()
        self._book.close()

    def _restart_from_book(self, tier: str, reason: str) -> None:
        """Make the next check start from the book: this check read a part of the records only."""
        self._audits.pop(tier, None)
        if tier not in self._failing:
            log.warning(
                "the audit cannot check the tier; the tier continues, and the audit retries within seconds",
                tier=tier,
                reason=reason,
            )
        self._failing.add(tier)


def tiers_to_audit(home: Path, release_of: Callable[[str], Release | None]) -> tuple[Tier, ...]:
    """Return the tiers that were published last; without a release, those of the site's pipeline.

    `release_of` returns a release from the channel. The code is imported only if its digest is
    the release's.
    """
    name = published.release()
    if name is not None:
        return releases.load(home, name, release_of(name)).pipeline.tiers
    return declarations.load(site_file.load(project.site_path()).pipeline).tiers


def _release_in_channel(where: endpoints.Endpoints, name: str) -> Release | None:
    with Channel(where.zookeeper, where.credential(Role.AUDIT)) as channel:
        node = channel.read(paths.release(name), Release)
    return None if node is None else node.value


def main() -> int:
    """Check the tiers until a signal; return the exit code."""
    configure_logs()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        published_at = published.changed_at()
        where = endpoints.load()
        where.required_credential(Role.AUDIT)
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
    while not stop.wait(EVERY_SECONDS):
        auditor.check()
        auditor.report()
        auditor.fold()
        auditor.delete_expired()
        if published.changed_at() != published_at:
            log.info("a pipeline was published; the audit restarts with its tiers")
            auditor.close()
            releases.remove_own_folders()
            os.execv(sys.executable, [sys.executable, "-m", "sluice.audit"])  # noqa: S606 — itself
    auditor.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
