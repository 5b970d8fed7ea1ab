"""The engine of a tier that writes streams: each run starts, on a checkpoint of its own, where its output tells (decision record 0002)."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from sluice.driver.control.restarts import Restarts
from sluice.driver.control.wait_for_services import bear, is_away, run_again
from sluice.driver.engine.contract import Control, Engine
from sluice.driver.engine.handover_watch import Handover, InitialRead
from sluice.driver.engine.intake import Intake, portion
from sluice.driver.engine.kafka_sink import begin, install_guard, into_kafka, written
from sluice.driver.engine.offsets import between, source
from sluice.driver.engine.partition_growth import PartitionGrowth
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.engine.start_place import StartPlace
from sluice.driver.engine.warm_up import warm_up_streams
from sluice.driver.positions.realtime_progress import EVERY_SECONDS, Reached
from sluice.driver.spark.queries import is_idle, plan
from sluice.driver.spark.session import EXECUTORS_SECONDS, NoExecutorError, missing
from sluice.driver.spark.slots import has_job, reading, records_read, why_gone
from sluice.driver.spark.workers import refuse_too_few
from sluice.driver.state.checkpoint_disk import require_room
from sluice.driver.state.checkpoint_store import Folder
from sluice.driver.state.offset_log import ends
from sluice.failures import error_text
from sluice.kafka.output_tail import OutputTail
from sluice.kafka.positions import RENAME_STREAM, RecordsGoneError
from sluice.kafka.stream_identity import SameStreams, Watch
from sluice.kafka.truncation import Confirmed, Logs
from sluice.records import lineage
from sluice.sinks.ledger import FencedError
from sluice_ops.model.ids import UnitId
from sluice_ops.model.incarnation import Receipt
from sluice_ops.model.routing_epochs import Ways
from sluice_ops.model.tier import Mode

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress

log = structlog.get_logger()

PLANNED_SECONDS = 1.0
"""The longest time that an ending query waits until Spark has planned the next one."""
ENDED_SECONDS = 1.0
"""The longest wait for the end of stopped tasks before tasks of the next query start."""
LAST_SECONDS = 10.0
"""The same wait where stopped tasks must not write any more."""


def make_run_folder(checkpoints: Path, incarnation: int, number: int = 0) -> tuple[Path, int]:
    """Make the folder of a run, and return its number: the first from `number` on that no process of the incarnation used."""
    while True:
        folder = checkpoints / f"{incarnation}.{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder, number


def drop_runs(checkpoints: Path, incarnation: int, number: int, *, earlier: bool) -> None:
    """Remove the folders of an incarnation's runs before `number`; with `earlier`, also those of killed earlier incarnations."""
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
    """Records one by one in milliseconds, or in micro-batches."""

    def __init__(self, config: EngineConfig, control: Control) -> None:
        """Prepare; nothing runs yet."""
        self._config, self._control = config, control
        self._guard = install_guard(config.session)
        self._tail = OutputTail(config.tier, config.streams)
        self._query: StreamingQuery | None = None
        self._handover: Handover | None = None
        self._executors: frozenset[str] = frozenset()
        """Those that had tasks of the query when it began."""
        self._paused: frozenset[UnitId] = frozenset()
        """The workers that were to have none then."""
        self._own: list[dict[str, int]] = []
        self._restarts = Restarts(limit=5, seconds=60.0, first_wait=0.2)
        self._run = -1
        self._begins: dict[str, int] = {}
        self._initial_read = InitialRead({}, {})
        self._reached = Reached(time.monotonic)
        self._settled = 0.0
        """When it was last looked for what is out by a batch's end, or by measure."""
        self._metered: dict[str, int] | None = None
        """It was held back: up to here all is out, and no query runs. Else None."""
        self._news: dict[str, int] = {}
        """Up to here all was out when it began to flow again; empty once it is told."""
        self._confirmed = Confirmed()
        self._by = ""
        self._ways: Ways | None = None
        """Known from when it is told to run until it is held; whoever ran meanwhile may have taken others."""
        self._growth = PartitionGrowth(config, control)
        self._intake = Intake(config.tier.max_offsets)
        self._inputs = SameStreams(Watch(config.identities), control.receipts, RENAME_STREAM)

    def rehearse(self) -> None:
        """Plan what it puts out."""
        plan(
            written(
                self._config,
                source(self._config, {}, stream=False),
                "rehearsal",
                self._growth.partitions(self._ways, ""),
            )
        )

    def warm(self, go_on: Callable[[], bool]) -> None:
        """Run it over recent records, into streams that nobody reads."""
        warm_up_streams(
            self._config,
            lambda begins, folder: self._start(begins, folder, by="warm-up", suffix=lineage.WARM_UP),
            go_on,
        )

    def run(self) -> Receipt:
        """Start from where the output says that everything before is out."""
        self._query = None
        metered = self._control.held_back or self._metered is not None
        before = self._inputs.logs.epochs
        begins, inputs, outputs = self._place()
        self._begin(begins, inputs, outputs, metered=metered)
        logs = self._inputs.logs
        if before and logs.epochs != before:
            self._news = begins  # told with the epochs, so that the next incarnation has nothing to find out
        return Receipt(positions=begins, streams=logs.streams, epochs=logs.epochs, at=time.time())

    def _place(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """Return where a run has to start, as the output tells, and where inputs and outputs end."""
        config = self._config
        config.writers.claim()
        config.streams.renew()
        ways = self._ways = self._known_ways()
        self._control.announce_ways(ways)
        return StartPlace(config, self._control, self._tail, self._inputs).find([*self._own, ways.since])

    def _begin(
        self, begins: dict[str, int], inputs: dict[str, int], outputs: dict[str, int], *, metered: bool
    ) -> None:
        """Begin a run there: one that flows, or one that lets in by measure, and nothing while the tier is held back."""
        config = self._config
        require_room(Folder(config.checkpoints))
        self._own.append(begins)
        folder, self._by = self._next_run()
        drop_runs(config.checkpoints, config.incarnation, self._run, earlier=self._control.owns)
        self._begins, self._initial_read = begins, InitialRead(begins, inputs)
        self._confirmed = Confirmed()
        if self._handover is not None:
            self._handover.stop()
            self._handover = None
        self._executors, self._paused = config.workers.working(), config.workers.told
        self._reached, self._settled = Reached(time.monotonic), time.monotonic()
        config.flow.metered = metered
        self._metered = dict(begins) if metered else None
        if metered:
            log.info("lets in by measure", by=self._by, begins=begins, behind=self._initial_read.needed)
            return
        if config.tier.mode is Mode.REALTIME:
            refuse_too_few(config.tier.name, len(inputs), config.workers.awake, config.workers.threads)
        config.flow.unread = None
        self._handover = Handover(config.kafka, outputs, self._by, begins, inputs)
        self._query = self._start(begins, folder, by=self._by)
        log.info("runs", by=self._by, begins=begins, behind=self._initial_read.needed)

    def tick(self) -> None:
        """Stop letting records in when it is held back; else let in what may come, and flow again once all of it is out.

        Begin again on the workers that are to work, where one was paused or woken.
        """
        if self._restarts.waiting:
            return
        held = self._control.held_back
        try:
            if self._query is not None and held:
                self._query.stop()
                self.run()
            elif self._query is not None and self._config.tier.mode is Mode.REALTIME:
                self._spread(self._query)
            if (
                self._query is not None
                and self._ways is not None
                and self._growth.may_be_used(self._ways, self._by, self.positions)
            ):
                self._switch_ways(self._query)
            allowed = self._intake.allowance(
                time.monotonic(), self._control.seconds_without_controller, held=held
            )
            if self._metered is not None and allowed > 0:
                self._let_in(self._metered, allowed, flow=not held)
        except Exception as error:
            if not self._restarts.failed(time.monotonic()):
                raise
            if self._query is not None:
                self._query.stop()
            self._query = None
            self._config.flow.restarts += 1
            log.warning("it failed, and is begun again from what is out", error=error_text(error))

    def _spread(self, before: "StreamingQuery") -> None:
        """Begin again where a worker was paused or woken, or partitions were added: a realtime tier's tasks last as long as a batch."""
        told, paused = self._config.workers.told, self._paused
        if told - paused:
            self._free(before)
        elif told != paused or self._growth.may_be_read(len(self._begins)):
            self._widen(before)

    def _switch_ways(self, before: "StreamingQuery") -> None:
        """Put all that there is through by the ways that it has, agree on others, and begin there (decision record 0040).

        Nothing that was put before, by whatever run, comes after that place: nobody reads, and all that was read is out when the job ends.
        """
        config = self._config
        before.stop()
        self._query = None
        wait_for(config.workers.is_idle, LAST_SECONDS)
        if not config.workers.is_idle():
            message = f"its tasks have not ended {LAST_SECONDS:.0f} s after they were told to"
            raise RuntimeError(message)
        begins, inputs, outputs = self._place()
        self._begin(begins, inputs, outputs, metered=True)
        if inputs != begins:
            self._put_through(begins, inputs)
        self._metered = inputs
        ways, self._ways = self._growth.agreed_ways(), None
        wider = ways.widened(self._growth.counts(), inputs)
        self._ways = wider if self._control.switch_ways(wider) else ways
        log.info("what comes now is spread over", partitions=self._ways.now, since=inputs)
        self._growth.reset()
        self._begin(inputs, inputs, config.streams.bounds(config.outputs).ends, metered=False)
        self._news = inputs

    def _known_ways(self) -> Ways:
        """Return the ways that hold for this run: of two runs that may work at once, both have the same."""
        return (
            self._growth.agreed_ways() if self._ways is None else self._ways.taking_in(self._growth.counts())
        )

    def _free(self, before: "StreamingQuery | None") -> None:
        """Stop: the worker that is paused is free at once. The query begins on the others at the next look, when that has been said."""
        if before is not None:
            before.stop()
        self._query = None
        self._restarts.put_off(time.monotonic(), 0.0)
        wait_for(self._config.workers.is_idle, ENDED_SECONDS)

    def _widen(self, before: "StreamingQuery") -> None:
        """Begin on all workers and partitions, in no hurry: the next query is planned while the one before still runs.

        Its tasks wait until those of that one have ended: so there is little time without output, and they are spread evenly.
        """
        workers = self._config.workers
        with workers.all_spared():
            try:
                self._begin(*self._place(), metered=False)
                wait_for(self._is_planned, PLANNED_SECONDS)
            finally:
                before.stop()
            wait_for(workers.is_idle, ENDED_SECONDS)

    def _is_planned(self) -> bool:
        """Tell whether the query's first batch waits for threads, or has failed."""
        query = self._query
        return query is None or not query.isActive or has_job(self._config.session, query)

    def _let_in(self, begins: dict[str, int], most: int, *, flow: bool) -> None:
        """Put so many records through, which are all out then; and flow again when no more wait."""
        config = self._config
        inputs = config.streams.bounds(config.inputs).ends
        until = portion(begins, inputs, most)
        self._intake.took(time.monotonic(), sum(until.values()) - sum(begins.values()))
        if until != begins:
            self._put_through(begins, until)
            self._metered = until
        if flow and until == inputs:
            self._begin(until, inputs, config.streams.bounds(config.outputs).ends, metered=False)
            self._news = until

    def _put_through(self, begins: dict[str, int], until: dict[str, int]) -> None:
        """Run one job over what lies between; all of it is out when this returns."""
        config = self._config
        workers = config.workers
        if (there := len(workers.working())) < workers.awake:
            raise NoExecutorError(missing(there, workers.awake, workers.label))
        records = written(
            config, between(config, begins, until), self._by, self._growth.partitions(self._ways, "")
        )
        records.write.format("kafka").options(**into_kafka(config, self._guard)).save()

    def hold(self) -> Receipt:
        """Stop; what was put out is read from the output."""
        self._restarts.begun()
        if self._query is not None:
            self._query.stop()
            self._query = None
        if self._handover is not None:
            self._handover.stop()
        logs = self._inputs.logs
        receipt = Receipt(
            positions=self._stopped_at(), streams=logs.streams, epochs=logs.epochs, at=time.time()
        )
        self._ways, self._metered, self._config.flow.metered, self._config.flow.away = (
            None,
            None,
            False,
            None,
        )
        return receipt

    def _stopped_at(self) -> dict[str, int]:
        """Return where it is; where Kafka does not answer, up to where all is known to be out: whoever goes on asks the output again."""
        try:
            return self.positions()
        except Exception as away:
            if not is_away(away):
                raise
            log.warning(
                "where it stops is known once it goes on, for its output cannot be read",
                away=error_text(away),
            )
            return self._known()

    def check(self) -> None:
        """Begin again in place when the query has failed: an executor that died takes the query with it, not the session.

        An executor takes longer to come back than a warm standby takes to begin: where there is one, this incarnation fails.
        """
        self._look_at_right()
        now, error, workers = time.monotonic(), self._failure(), self._config.workers
        if error is not None:
            short = len(workers.working()) < workers.awake
            bear(error, self._restarts, self._config.flow, give_up=short and self._control.standby_is_ready())
            self._query = None
        late = self._restarts.overdue(now)
        if late < 0:
            return
        there = len(workers.working())
        if there >= workers.awake:
            run_again(self.run, self._restarts, self._config.flow)
        elif late > EXECUTORS_SECONDS:
            raise NoExecutorError(missing(there, workers.awake, workers.label))

    def _look_at_right(self) -> None:
        """Stop at once where another one has the right to write (decision record 0047)."""
        try:
            self._config.writers.look()
            elected = self._inputs.look() if self._query is not None or self._metered is not None else None
            if elected:  # the start finds out whether what was read before is still there
                log.info("leaders of its inputs were elected; it begins again")
                self._free(self._query)
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
                "whether it may still write is not known; its executors wait with writing until it is",
                away=error_text(away),
            )

    def _failure(self) -> Exception | None:
        """Return why the query has ended, or has to: on another executor Spark would begin a task again with the batch, hours ago."""
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
        """Tell whether its output is level with the old run's; where little comes out, whether it has read all that there was.

        One that is held back is level: whoever owns the tier goes on from what is out.
        """
        if self._metered is not None:
            return True
        if self._query is None or self._handover is None or not self._query.isActive:
            return False
        if self._handover.passed():
            return True
        if self._handover.behind():
            return False
        if self._config.tier.mode is Mode.BATCH:
            return is_idle(self._query)
        return self._initial_read.is_over(self._config.session, self._config.streams)

    def gap(self) -> float | None:
        """Measured in the time stamps of the output."""
        return self._handover.gap() if self._handover is not None else None

    def positions(self) -> dict[str, int]:
        """Read from the last records of the output; where a run has started, everything before was out."""
        if self._metered is not None:
            return dict(self._metered)
        found = self._known()
        for out in self._tail.last(self._config.streams.bounds(self._config.outputs).ends):
            if out.partition in found:
                found[out.partition] = max(found[out.partition], out.offset + 1)
        return found

    def _known(self) -> dict[str, int]:
        """Return up to where all was out when its run began, or others did, and as far as they have told since."""
        found = self.floor()
        for told in self._control.complete_positions():
            found |= {name: max(offset, found[name]) for name, offset in told.items() if name in found}
        return found

    def settled(self) -> dict[str, int]:
        """By what a realtime run's tasks have read, by the batches that were committed, or by measure."""
        query, now = self._query, time.monotonic()
        news, self._news = self._reached.news(self._news), {}
        if query is not None and self._config.tier.mode is Mode.REALTIME:
            news = self._reached.look(lambda: reading(self._config.session, query)) or news
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
        """Return the last batch of this run that all of is out; -1 before the first."""
        return max((int(path.name) for path in (Path(self._folder()) / "commits").glob("[0-9]*")), default=-1)

    def logs(self) -> Logs:
        """What its last run found."""
        return self._inputs.logs

    def read(self) -> int | None:
        """Count what the tasks that run have read since the last batch; executors tell every two seconds."""
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
        return sum(begins.values()) + records_read(self._config.session)[0]

    def floor(self) -> dict[str, int]:
        """Where its run began, all before was out; by measure, all is out that it has let in."""
        return dict(self._begins if self._metered is None else self._metered)

    def last_batch(self) -> "StreamingQueryProgress | None":
        """Ask Spark, while there is a query."""
        query = self._query
        return None if query is None else query.lastProgress

    def close(self) -> None:
        """Its checkpoint is of no use to any other."""
        shutil.rmtree(self._folder(), ignore_errors=True)

    def _folder(self) -> str:
        return str(self._config.checkpoints / f"{self._config.incarnation}.{self._run}")

    def _next_run(self) -> tuple[str, str]:
        """Return where it has its checkpoint, and the name that its records carry."""
        config = self._config
        folder, self._run = make_run_folder(config.checkpoints, config.incarnation, self._run + 1)
        by = f"{config.tier.name}/{config.incarnation}"
        return str(folder), by if self._run == 0 else f"{by}.{self._run}"

    def _start(self, begins: dict[str, int], folder: str, *, by: str, suffix: str = "") -> "StreamingQuery":
        return begin(
            self._config, begins, folder, by, self._growth.partitions(self._ways, suffix), self._guard, suffix
        )
