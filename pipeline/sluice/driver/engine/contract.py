"""What the life of an incarnation asks of the query that it runs, whatever the tier's mode."""

import json
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sluice.api.declarations import Tier
from sluice.driver.control.routing_epochs import Agreement, Apart
from sluice.driver.control.write_fence import Unfenced, WriterFence
from sluice.driver.counters import Flow
from sluice.driver.engine.warm_up import ENOUGH_RECORDS
from sluice.driver.spark.workers import Workers
from sluice.kafka.truncation import Logs
from sluice_ops.model.incarnation import STATE_PARTITIONS, Receipt
from sluice_ops.site.brokers import brokers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from sluice.driver.state.checkpoint_store import Depot
    from sluice.kafka.reader import Streams
    from sluice.kafka.stream_identity import Identities

INTERVAL = 2.0
"""Between the begins of two micro-batches: one costs much the same however few its records are. Unit: seconds."""


@dataclass(frozen=True)
class Setting:
    """What an engine works with."""

    session: "SparkSession"
    tier: Tier
    incarnation: int
    streams: "Streams"
    kafka: str
    postgres: str
    home: Path
    started: Callable[[], list[dict[str, int]]]
    """Positions up to which all was out when a run of the tier started or settled, as far as is known."""
    right: Callable[[], int]
    """The epoch of the owner record by which this incarnation runs."""
    owns: Callable[[], bool]
    """Whether it owns the tier; else it runs beside the owner, to take over."""
    _: KW_ONLY
    distance: int = 0
    """How many hops its tier is from the pipeline's end."""
    one_for_one: bool = False
    """Whether its transform makes exactly one record of each, so that what is out can be counted off."""
    partitions: int = STATE_PARTITIONS
    """Over how many its state is to be spread, if it holds any."""
    release: str | None = None
    """Whose code it runs."""
    holds: tuple[str, ...] | None = None
    """What that holds in Spark, operator by operator, as far as anybody knows."""
    depot: "Depot | None" = None
    """Where the checkpoints of its state are; None: in the tier's own folder."""
    workers: Workers = field(default_factory=Workers)
    flow: Flow = field(default_factory=Flow)
    """Where its engine counts what goes through."""
    relieved: Callable[[], bool] = lambda: False
    """Whether another incarnation could take over at once."""
    held: Callable[[], bool] = lambda: False
    """Whether to let nothing in, because a tier further on is behind."""
    silent: Callable[[], float] = lambda: 0.0
    """For how long there has been nobody who could end that. Unit: seconds."""
    identities: "Identities | None" = None
    """Whom to ask for the ids of its inputs; None: they are not known."""
    receipts: Callable[[], list[Receipt]] = list
    """By which runs of the tier started or settled, as far as is known."""
    ways: Agreement = field(default_factory=Apart)
    """Where the runs of the tier agree on how its records are spread."""
    writers: WriterFence = field(default_factory=Unfenced)
    """The right to write the tier's streams."""

    @property
    def checkpoints(self) -> Path:
        """The tier's own folder in the home that all hosts share."""
        return self.home / "checkpoints" / self.tier.name

    @property
    def inputs(self) -> list[str]:
        """The topics that the tier reads."""
        return [stream.name for stream in self.tier.inputs]

    @property
    def outputs(self) -> list[str]:
        """The topics that the tier writes, quarantine included."""
        return self.tier.written


class Engine(ABC):
    """One tier's query: warmed, run, held, and run again."""

    def rehearse(self) -> None:  # noqa: B027 — not every engine can
        """Plan the query once, over nothing: in a fresh JVM that takes seconds, which executors need to come anyway."""

    @abstractmethod
    def warm(self, go_on: Callable[[], bool]) -> None:
        """Run the same query without output until it is quick, or `go_on` says no."""

    @abstractmethod
    def run(self) -> Receipt:
        """Begin, or go on; return where."""

    @abstractmethod
    def hold(self) -> Receipt:
        """Stop where nothing is half done; return where. The session stays."""

    @abstractmethod
    def check(self) -> None:
        """Raise what went wrong, when the query has ended by itself and cannot be begun again."""

    @abstractmethod
    def caught_up(self) -> bool:
        """Tell whether what was there when it began is done."""

    @abstractmethod
    def gap(self) -> float | None:
        """Return the largest gap in the output over the hand-over, when it is known. Unit: seconds."""

    @abstractmethod
    def positions(self) -> dict[str, int]:
        """Return the next offset of each input partition, as far as is known now."""

    @abstractmethod
    def last_batch(self) -> "StreamingQueryProgress | None":
        """Return what Spark tells of the query's last batch, if it runs."""

    def settled(self) -> dict[str, int]:
        """Return up to where all is out for good, as far as is known since it was asked last; empty when there is no news."""
        return {}

    def logs(self) -> Logs:
        """Return which logs its positions belong to, as far as is known."""
        return Logs()

    def read(self) -> int | None:
        """Return the sum of the next offsets that it will read; None where `positions` tells all."""
        return None

    def floor(self) -> dict[str, int]:
        """Return the offsets of input partitions before which all is out for certain; cheap, and often long ago."""
        return {}

    def internal_state(self, receipt: Receipt) -> bytes:
        """Describe where it stopped, for a tier that has no more to say."""
        return json.dumps({"positions": receipt.positions}).encode()

    def tick(self) -> None:  # noqa: B027 — not every engine has something to do
        """Do what is due between two looks."""

    def rest(self) -> None:  # noqa: B027 — likewise
        """Do what is better done while nothing flows; the hand-over does not wait for it."""

    def close(self) -> None:  # noqa: B027 — likewise
        """Finish what may wait until the tier runs elsewhere."""


def engine_of(setting: Setting) -> Engine:
    """Return the engine for what a tier writes, importing only that one: a tier that writes streams has no use for what tables take."""
    if setting.tier.sink is None:
        from sluice.driver.engine.streams import IntoStreams  # noqa: PLC0415

        return IntoStreams(setting)
    from sluice.driver.engine.sink import IntoSink  # noqa: PLC0415
    from sluice.driver.engine.stateful import WithState  # noqa: PLC0415
    from sluice.driver.state.checkpoint_store import Folder  # noqa: PLC0415
    from sluice.sinks.table import Latest  # noqa: PLC0415

    if isinstance(setting.tier.sink, Latest):
        return WithState(setting, setting.tier.sink, setting.depot or Folder(setting.checkpoints))
    return IntoSink(setting, setting.tier.sink)


def offsets_option(positions: dict[str, int]) -> dict[str, dict[str, int]]:
    """Write positions as Spark's Kafka source wants them."""
    chosen: dict[str, dict[str, int]] = {}
    for name, offset in positions.items():
        topic, _, partition = name.rpartition("/")
        chosen.setdefault(topic, {})[partition] = offset
    return chosen


def folder_of_run(checkpoints: Path, incarnation: int, number: int = 0) -> tuple[Path, int]:
    """Make the folder of a run, by the first number from `number` on that none of this incarnation has had, in any process of it."""
    while True:
        folder = checkpoints / f"{incarnation}.{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder, number


def drop_runs(checkpoints: Path, incarnation: int, number: int, *, earlier: bool) -> None:
    """Remove the folders of an incarnation's runs before that number, and those of `earlier` incarnations too, which were killed."""
    for folder in checkpoints.glob("[0-9]*.[0-9]*"):
        whose, _, run = folder.name.partition(".")
        if (whose == str(incarnation) and int(run) < number) or (earlier and int(whose) < incarnation):
            shutil.rmtree(folder, ignore_errors=True)


def source(
    setting: Setting, options: dict[str, str], topics: Sequence[str] = (), *, stream: bool = True
) -> "DataFrame":
    """Read the tier's inputs, or those that are named; without `stream`, once, what lies between the options' offsets."""
    session = setting.session
    reader = (
        (session.readStream if stream else session.read)
        .format("kafka")
        .options(
            **{
                **brokers(setting.kafka).spark,
                "subscribe": ",".join(topics or setting.inputs),
                "includeHeaders": "true",
                "kafka.isolation.level": "read_committed",  # as the driver itself reads: what a sender took back was never sent
                **options,
            }
        )
    )
    return reader.load()


def between(setting: Setting, begins: dict[str, int], ends: dict[str, int]) -> "DataFrame":
    """Read once what lies between, of all partitions of the tier's inputs."""
    bounds = {
        "startingOffsets": json.dumps(offsets_option(begins)),
        "endingOffsets": json.dumps(offsets_option(ends)),
    }
    return source(setting, bounds, stream=False)


def recent(setting: Setting) -> tuple[dict[str, int], int]:
    """Return positions a little before the ends of the inputs, for warming, and how many records are between."""
    bounds = setting.streams.bounds(setting.inputs)
    begins = {name: max(bounds.oldest[name], end - ENOUGH_RECORDS) for name, end in bounds.ends.items()}
    return begins, sum(bounds.ends[name] - begin for name, begin in begins.items())


def plan(frame: "DataFrame") -> None:
    """Have Spark plan it and generate its code, without running it."""
    frame._jdf.queryExecution().toRdd()  # noqa: SLF001 — Python has no public way to plan without running


def is_idle(query: "StreamingQuery") -> bool:
    """Tell whether a query of micro-batches has found nothing to do."""
    status = query.status
    return (
        str(status["message"]).startswith("Waiting")
        and not status["isDataAvailable"]
        and not status["isTriggerActive"]
    )


def wait_for(so: Callable[[], bool], seconds: float) -> None:
    """Return once it is so, or after so long."""
    deadline = time.monotonic() + seconds
    while not so() and time.monotonic() < deadline:
        time.sleep(0.01)
