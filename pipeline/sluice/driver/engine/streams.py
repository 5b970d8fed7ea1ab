"""The engine of a tier that writes streams: each run starts, on a checkpoint of its own, where its
output tells (decision 2).
"""

import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from sluice.driver.control.restarts import Restarts
from sluice.driver.control.wait_for_services import is_away, restart, restart_or_raise
from sluice.driver.engine.contract import Control, Engine
from sluice.driver.engine.handover_watch import HandoverWatch, InitialRead
from sluice.driver.engine.intake import Intake, portion
from sluice.driver.engine.kafka_sink import (
    batch_minutes,
    install_guard,
    output_rows,
    sink_options,
    start_query,
)
from sluice.driver.engine.offsets import read_between, read_inputs
from sluice.driver.engine.partition_growth import PartitionGrowth
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.engine.start_place import Start, StartPlace
from sluice.driver.engine.warm_up import WarmUp, first_partitions, warm_up_streams
from sluice.driver.positions.realtime_progress import EVERY_SECONDS, RealtimeProgress
from sluice.driver.spark.queries import is_idle, plan
from sluice.driver.spark.session import EXECUTORS_SECONDS, NoExecutorError, missing
from sluice.driver.spark.slots import has_job, reading, records_read, why_gone
from sluice.driver.state.checkpoint_disk import require_room
from sluice.driver.state.checkpoint_store import Folder
from sluice.driver.state.offset_log import ends
from sluice.failures import error_text
from sluice.kafka.output_tail import OutputTail
from sluice.kafka.positions import RENAME_STREAM, RecordsGoneError
from sluice.kafka.stream_identity import SameStreams, Watch
from sluice.kafka.truncation import Confirmed, Logs
from sluice.records import lineage
from sluice.sinks.fence import FencedError
from sluice_ops.model.ids import UnitId
from sluice_ops.model.incarnation import Receipt
from sluice_ops.model.routing_epochs import RoutingEpochs
from sluice_ops.model.tier import Mode

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress

log = structlog.get_logger()

PLANNED_SECONDS = 5.0
"""The longest time that an ending query waits until Spark has planned the next one.

It writes meanwhile. Half a second is enough, except on a busy machine.
"""
ENDED_SECONDS = 1.0
"""The longest wait for the end of stopped tasks before tasks of the next query start."""
LAST_SECONDS = 10.0
"""The same wait where stopped tasks must not write any more."""
EARLY_SECONDS = 60.0
"""The next run takes over this long before a realtime batch ends."""
MOST_AGAIN = 10_000
"""The most records that it may read again for that (decision 113)."""


def make_run_folder(checkpoints: Path, incarnation: int, number: int = 0) -> tuple[Path, int]:
    """Make the folder of a run, and return its number: the first from `number` on that no process
    of the incarnation used.
    """
    while True:
        folder = checkpoints / f"{incarnation}.{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder, number


def drop_runs(checkpoints: Path, incarnation: int, number: int, *, earlier: bool) -> None:
    """Remove the folders of an incarnation's runs before `number`; with `earlier`, also those of
    killed earlier incarnations.
    """
    for folder in checkpoints.glob("[0-9]*.[0-9]*"):
        owner, _, run = folder.name.partition(".")
        if (owner == str(incarnation) and int(run) < number) or (earlier and int(owner) < incarnation):
            shutil.rmtree(folder, ignore_errors=True)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """Return once the condition holds, or after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


class StreamsEngine(Engine):
    """Writes streams: one record after the other in milliseconds, or in micro-batches."""

    def __init__(self, config: EngineConfig, control: Control) -> None:
        """Prepare; nothing runs yet."""
        self._config, self._control = config, control
        self._guard = install_guard(config.session)
        self._tail = OutputTail(config.tier, config.streams)
        self._query: StreamingQuery | None = None
        self._handover: HandoverWatch | None = None
        self._executors: frozenset[str] = frozenset()
        """The executors that had tasks of the query when it began."""
        self._paused: frozenset[UnitId] = frozenset()
        """The workers that were paused then."""
        self._warm_up: WarmUp | None = None
        """The warm-up of executors that have come since the query began."""
        self._committed_then = -1
        """The last batch that was committed when this warm-up began."""
        self._level = False
        """Whether the query has caught up since it began, as far as this was asked."""
        self._own_starts: list[dict[str, int]] = []
        """Where earlier runs of this process began."""
        self._restarts = Restarts(limit=5, seconds=60.0, first_wait=0.2)
        self._run = -1
        self._begins: dict[str, int] = {}
        self._initial_read = InitialRead({}, {})
        self._reached = RealtimeProgress(time.monotonic)
        self._batch_ends = math.inf
        """When the realtime batch ends. Unit: seconds of the monotonic clock."""
        self._settled = 0.0
        """When the ends of batches, or of metered jobs, were last checked."""
        self._metered: dict[str, int] | None = None
        """While the tier is throttled, or catches up after it: the positions before which all
        output is complete. No query runs then; metered jobs let records in. None while the query
        flows.
        """
        self._news: dict[str, int] = {}
        """Positions before which output was complete when the query began again, until they are
        reported.
        """
        self._confirmed = Confirmed()
        self._by = ""
        """The run's name in its records:

        `tier/incarnation`, and `.run` after a restart in place.
        """
        self._routing: RoutingEpochs | None = None
        """The routing epochs from the order to run until the hold.

        Other incarnations may switch them later.
        """
        self._growth = PartitionGrowth(config, control)
        self._intake = Intake(config.tier.max_offsets)
        self._inputs = SameStreams(Watch(config.identities), control.receipts, RENAME_STREAM)

    def plan(self) -> None:
        """Plan the output."""
        plan(
            output_rows(
                self._config,
                read_inputs(self._config, {}, stream=False),
                "rehearsal",
                self._growth.partitions(self._routing, ""),
            )
        )

    def warm(self, go_on: Callable[[], bool]) -> None:
        """Run the query over recent records, into warm-up streams, which no tier reads."""
        warm_up_streams(self._config, self._start_warm_up, go_on)
        self._config.workers.note_warm()

    def _start_warm_up(self, begins: dict[str, int], folder: str) -> "StreamingQuery":
        return self._start(begins, folder, by="warm-up", suffix=lineage.WARM_UP)

    def run(self) -> Receipt:
        """Start at the positions before which, as the output tells, all output is complete."""
        self._query = None
        self._config.workers.rest()
        metered = self._control.admitted is not None or self._metered is not None
        epochs_before = self._inputs.logs.epochs
        begins, inputs, outputs = self._find_start()
        self._begin(begins, inputs, outputs, metered=metered)
        logs = self._inputs.logs
        if epochs_before and logs.epochs != epochs_before:
            self._news = begins  # reported with the epochs, so that the next incarnation knows them
        return Receipt(positions=begins, streams=logs.streams, epochs=logs.epochs, at=time.time())

    def _find_start(self) -> Start:
        """Return where a run has to start, as the output tells, and the ends of inputs and
        outputs.
        """
        config = self._config
        config.writers.claim()
        config.streams.renew()
        routing = self._routing = self._known_routing()
        self._control.announce_routing(routing)
        return StartPlace(config, self._control, self._tail, self._inputs).find(
            [*self._own_starts, routing.since]
        )

    def _begin(
        self, begins: dict[str, int], inputs: dict[str, int], outputs: dict[str, int], *, metered: bool
    ) -> None:
        """Begin a run at these positions: a query, or with `metered` only jobs that let a few
        records in.
        """
        config = self._config
        require_room(Folder(config.checkpoints))
        self._own_starts.append(begins)
        folder, self._by = self._next_run()
        drop_runs(config.checkpoints, config.incarnation, self._run, earlier=self._control.owns)
        self._begins, self._initial_read = begins, InitialRead(begins, inputs)
        self._confirmed = Confirmed()
        if self._handover is not None:
            self._handover.stop()
            self._handover = None
        self._end_warm_up()
        self._level, self._paused = False, config.workers.to_pause
        self._reached, self._settled = RealtimeProgress(time.monotonic), time.monotonic()
        config.flow.metered = metered
        self._metered = dict(begins) if metered else None
        if metered:
            config.workers.end_query()
            self._executors = config.workers.working()
            log.info(
                "no query runs; jobs let records in",
                by=self._by,
                begins=begins,
                behind=self._initial_read.needed,
            )
            return
        if config.tier.mode is Mode.REALTIME:
            config.workers.refuse_too_few(config.tier.name, len(inputs))
            self._executors = config.workers.begin_query()
        else:
            self._executors = config.workers.working()
        config.flow.unread = None
        self._batch_ends = time.monotonic() + 60 * batch_minutes(config.hops_to_end)
        self._handover = HandoverWatch(config.kafka, outputs, self._by, begins, inputs)
        self._query = self._start(begins, folder, by=self._by)
        log.info("the query runs", by=self._by, begins=begins, behind=self._initial_read.needed)

    def tick(self) -> None:
        """Carry out what changed since the last call.

        - The tier is throttled: stop the query, and let records in at the admitted rate.
        - It is not throttled any more: catch up with more and more records, then start the query.
        - A worker was paused or woken, or has joined, or partitions were added, or the batch ends
          soon: start again.
        """
        if self._restarts.waiting:
            return
        admitted = self._control.admitted
        try:
            if self._query is not None and admitted is not None:
                self._query.stop()
                self.run()
            elif self._query is not None and self._config.tier.mode is Mode.REALTIME:
                self._spread(self._query)
            if (
                self._query is not None
                and self._routing is not None
                and self._growth.may_be_used(self._routing, self._by, self.positions)
            ):
                self._switch_routing(self._query)
            if self._metered is not None:
                self._meter(self._metered, admitted)
        except Exception as error:
            if not self._restarts.failed(time.monotonic()):
                raise
            if self._query is not None:
                self._query.stop()
            self._query = None
            self._query_ended()
            self._config.flow.restarts += 1
            log.warning(
                "the query or a measured job failed; the query restarts from the end of the output",
                error=error_text(error),
            )

    def _spread(self, query: "StreamingQuery") -> None:
        """Start again where a worker or a spare was paused or woken, or has joined, or partitions
        were added, or the batch ends soon.

        Realtime tasks last as long as a batch.
        """
        workers = self._config.workers
        if workers.to_pause - self._paused:
            self._stop_query(query)
            return
        self._warm_new_workers()
        woken = workers.to_pause != self._paused or workers.working() - self._executors
        if woken or self._growth.may_be_read(len(self._begins)):
            self._overlap(query, self._find_start())
        elif time.monotonic() > self._batch_ends - EARLY_SECONDS:
            self._replace_batch(query)

    def _replace_batch(self, query: "StreamingQuery") -> None:
        """Let the next run take over before the batch ends, because the end costs a second of
        output.

        A partition whose records leave no output may be known to be read only up to a place far
        behind. Then the batch ends by itself, which tells the place exactly (decision 113).
        """
        self._batch_ends += 60 * batch_minutes(self._config.hops_to_end)
        epochs = self._inputs.logs.epochs
        try:
            begins, inputs, outputs = self._find_start()
        except Exception as error:
            if self._inputs.logs.epochs != epochs:
                raise
            log.warning("the batch ends by itself: nobody knows where to go on", error=error_text(error))
            return
        again = sum(inputs[place] - begin for place, begin in begins.items())
        if again <= MOST_AGAIN or self._inputs.logs.epochs != epochs:
            self._overlap(query, (begins, inputs, outputs))
        else:
            log.info("the batch ends by itself: another run would read many records again", records=again)

    def _warm_new_workers(self) -> None:
        """Warm executors that have come since the query began, before the next query uses them.

        The query's tasks stay where they are. If a batch ends meanwhile, its successor's tasks go
        first.
        """
        workers, warm_up = self._config.workers, self._warm_up
        try:
            if warm_up is None:
                cold = workers.cold()
                self._level = bool(cold) and (self._level or self.caught_up())
                if self._level:
                    self._begin_warm_up(cold)
            elif self._committed() != self._committed_then:
                self._end_warm_up()
            elif warm_up.is_over():
                self._end_warm_up(warm=True)
        except Exception as error:  # noqa: BLE001 — of Kafka, or of a new executor; the query flows on
            self._end_warm_up(warm=not is_away(error))
            log.warning("the warm-up of new workers failed; the query flows on", error=error_text(error))

    def _begin_warm_up(self, cold: frozenset[str]) -> None:
        workers = self._config.workers
        log.info("new workers warm up", executors=sorted(cold))
        workers.begin_warm_up(cold)
        self._committed_then = self._committed()
        partitions = first_partitions(self._begins, len(cold) * workers.threads)
        self._warm_up = WarmUp(self._config, self._start_warm_up, partitions)

    def _end_warm_up(self, *, warm: bool = False) -> None:
        """End the warm-up of new workers, if there is one; `warm`: they may work from now on.

        If it has failed, they work all the same: an executor that is gone has no part in it.
        """
        warm_up, self._warm_up = self._warm_up, None
        failure = None if warm_up is None else warm_up.stop()
        self._config.workers.end_warm_up(warm=warm)
        if warm:
            log.info("new workers are warm", failure=None if failure is None else error_text(failure))

    def _query_ended(self) -> None:
        """Let new workers work in the next query, warm or not."""
        self._end_warm_up()
        self._config.workers.end_query()

    def _switch_routing(self, query: "StreamingQuery") -> None:
        """Process all waiting records by the old routing, then agree on a new routing epoch
        (decision 40).

        The new epoch begins after those records. No run reads meanwhile, and the job ends when all
        its output is complete. So no record that was written by the old routing comes after that
        place.
        """
        config = self._config
        query.stop()
        self._query = None
        self._query_ended()
        wait_for(config.workers.is_idle, LAST_SECONDS)
        if not config.workers.is_idle():
            message = f"tasks of the stopped query still run after {LAST_SECONDS:.0f} s"
            raise RuntimeError(message)
        begins, inputs, outputs = self._find_start()
        self._begin(begins, inputs, outputs, metered=True)
        if inputs != begins:
            self._run_job(begins, inputs)
        self._metered = inputs
        routing, self._routing = self._growth.agreed_routing(), None
        wider = routing.widened(self._growth.counts(), inputs)
        self._routing = wider if self._control.switch_routing(wider) else routing
        log.info("the routing of new records is settled", partitions=self._routing.now, since=inputs)
        self._growth.reset()
        self._begin(inputs, inputs, config.streams.bounds(config.outputs).ends, metered=False)
        self._news = inputs

    def _known_routing(self) -> RoutingEpochs:
        """Return this run's routing epochs; two runs that may work at the same time have
        the same.
        """
        return (
            self._growth.agreed_routing()
            if self._routing is None
            else self._routing.taking_in(self._growth.counts())
        )

    def _stop_query(self, query: "StreamingQuery | None") -> None:
        """Stop the query, so that a paused worker is free at once.

        The query starts on the others at the next check.
        """
        if query is not None:
            query.stop()
        self._query = None
        self._query_ended()
        self._restarts.put_off(time.monotonic(), 0.0)
        wait_for(self._config.workers.is_idle, ENDED_SECONDS)

    def _overlap(self, query: "StreamingQuery", start: Start) -> None:
        """Start the next query at `start`, on all workers and partitions, planned while the present
        query still runs.

        The next query's tasks wait until the present ones have ended. So they are spread evenly,
        and the time without output is short.
        """
        workers = self._config.workers
        self._end_warm_up()
        with workers.all_spared():
            try:
                self._begin(*start, metered=False)
                wait_for(self._is_planned, PLANNED_SECONDS)
            finally:
                query.stop()
            wait_for(workers.is_idle, ENDED_SECONDS)

    def _is_planned(self) -> bool:
        """Tell whether the query's first batch waits for threads, or has failed."""
        query = self._query
        return query is None or not query.isActive or has_job(self._config.session, query)

    def _meter(self, begins: dict[str, int], admitted: float | None) -> None:
        """Let in what the admitted rate allows, or what catches up; also from added partitions."""
        if self._growth.may_be_read(len(begins)):
            self.run()
            return
        silent = self._control.seconds_without_controller
        allowed = self._intake.allowance(time.monotonic(), silent, admitted)
        if allowed > 0:
            self._let_in(begins, allowed, flow=admitted is None)

    def _let_in(self, begins: dict[str, int], most: int, *, flow: bool) -> None:
        """Process at most so many records in a job; with `flow`, start the query when no
        more wait.
        """
        config = self._config
        inputs = config.streams.bounds(config.inputs).ends
        until = portion(begins, inputs, most)
        if until != begins:
            self._run_job(begins, until)
            self._metered = until
        if flow and until == inputs:
            self._begin(until, inputs, config.streams.bounds(config.outputs).ends, metered=False)
            self._news = until

    def _run_job(self, begins: dict[str, int], until: dict[str, int]) -> None:
        """Run one job over the records between two positions; its output is complete when this
        returns.
        """
        config = self._config
        workers = config.workers
        if (working := len(workers.working())) < workers.awake:
            raise NoExecutorError(missing(working, workers.awake, workers.label))
        records = output_rows(
            config, read_between(config, begins, until), self._by, self._growth.partitions(self._routing, "")
        )
        records.write.format("kafka").options(**sink_options(config, self._guard)).save()

    def hold(self) -> Receipt:
        """Stop the query, and read from the output how far it came."""
        self._restarts.begun()
        if self._query is not None:
            self._query.stop()
            self._query = None
        self._query_ended()
        if self._handover is not None:
            self._handover.stop()
        logs = self._inputs.logs
        receipt = Receipt(
            positions=self._stopped_at(), streams=logs.streams, epochs=logs.epochs, at=time.time()
        )
        self._routing, self._metered, self._config.flow.metered, self._config.flow.away = (
            None,
            None,
            False,
            None,
        )
        return receipt

    def _stopped_at(self) -> dict[str, int]:
        """Return the positions; if Kafka does not answer, those known before.

        The next run reads the output again.
        """
        try:
            return self.positions()
        except Exception as away:
            if not is_away(away):
                raise
            log.warning(
                "the output cannot be read; the next run reads from the output where this run ended",
                away=error_text(away),
            )
            return self._known()

    def check(self) -> None:
        """Restart a query that has failed in the same session, up to the limit.

        An executor that died ends the query. A warm standby starts faster than an executor comes
        back: if an executor is missing and a standby is ready, this incarnation fails.
        """
        self._look_at_right()
        now, workers = time.monotonic(), self._config.workers
        is_lost = self._query is not None and bool(workers.gone(self._executors))
        error, run = self._failure(), self.run
        if error is not None:
            self._query_ended()
            short = len(workers.working()) < workers.awake
            restart_or_raise(
                error, self._restarts, self._config.flow, give_up=short and self._control.standby_is_ready()
            )
            self._query = None
            if is_lost and self._config.tier.mode is Mode.REALTIME:
                workers.rest()  # spares work for the lost workers
                if len(workers.working()) >= workers.awake:
                    run = self._run_on_spares
                    self._restarts.put_off(now, 0.0)
        late = self._restarts.overdue(now)
        if late < 0:
            return
        working = len(workers.working())
        if working >= workers.awake:
            restart(run, self._restarts, self._config.flow)
        elif late > EXECUTORS_SECONDS:
            raise NoExecutorError(missing(working, workers.awake, workers.label))

    def _run_on_spares(self) -> Receipt:
        """Run at once after a loss.

        The next tasks wait until the stopped ones have ended, and are spread evenly, as in
        `_overlap`.
        """
        workers = self._config.workers
        with workers.all_spared():
            receipt = self.run()
            wait_for(self._is_planned, PLANNED_SECONDS)
            wait_for(workers.is_idle, ENDED_SECONDS)
        return receipt

    def _look_at_right(self) -> None:
        """Stop at once if another incarnation has the right to write (decision 47)."""
        try:
            self._config.writers.check()
            elected = self._inputs.compare() if self._query is not None or self._metered is not None else None
            if elected:  # the start checks whether the records read before are still there
                log.info("leaders of the inputs were elected; the query restarts")
                self._stop_query(self._query)
            elif elected is not None:
                self._confirmed.answered()
        except (FencedError, RecordsGoneError):
            if self._query is not None:
                self._query.stop()
            raise
        except Exception as away:
            if not is_away(away):
                raise
            log.warning(
                "the right to write cannot be confirmed; executors wait with writing until it is",
                away=error_text(away),
            )

    def _failure(self) -> Exception | None:
        """Return why the query has ended, or stop it if an executor is gone and return that.

        On another executor, Spark would repeat the task from the batch's first record, which may be
        hours old.
        """
        query = self._query
        if query is None:
            return None
        if not query.isActive:
            return query.exception() or RuntimeError("the query ended without an error")
        gone = self._config.workers.gone(self._executors)
        if not gone:
            return None
        query.stop()
        return RuntimeError(why_gone(self._config.session, gone))

    def caught_up(self) -> bool:
        """Tell whether the output is level with the old run's; if little comes out, whether all
        waiting records were read.

        A metered tier counts as level: its next owner continues where the output ends.
        """
        if self._metered is not None:
            return True
        if self._query is None or self._handover is None or not self._query.isActive:
            return False
        if self._handover.is_level():
            return True
        if self._handover.behind():
            return False
        if self._config.tier.mode is Mode.BATCH:
            return is_idle(self._query)
        return self._initial_read.is_over(self._config.session, self._config.streams)

    def gap(self) -> float | None:
        """Return the gap between the time stamps of the output."""
        return self._handover.gap() if self._handover is not None else None

    def silence(self) -> float | None:
        """Return the time between the time stamps of the last output before this run and of its
        first.
        """
        return self._handover.silence() if self._handover is not None else None

    def positions(self) -> dict[str, int]:
        """Return the positions after the last records of the output, and at least the start of the
        run.
        """
        if self._metered is not None:
            return dict(self._metered)
        positions = self._known()
        for out in self._tail.last(self._config.streams.bounds(self._config.outputs).ends):
            if out.partition in positions:
                positions[out.partition] = max(positions[out.partition], out.offset + 1)
        return positions

    def _known(self) -> dict[str, int]:
        """Return the positions before which output is complete, as this run and reports of others
        tell.
        """
        positions = self.complete_floor()
        for reported in self._control.complete_positions():
            positions |= {
                name: max(offset, positions[name]) for name, offset in reported.items() if name in positions
            }
        return positions

    def settled(self) -> dict[str, int]:
        """Return positions known from realtime tasks, committed batches or measured jobs; empty
        without news.
        """
        query, now = self._query, time.monotonic()
        news, self._news = self._reached.news(self._news), {}
        if query is not None and self._config.tier.mode is Mode.REALTIME:
            news = self._reached.newly_complete(lambda: reading(self._config.session, query)) or news
        if now >= self._settled + EVERY_SECONDS:
            self._settled = now
            news = self._reached.news(self._all_out()) or news
        if self._config.identities is None:
            return news
        self._confirmed.take(news)
        confirmed = self._confirmed.news()
        self._inputs.passed(confirmed)
        return confirmed

    def _all_out(self) -> dict[str, int]:
        if self._metered is not None:
            return self._metered
        last = -1 if self._query is None else self._committed()
        return {} if last < 0 else ends(Path(self._folder()), last)

    def _committed(self) -> int:
        """Return the last batch of this run whose output is complete; -1 before the first."""
        return max((int(path.name) for path in (Path(self._folder()) / "commits").glob("[0-9]*")), default=-1)

    def logs(self) -> Logs:
        """Return the topic ids and leader epochs that the last run found."""
        return self._inputs.logs

    def offset_sum(self) -> int | None:
        """Return the offsets of the last batch's end plus the records read since; executors report
        every two seconds.
        """
        query, metered = self._query, self._metered
        if metered is not None:
            return sum(metered.values())
        if query is None:
            return None
        begins = self._begins
        if (last := self._committed()) >= 0:
            begins = begins | ends(Path(self._folder()), last)
        if self._config.tier.mode is Mode.BATCH:
            return sum(begins.values())
        return sum(begins.values()) + records_read(self._config.session, query)[0]

    def complete_floor(self) -> dict[str, int]:
        """Return the start of the run, or the end of the last measured job."""
        return dict(self._begins if self._metered is None else self._metered)

    def last_batch(self) -> "StreamingQueryProgress | None":
        """Return Spark's progress report of the last batch, if the query runs."""
        query = self._query
        return None if query is None else query.lastProgress

    def batch_runs(self) -> bool:
        """Tell whether a micro-batch runs now."""
        query = self._query
        return query is not None and bool(query.status["isTriggerActive"])

    def close(self) -> None:
        """Remove the checkpoint, which no other run uses."""
        shutil.rmtree(self._folder(), ignore_errors=True)

    def _folder(self) -> str:
        return str(self._config.checkpoints / f"{self._config.incarnation}.{self._run}")

    def _next_run(self) -> tuple[str, str]:
        """Make the next run's checkpoint folder; return it, and the name that the run's records
        carry.
        """
        config = self._config
        folder, self._run = make_run_folder(config.checkpoints, config.incarnation, self._run + 1)
        by = f"{config.tier.name}/{config.incarnation}"
        return str(folder), by if self._run == 0 else f"{by}.{self._run}"

    def _start(self, begins: dict[str, int], folder: str, *, by: str, suffix: str = "") -> "StreamingQuery":
        return start_query(
            self._config,
            begins,
            folder,
            by,
            self._growth.partitions(self._routing, suffix),
            self._guard,
            suffix,
        )
