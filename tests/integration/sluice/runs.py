"""The incarnations of a tier with state, in a test's own process: its session, who owns the tier, and by which right."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from pyspark import SparkContext
from pyspark.sql import SparkSession

from sluice.api import declarations
from sluice.driver.engine.contract import Standalone
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.engine.stateful import StatefulEngine
from sluice.driver.spark.jvm import launch
from sluice.driver.spark.session import open_session, settings
from sluice.driver.state.checkpoint_store import Depot, Folder
from sluice.kafka.reader import Streams
from sluice.sinks.ledger import FencedError
from sluice.sinks.table import Latest
from sluice_ops.model.ids import HostName, Incarnation
from sluice_ops.model.incarnation import STATE_PARTITIONS, IncarnationSpec, Placement, Receipt
from tests.integration.sluice.given import ends
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.holding"
PIPELINE = declarations.load(PIPELINE_MODULE)


@contextmanager
def local_session(lab: Lab, depot: Depot | None = None) -> Iterator[SparkSession]:
    """Open a driver's session in a JVM of its own, with the connector, whatever another test has started."""
    spec = next(spec for spec in PIPELINE.specs() if spec.name == "by-window")
    place = Placement(driver=HostName("here"), slots=())
    mine = IncarnationSpec(
        tier=spec.name, incarnation=Incarnation(0), placement=place, reason="test", created_at=0
    )
    chosen = settings(spec, mine, "127.0.0.1", lab.home) | ({} if depot is None else depot.session)
    for key in [key for key in chosen if ".resource." in key or key == "spark.cores.max"]:
        del chosen[key]
    others, SparkContext._gateway, SparkContext._jvm = (SparkContext._gateway, SparkContext._jvm), None, None
    process = launch(900, lab.home)
    made = open_session("local[4]", chosen, process)
    made.sparkContext.setLogLevel("ERROR")
    gateway = made.sparkContext._gateway
    assert gateway is not None
    try:
        yield made
    finally:
        made.stop()
        gateway.shutdown()
        process.end(30)
        SparkContext._gateway, SparkContext._jvm = others
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            del os.environ[name]


class Ownership(Standalone):
    """What one incarnation is told: whether it owns the tier, and by which epoch."""

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
    """The incarnations of one tier, in this process: who owns it, and by which right."""

    lab: Lab
    session: SparkSession
    tier: str
    owner: int = 0
    epoch: int = 0
    depot: Depot | None = None
    max_offsets: int | None = None
    """The most records of a batch, where it is not what the tier says."""
    engines: list[StatefulEngine] = field(default_factory=list)
    receipts: dict[int, Receipt] = field(default_factory=dict)
    """Where each incarnation began."""

    def start(self, number: int, partitions: int = STATE_PARTITIONS) -> StatefulEngine:
        tier, where = PIPELINE.tier(self.tier), self.lab.endpoints
        tier = tier if self.max_offsets is None else replace(tier, max_offsets=self.max_offsets)
        config = EngineConfig(
            session=self.session,
            tier=tier,
            incarnation=number,
            streams=Streams(where.kafka),
            kafka=where.kafka,
            postgres=where.postgres,
            home=self.lab.home,
            partitions=partitions,
        )
        assert isinstance(tier.sink, Latest)
        self.session.conf.set(
            "spark.sql.shuffle.partitions", partitions
        )  # a driver's own session has it from the start
        engine = StatefulEngine(
            config, Ownership(self, number), tier.sink, self.depot or Folder(config.checkpoints)
        )
        self.engines.append(engine)
        self.receipts[number] = engine.run()
        return engine

    def own(self, number: int) -> None:
        self.owner, self.epoch = number, self.epoch + 1

    def end(self) -> None:
        for engine in self.engines:
            engine.hold()
            engine.close()

    def level(self, engine: StatefulEngine) -> None:
        """Wait until all that is in the inputs is in the ledger."""
        streams = [stream.name for stream in PIPELINE.tier(self.tier).inputs]

        def done() -> bool:
            engine.check()
            engine.tick()
            looker = Streams(self.lab.endpoints.kafka)
            there = looker.bounds(streams).ends
            looker.close()
            return ends(self.lab, self.tier) == there

        until(f"{self.tier} is level", done)


def overtake(first: StatefulEngine, second: StatefulEngine, give: Callable[[], None]) -> None:
    """Wait until the second has taken its turn; the first is refused then, and holds."""

    def written() -> bool:
        give()
        with suppress(FencedError):
            first.check()
        second.check()
        return second.caught_up()

    until("the second has written", written)
    first.hold()
