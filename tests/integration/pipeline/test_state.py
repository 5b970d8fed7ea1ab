"""Tiers that hold state, on real Kafka and PostgreSQL: handed over, and ended anywhere, they say what the input says by hand."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field

import psycopg
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from ops.model.ids import HostName, Incarnation
from ops.model.incarnation import IncarnationSpec, Placement
from pipeline import declare
from pipeline.audit.__main__ import Auditor
from pipeline.driver.engine import Setting
from pipeline.driver.into_sink import QUIET_SECONDS
from pipeline.driver.jvm import launch
from pipeline.driver.session import open_session, settings
from pipeline.driver.streams import Streams
from pipeline.driver.with_state import WithState
from pipeline.joins import How
from pipeline.sinks.ledger import FencedError
from pipeline.sinks.table import Latest
from tests.integration.pipeline.given import Feed, ends, equation, table, windows
from tests.integration.pipeline.holding import JOINS
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.pipeline.holding"
PIPELINE = declare.load(PIPELINE_MODULE)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def feed(lab: Lab) -> Feed:
    return Feed(lab)


@pytest.fixture(scope="module")
def session(lab: Lab) -> Iterator[SparkSession]:
    spec = next(spec for spec in PIPELINE.specs() if spec.name == "by-window")
    place = Placement(driver=HostName("here"), slots=())
    mine = IncarnationSpec(tier=spec.name, incarnation=Incarnation(0), placement=place, reason="test", created_at=0)
    chosen = settings(spec, mine, "127.0.0.1", lab.home)
    for key in [key for key in chosen if ".resource." in key or key == "spark.cores.max"]:
        del chosen[key]
    # a JVM of its own, with the connector, whatever another test has started
    others, SparkContext._gateway, SparkContext._jvm = (SparkContext._gateway, SparkContext._jvm), None, None
    process = launch(900, lab.home)
    made = open_session("local[4]", chosen, process)
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()
    gateway = made.sparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    process.end(30)
    SparkContext._gateway, SparkContext._jvm = others
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        del os.environ[name]


@dataclass
class Runs:
    """The incarnations of one tier, in this process: who owns it, and by which right."""

    lab: Lab
    session: SparkSession
    tier: str
    owner: int = 0
    epoch: int = 0
    engines: list[WithState] = field(default_factory=list)

    def start(self, number: int) -> WithState:
        tier, where = PIPELINE.tier(self.tier), self.lab.where
        setting = Setting(
            self.session, tier, number, Streams(where.kafka), where.kafka, where.postgres, self.lab.home,
            list, lambda: self.epoch, lambda: self.owner == number,
        )  # fmt: skip
        assert isinstance(tier.sink, Latest)
        engine = WithState(setting, tier.sink)
        self.engines.append(engine)
        engine.run()
        return engine

    def own(self, number: int) -> None:
        self.owner, self.epoch = number, self.epoch + 1

    def level(self, engine: WithState) -> None:
        """Wait until all that is in the inputs is in the ledger."""
        streams = [stream.name for stream in PIPELINE.tier(self.tier).inputs]

        def done() -> bool:
            engine.check()
            engine.tick()
            looker = Streams(self.lab.where.kafka)
            there = looker.bounds(streams).ends
            looker.close()
            return ends(self.lab, self.tier) == there

        until(f"{self.tier} is level", done, 60)


def overtake(first: WithState, second: WithState, give: Callable[[], None]) -> None:
    """Wait until the second has taken its turn; the first is refused then, and holds."""

    def written() -> bool:
        give()
        with suppress(FencedError):
            first.check()
        second.check()
        return second.caught_up()

    until("the second has written", written, 60)
    first.hold()


@pytest.fixture
def begin(lab: Lab, session: SparkSession) -> Iterator[Callable[[str, int], Runs]]:
    """Return what makes the runs of a tier, beginning with an owner's number; they are ended afterwards."""
    made: list[Runs] = []

    def runs(tier: str, owner: int) -> Runs:
        made.append(Runs(lab, session, tier, owner, owner))
        return made[-1]

    yield runs
    for engine in (engine for each in made for engine in each.engines):
        engine.hold()
        engine.close()


def test_windows_are_those_of_the_input_whoever_counts_them(lab: Lab, begin: Callable[[str, int], Runs], feed: Feed) -> None:
    runs = begin("by-window", 1)
    feed.hits(1000)
    first = runs.start(1)
    runs.level(first)
    assert table(lab, "windows", 2) == windows(feed.given["hits"])

    # the next one runs beside the owner, and takes its turn
    second = runs.start(2)
    overtake(first, second, lambda: feed.hits(50))
    runs.own(2)
    assert (second.gap() or 0) < QUIET_SECONDS
    feed.hits(500)
    runs.level(second)
    assert table(lab, "windows", 2) == windows(feed.given["hits"])
    folder = lab.home / "checkpoints" / "by-window"
    until("what is not needed is gone", lambda: second.tick() or [run.name for run in folder.iterdir()] == ["2.0"], 20)

    # it is ended anywhere, and another one goes on
    for number in range(3, 6):
        feed.hits(200)
        time.sleep(number / 2)
        assert second._query is not None
        second._query.stop()
        runs.own(number)
        feed.hits(200)
        second = runs.start(number)
        runs.level(second)
    # so it is when Spark has not heard any more that a batch is written
    second.hold()
    max((max(folder.iterdir()) / "commits").glob("[0-9]*"), key=lambda path: int(path.name)).unlink()
    feed.hits(200)
    second.run()
    runs.level(second)
    second.hold()
    assert table(lab, "windows", 2) == windows(feed.given["hits"])
    assert equation(lab, "by-window") == feed.equation("hits")


def test_a_lost_checkpoint_is_made_again_from_the_input(lab: Lab, begin: Callable[[str, int], Runs], feed: Feed) -> None:
    runs = begin("by-window", 9)
    (lab.home / "checkpoints" / "by-window").rename(lab.home / "elsewhere")
    engine = runs.start(9)
    feed.hits(500)
    runs.level(engine)
    engine.hold()
    assert table(lab, "windows", 2) == windows(feed.given["hits"])
    assert equation(lab, "by-window") == feed.equation("hits")


def test_the_audit_finds_it_balanced_and_misses_a_row(lab: Lab, begin: Callable[[str, int], Runs], feed: Feed) -> None:
    runs, tier = begin("by-window", 10), PIPELINE.tier("by-window")
    with closing(Auditor((tier,), lab.where)) as auditor:
        assert auditor.look() == []
        engine = runs.start(10)
        feed.hits(100)
        runs.level(engine)
        assert auditor.look() == []
        feed.hits(100)
        runs.level(engine)
        engine.hold()
        with psycopg.connect(lab.where.postgres) as connection:
            connection.execute("DELETE FROM windows WHERE batch = (SELECT max(batch) FROM windows) AND who = 'user-1'")
        (missing,) = auditor.look()
    assert "rows, and" in missing.sentence


def test_a_state_of_its_own_goes_along(lab: Lab, begin: Callable[[str, int], Runs], feed: Feed) -> None:
    runs = begin("summed", 1)
    first = runs.start(1)
    runs.level(first)
    feed.hits(100)
    assert first._query is not None
    first._query.stop()
    runs.own(2)
    second = runs.start(2)
    feed.hits(100)
    runs.level(second)
    second.hold()
    sums: dict[tuple[str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for hit in feed.given["hits"]:
        hits, ids = sums[hit["who"],]
        sums[hit["who"],] = (hits + 1, ids + hit["id"])
    assert table(lab, "sums", 1) == sums
    assert equation(lab, "summed") == feed.equation("hits")


@pytest.mark.parametrize("how", JOINS)
def test_a_join_gives_each_result_once_and_for_all_though_it_moves(
    lab: Lab, begin: Callable[[str, int], Runs], feed: Feed, how: How
) -> None:
    tier = JOINS[how].name
    runs = begin(tier, 1)
    feed.sold(300)
    first = runs.start(1)
    runs.level(first)
    second = runs.start(2)
    feed.sold(100)
    hits, buys = len(feed.given["hits"]), len(feed.given["buys"])
    feed.number += 60_000  # ten minutes later, it is settled what has no partner
    overtake(first, second, lambda: feed.sold(50))
    runs.own(2)
    for _ in range(2):
        feed.sold(50)
        runs.level(second)
    second.hold()
    # by hand: the pairs of all that was given, and what is settled to have no partner
    pairs = {(buy["hit"], buy["id"]) for buy in feed.given["buys"] if buy["hit"] >= 0}
    unsold = {hit["id"] for hit in feed.given["hits"][:hits]} - {hit for hit, _ in pairs}
    orphans = {buy["id"] for buy in feed.given["buys"][:buys] if buy["hit"] < 0}
    alone = {"inner": set(), "left": {(hit, None) for hit in unsold}, "right": {(None, buy) for buy in orphans}}[how]
    left_out = {"inner": len(unsold) + len(orphans), "left": len(orphans), "right": len(unsold)}[how]
    assert set(lab.ask(f"select id, buy from {tier}")) == pairs | alone  # noqa: S608 — a name of this test's own
    assert equation(lab, tier) == feed.equation("hits", "buys", filtered=left_out)
