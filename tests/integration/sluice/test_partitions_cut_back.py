"""A partition that loses its records and then gets more, while its topic keeps its id: no record is
skipped silently.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Self

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from sluice.api import declarations
from sluice.audit.__main__ import Auditor
from sluice.kafka import topics
from sluice.kafka.durability import IN_SYNC, UNCLEAN
from sluice.kafka.reader import StreamError, Streams
from sluice.kafka.stream_identity import Identities
from sluice_ops.model.incarnation import State
from tests.integration.sluice.stream_helpers import skip
from tests.lab import ROOT, Lab, opened, until
from tests.three_brokers import ThreeBrokers

PIPELINE_MODULE = "tests.integration.sluice.copying_pipeline"
PIPELINE = declarations.load(PIPELINE_MODULE)
BROKERS = {"raw": [2], "copied": [3], "live": [2, 3], "steady": [2, 3]}
"""The brokers of each stream; all other streams are on broker 1."""
BEFORE, UNREAD, AFTER = 100, 20, 250
ELECTIONS = 4

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    brokers = ThreeBrokers(tmp_path_factory.mktemp("three"))
    yield brokers
    brokers.end()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, three: ThreeBrokers) -> Iterator[Lab]:
    for name, settings in topics.wanted(PIPELINE).items():
        assignment = [BROKERS.get(name, [1])]
        topic = NewTopic(
            name, 1, replica_assignment=assignment, config=settings | {IN_SYNC: "1", UNCLEAN: "false"}
        )
        three.admin.create_topics([topic])[name].result(30)
    with opened(
        tmp_path_factory.mktemp("pipeline"), PIPELINE_MODULE, partitions=1, kafka=three.address
    ) as opened_lab:
        yield opened_lab


def put(three: ThreeBrokers, stream: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": three.address, "log_level": 0})
    for number in range(first, first + count):
        producer.produce(stream, str(number), partition=0)
    assert producer.flush(60) == 0


class Load:
    """Writes numbers into a stream, each once, also during elections."""

    def __init__(self, three: ThreeBrokers, stream: str) -> None:
        self.put = 0
        self._producer = Producer(
            {"bootstrap.servers": three.address, "enable.idempotence": True, "log_level": 0}
        )
        self._stream, self._stopped, self._thread = (
            stream,
            threading.Event(),
            threading.Thread(target=self._put),
        )

    def _put(self) -> None:
        while not self._stopped.wait(0.005):
            self._producer.produce(self._stream, str(self.put), partition=0)
            self._producer.poll(0)
            self.put += 1
        assert self._producer.flush(60) == 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


def lines(streams: Streams, stream: str) -> set[int]:
    """Return the numbers in a stream that a tier wrote."""
    end = streams.bounds([stream]).ends[f"{stream}/0"]
    return {
        int(json.loads(message.value() or b"")["line"]) for message in streams.messages(f"{stream}/0", 0, end)
    }


def loaded(lab: Lab) -> set[int]:
    return {int(line) for (line,) in lab.query("select line from loaded")}


def sluice(lab: Lab, *words: str) -> Any:
    """Return the JSON output of a command of `sluice`, also if the command exits with an error."""
    command = [
        sys.executable,
        "-c",
        "import sys; from sluice_ops.main import app; app(sys.argv[1:])",
        *words,
        "--json",
    ]
    done = subprocess.run(
        command, env=lab.env, cwd=ROOT, check=False, capture_output=True, text=True, timeout=60
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def lose(three: ThreeBrokers, stream: str) -> None:
    """Destroy the disk of a stream's only broker; the topic keeps its id."""
    identities = Identities(three.address)
    before = identities.of([stream])
    three.replace_disk(BROKERS[stream][0], stream)
    assert identities.of([stream]) == before


def test_elections_that_lose_nothing_stop_no_tier_under_load(three: ThreeBrokers, lab: Lab) -> None:
    both_brokers = {2, 3}

    def settled_by(tier: str) -> int | None:
        report = lab.report(tier, 1)
        return None if report is None or report.settled is None else report.settled.epochs.get("steady/0")

    def kept_numbers() -> list[int]:
        return [int(line) for (line,) in lab.query("select line from kept")]

    with (
        closing(Streams(three.address)) as streams,
        closing(Auditor(PIPELINE.tiers, lab.endpoints)) as auditor,
    ):
        lab.start_owner("pass", 1, "h1")
        lab.start_owner("keep", 1, "h2")

        def assert_flows(load: Load) -> None:
            wanted = set(range(load.put + 100))
            until("the realtime tier continues", lambda: wanted <= lines(streams, "passed"), seconds=120)
            until("the tier with a table continues", lambda: wanted <= set(kept_numbers()), seconds=120)

        with Load(three, "steady") as load:
            assert_flows(load)
            for _ in range(ELECTIONS // 2):
                three.kill(2)
                until("the other broker leads", lambda: three.leader("steady") == 3, seconds=90)
                assert_flows(load)
                three.start(2)
                until(
                    "both replicas are in sync", lambda: three.in_sync("steady") == both_brokers, seconds=120
                )
                three.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("steady", 0)]).result(30)
                until("the first broker leads again", lambda: three.leader("steady") == 2, seconds=60)
                assert_flows(load)
        wanted = list(range(load.put))
        until("every record is in the table", lambda: len(kept_numbers()) >= load.put, seconds=60)
        assert sorted(kept_numbers()) == wanted, "each record is in the table once"
        until("every record is in the stream", lambda: lines(streams, "passed") == set(wanted), seconds=60)
        identities = Identities(three.address)
        (_, epoch) = identities.ends(identities.ask_ends(["steady/0"]))["steady/0"]
        assert epoch >= ELECTIONS
        known_epoch = "select (epochs->>'0')::int from tier_streams where tier = 'keep'"
        until(
            "the tier with a table knows the leader", lambda: lab.query(known_epoch) == [(epoch,)], seconds=60
        )
        until("the realtime tier knows the leader", lambda: settled_by("pass") == epoch, seconds=60)
        for tier in ("pass", "keep"):
            lab.wait_for(tier, 1, State.RUNNING)
            lab.stop(tier, 1)
        assert auditor.check() == []


def test_a_tier_survives_a_clean_election_and_stops_after_an_unclean_one(
    three: ThreeBrokers, lab: Lab
) -> None:
    place, identities = "live/0", Identities(three.address)

    def end_and_epoch() -> tuple[int, int] | None:
        try:
            return identities.ends(identities.ask_ends([place]))[place]
        except StreamError:
            return None  # the new leader does not answer yet

    def leader(expected: int) -> tuple[int, int]:
        until(f"{expected} leads", lambda: three.leader("live") == expected, seconds=90)
        answer = until("its leader answers", end_and_epoch, seconds=60)
        assert answer is not None
        return answer

    with closing(Streams(three.address)) as streams:
        lab.start_owner("follow", 1, "h1")
        put(three, "live", 0, 100)
        until("every record is out", lambda: lines(streams, "followed") == set(range(100)))
        end, first = leader(2)
        assert end == 100
        three.kill(2)
        put(three, "live", 100, 30)
        end, second = leader(3)
        assert (end, second > first) == (130, True)
        assert identities.cut({place: 100}, {place: first}, {place: second}) == {}, (
            "the new leader has every record that was read from the old one"
        )
        assert identities.cut({place: 110}, {place: first}, {place: second}) == {place: 100}, (
            "records beyond the old leader's end may belong to the new one"
        )
        until("the new leader's records are out too", lambda: lines(streams, "followed") == set(range(130)))
        until(
            "the tier's query has restarted",
            lambda: "leaders of the inputs were elected" in lab.log("follow", 1),
            seconds=60,
        )
        until(
            "the tier knows the new leader",
            lambda: (report := lab.report("follow", 1)) and f'"live/0":{second}' in report.model_dump_json(),
        )
        lab.wait_for("follow", 1, State.RUNNING)

        three.kill(3)
        three.start(2)
        three.force_leader(2, "live")
        leader(2)
        put(three, "live", 1000, 60)
        end, third = leader(2)
        assert end == 160, "the partition is longer than what was read"
        assert identities.cut({place: 130}, {place: second}, {place: third}) == {place: 100}
        error = str(lab.wait_for("follow", 1, State.FAILED).error)
        assert "live/0 was cut back to offset 100, and was read up to 130" in error
        assert lines(streams, "followed") == set(range(130)), "no record was read from the old offset"
        lab.stop("follow", 1)
        three.start(3)
        until("three brokers are up", lambda: three.count() == 3, seconds=90)


def test_skip_lets_a_table_continue_after_its_stream_was_cut_back(three: ThreeBrokers, lab: Lab) -> None:
    with (
        closing(Streams(three.address)) as streams,
        closing(Auditor(PIPELINE.tiers, lab.endpoints)) as auditor,
    ):

        def copied() -> int:
            try:
                return sum(streams.bounds(["copied"]).ends.values())
            except StreamError:
                return -1  # the client does not know the new leader yet

        lab.start_owner("copy", 1, "h1")
        lab.start_owner("load", 1, "h2")
        put(three, "raw", 0, BEFORE)
        until("every record is out", lambda: (len(loaded(lab)), copied()) == (BEFORE, BEFORE))
        lab.set_owner("load", 1, paused=True)
        stopped = lab.wait_for("load", 1, State.PAUSED).stopped_at
        assert stopped is not None
        assert set(stopped.epochs) == {"copied/0"}
        put(three, "raw", BEFORE, UNREAD)
        until("records wait for the tier", lambda: copied() == BEFORE + UNREAD)
        assert auditor.check() == []

        lose(three, "copied")
        put(three, "raw", BEFORE + UNREAD, AFTER)
        until("the stream is longer than before", lambda: copied() >= AFTER)
        lab.set_owner("load", 1)
        error = str(lab.wait_for("load", 1, State.FAILED).error)
        assert "copied/0 was cut back to offset 0, and was read up to 100" in error
        assert "`sluice skip load`" in error
        (status,) = [tier for tier in sluice(lab, "status")["tiers"] if tier["name"] == "load"]
        assert "copied/0 was cut back to offset 0" in status["error"]
        lab.stop("load", 1)
        assert len(loaded(lab)) == BEFORE, "no record was read from the old offset"

        (missing,) = auditor.check()
        assert missing.sentence.startswith("copied/0 was cut back from offset 120 to 0"), missing
        assert missing.records == UNREAD
        audit = sluice(lab, "audit")
        assert (audit["ok"], audit["lost"], [loss["records"] for loss in audit["losses"]]) == (
            False,
            ["load"],
            [UNREAD],
        )

        done = skip(lab, "load")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["skipped"] == [{"place": "copied/0:100", "records": 0}]
        lab.start_owner("load", 2, "h2")
        wanted = set(range(BEFORE + UNREAD + AFTER))
        until(
            "every remaining record is delivered",
            lambda: wanted - loaded(lab) <= set(range(BEFORE, BEFORE + UNREAD)),
        )
        assert auditor.check() == [], "the loss is reported once"

        lose(three, "copied")  # while the tier runs
        put(three, "raw", BEFORE + UNREAD + AFTER, 2 * AFTER)
        assert "was cut back" in str(lab.wait_for("load", 2, State.FAILED).error)
        assert loaded(lab) <= wanted, "no record was read from the old offset"
        lab.stop("load", 2)
        lab.stop("copy", 1)


def test_an_output_that_was_cut_back_stops_its_tier_with_the_remedy(three: ThreeBrokers, lab: Lab) -> None:
    with (
        closing(Streams(three.address)) as streams,
        closing(Auditor(PIPELINE.tiers, lab.endpoints)) as auditor,
    ):
        before = streams.bounds(["raw"]).ends["raw/0"]
        lab.start_owner("copy", 2, "h1")
        put(three, "raw", before, BEFORE)
        until("every record is out", lambda: before + BEFORE - 1 in lines(streams, "copied"))
        auditor.check()
        lab.set_owner("copy", 2, paused=True)
        lab.wait_for("copy", 2, State.PAUSED)
        out = streams.bounds(["copied"]).ends
        lose(three, "raw")
        put(three, "raw", 10_000, before + 2 * BEFORE)
        lab.set_owner("copy", 2)
        error = str(lab.wait_for("copy", 2, State.FAILED).error)
        assert "raw/0 was cut back to offset 0, and was read up to" in error
        assert "give the stream another name" in error
        assert streams.bounds(["copied"]).ends == out, "no record was read from the old offset"
        assert any(missing.sentence.startswith("raw/0 was cut back") for missing in auditor.check())
        refused = skip(lab, "copy")
        assert refused.returncode == 1
        assert "raw/0 was cut back to offset 0" in refused.stderr
        lab.stop("copy", 2)
