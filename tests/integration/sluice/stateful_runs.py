"""Incarnations of a tier with state in this process: their session, and who owns the tier."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from pyspark import SparkContext
from pyspark.sql import SparkSession

from sluice.api import declarations
from sluice.api.declarations import Pipeline
from sluice.driver.engine.contract import Standalone
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.engine.stateful import STRAGGLER_SECONDS, StatefulEngine
from sluice.driver.spark.jvm import launch
from sluice.driver.spark.session import open_session, settings
from sluice.driver.state.checkpoint_selection import Candidate
from sluice.driver.state.checkpoint_store import Depot, Folder
from sluice.driver.state.checkpoints import LEDGER_BATCHES, Checkpoints, Code
from sluice.kafka.reader import Streams
from sluice.sinks.fence import FencedError
from sluice.sinks.table import Latest
from sluice_ops.model.ids import HostName, Incarnation, TierName
from sluice_ops.model.incarnation import STATE_PARTITIONS, IncarnationSpec, Placement, Receipt
from sluice_ops.model.savepoint import Savepoint, StartFrom
from tests.integration.sluice.state_feed import ends
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.stateful_pipeline"
SAVEPOINT = "before-fix"
PIPELINE = declarations.load(PIPELINE_MODULE)


@contextmanager
def local_session(lab: Lab, depot: Depot | None = None) -> Iterator[SparkSession]:
    """Open a driver's session in its own JVM, with the Kafka connector, independent of sessions of
    other tests.
    """
    spec = next(spec for spec in PIPELINE.specs() if spec.name == "by-window")
    placement = Placement(driver=HostName("here"), slots=())
    incarnation = IncarnationSpec(
        tier=spec.name, incarnation=Incarnation(0), placement=placement, reason="test", created_at=0
    )
    config = settings(spec, incarnation, "127.0.0.1", lab.home) | ({} if depot is None else depot.session)
    for key in [key for key in config if ".resource." in key]:
        del config[key]
    other_gateway, SparkContext._gateway, SparkContext._jvm = (
        (SparkContext._gateway, SparkContext._jvm),
        None,
        None,
    )
    process = launch(900, lab.home)
    session = open_session("local[4]", config, process)
    session.sparkContext.setLogLevel("ERROR")
    gateway = session.sparkContext._gateway
    assert gateway is not None
    try:
        yield session
    finally:
        session.stop()
        gateway.shutdown()
        process.end(30)
        SparkContext._gateway, SparkContext._jvm = other_gateway
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            del os.environ[name]


class Ownership(Standalone):
    """Tells one incarnation whether it owns the tier, and with which epoch."""

    def __init__(self, runs: "Runs", number: int) -> None:
        super().__init__()
        self._runs, self._number = runs, number

    @property
    def owns(self) -> bool:
        return self._runs.owner == self._number

    @property
    def epoch(self) -> int:
        return self._runs.epoch


@dataclass
class Runs:
    """The incarnations of one tier in this process, the owner and its epoch."""

    lab: Lab
    session: SparkSession
    tier: str
    owner: int = 0
    epoch: int = 0
    depot: Depot | None = None
    pipeline: Pipeline = PIPELINE
    max_offsets: int | None = None
    """The largest batch, if it differs from the tier's."""
    savepoint: StartFrom | None = None
    """The savepoint from which the tier was started last."""
    engines: list[StatefulEngine] = field(default_factory=list)
    receipts: dict[int, Receipt] = field(default_factory=dict)
    """Where each incarnation began."""

    def start(self, number: int, partitions: int = STATE_PARTITIONS) -> StatefulEngine:
        tier, endpoints = self.pipeline.tier(self.tier), self.lab.endpoints
        tier = tier if self.max_offsets is None else replace(tier, max_offsets=self.max_offsets)
        config = EngineConfig(
            session=self.session,
            tier=tier,
            incarnation=number,
            streams=Streams(endpoints.kafka),
            kafka=endpoints.kafka,
            postgres=endpoints.postgres,
            home=self.lab.home,
            partitions=partitions,
            savepoint=self.savepoint,
        )
        assert isinstance(tier.sink, Latest)
        self.session.conf.set(
            "spark.sql.shuffle.partitions", partitions
        )  # a driver's session has this setting from the start
        engine = StatefulEngine(
            config, Ownership(self, number), tier.sink, self.depot or Folder(config.checkpoints)
        )
        self.engines.append(engine)
        self.receipts[number] = engine.run()
        return engine

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.depot or Folder(self.lab.home / "checkpoints" / self.tier))

    def last_number(self) -> int:
        """Return the number of the tier's last batch, by the ledger."""
        query = f"select max(batch) from ledger where tier = '{self.tier}'"  # noqa: S608
        return int(self.lab.query(query)[0][0])

    def save(self, engine: StatefulEngine) -> Savepoint:
        """Take the savepoint `SAVEPOINT` of an engine's newest checkpoint."""

        def describe(candidate: Candidate, code: Code) -> Savepoint:
            return Savepoint(
                name=SAVEPOINT,
                tier=TierName(self.tier),
                taken_at=time.time(),
                by="cli:anna",
                release=code.release,
                shape=None,
                number=candidate.number,
                batch=candidate.committed.batch,
                ends=dict(candidate.committed.ends),
                streams={},
                partitions=candidate.committed.partitions,
            )

        endings = engine._writer.ledger.last_batches(LEDGER_BATCHES)
        saved = self.checkpoints.save(SAVEPOINT, endings, describe)
        assert saved is not None
        return saved

    def restart(
        self, engine: StatefulEngine, number: int, partitions: int = STATE_PARTITIONS
    ) -> StatefulEngine:
        engine.hold()
        self.set_owner(number)
        return self.start(number, partitions)

    def go_back(
        self, engine: StatefulEngine, number: int, partitions: int = STATE_PARTITIONS
    ) -> StatefulEngine:
        """Stop the tier, and start it from the savepoint."""
        at = ends(self.lab, self.tier)
        assert at is not None
        self.savepoint = StartFrom(name=SAVEPOINT, after=self.last_number(), ends=at)
        return self.restart(engine, number, partitions)

    def set_owner(self, number: int) -> None:
        self.owner, self.epoch = number, self.epoch + 1

    def end(self) -> None:
        for engine in self.engines:
            engine.hold()
            engine.close()

    def wait_level(self, engine: StatefulEngine) -> None:
        """Wait until the tier's ledger has reached the end of its inputs."""
        streams = [stream.name for stream in self.pipeline.tier(self.tier).inputs]

        def is_level() -> bool:
            engine.check()
            engine.tick()
            streams_now = Streams(self.lab.endpoints.kafka)
            input_ends = streams_now.bounds(streams).ends
            streams_now.close()
            return ends(self.lab, self.tier) == input_ends

        until(f"{self.tier} has no lag", is_level)

    def wait_pruned(self, engine: StatefulEngine) -> None:
        """Wait until only the checkpoint of an engine's run is left.

        A task or an upload of an earlier run may bring its folder back, until the second removal.
        """
        folder = self.lab.home / "checkpoints" / self.tier
        until(
            "unneeded checkpoints are deleted",
            lambda: engine.tick() or [run.name for run in folder.iterdir()] == [engine._state.run],
            STRAGGLER_SECONDS + 20,
        )


def overtake(first: StatefulEngine, second: StatefulEngine, give: Callable[[], None]) -> None:
    """Wait until the second engine has written. The ledger then refuses the first, which holds."""

    def written() -> bool:
        give()
        with suppress(FencedError):
            first.check()
        second.check()
        return second.caught_up()

    until("the second engine has written", written)
    first.hold()
