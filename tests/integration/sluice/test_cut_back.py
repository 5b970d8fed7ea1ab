"""A partition that loses its records while its topic keeps its id, and has more of them afterwards: nothing is skipped in silence."""

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
from tests.integration.sluice.topics import skip
from tests.lab import ROOT, Lab, opened, until
from tests.three_brokers import ThreeBrokers

PIPELINE_MODULE = "tests.integration.sluice.copying"
PIPELINE = declarations.load(PIPELINE_MODULE)
BROKERS = {"raw": [2], "copied": [3], "live": [2, 3], "steady": [2, 3]}
"""Which brokers have a stream; all others are on the first one."""
BEFORE, UNREAD, AFTER = 100, 20, 250
ELECTIONS = 4

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    made = ThreeBrokers(tmp_path_factory.mktemp("three"))
    yield made
    made.end()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, three: ThreeBrokers) -> Iterator[Lab]:
    for name, settings in topics.wanted(PIPELINE).items():
        where = [BROKERS.get(name, [1])]
        wanted = NewTopic(
            name, 1, replica_assignment=where, config=settings | {IN_SYNC: "1", UNCLEAN: "false"}
        )
        three.admin.create_topics([wanted])[name].result(30)
    with opened(
        tmp_path_factory.mktemp("pipeline"), PIPELINE_MODULE, partitions=1, kafka=three.address
    ) as made:
        yield made


def put(three: ThreeBrokers, stream: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": three.address, "log_level": 0})
    for number in range(first, first + count):
        producer.produce(stream, str(number), partition=0)
    assert producer.flush(60) == 0


class Load:
    """Puts numbers into a stream, each once, also while its leader changes."""

    def __init__(self, three: ThreeBrokers, stream: str) -> None:
        self.put = 0
        self._producer = Producer(
            {"bootstrap.servers": three.address, "enable.idempotence": True, "log_level": 0}
        )
        self._stream, self._over, self._thread = stream, threading.Event(), threading.Thread(target=self._put)

    def _put(self) -> None:
        while not self._over.wait(0.005):
            self._producer.produce(self._stream, str(self.put), partition=0)
            self._producer.poll(0)
            self.put += 1
        assert self._producer.flush(60) == 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def lines(streams: Streams, stream: str) -> set[int]:
    """Return the numbers in a stream that a tier wrote."""
    end = streams.bounds([stream]).ends[f"{stream}/0"]
    return {int(json.loads(each.value() or b"")["line"]) for each in streams.messages(f"{stream}/0", 0, end)}


def loaded(lab: Lab) -> set[int]:
    return {int(line) for (line,) in lab.query("select line from loaded")}


def said(lab: Lab, *words: str) -> Any:
    """Return what a command of `sluice` says, as JSON; some exit with an error where something is wrong."""
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
    """Have the only broker of a stream lose its disk; its topic is the same."""
    identities = Identities(three.address)
    before = identities.of([stream])
    three.replace_disk(BROKERS[stream][0], stream)
    assert identities.of([stream]) == before


def test_elections_that_lose_nothing_stop_no_tier_under_load(three: ThreeBrokers, lab: Lab) -> None:
    both = {2, 3}

    def settled_by(tier: str) -> int | None:
        report = lab.report(tier, 1)
        return None if report is None or report.settled is None else report.settled.epochs.get("steady/0")

    def kept() -> list[int]:
        return [int(line) for (line,) in lab.query("select line from kept")]

    with (
        closing(Streams(three.address)) as streams,
        closing(Auditor(PIPELINE.tiers, lab.endpoints)) as auditor,
    ):
        lab.start_owner("pass", 1, "h1")
        lab.start_owner("keep", 1, "h2")

        def go_on(load: Load) -> None:
            wanted = set(range(load.put + 100))
            until("the realtime tier goes on", lambda: wanted <= lines(streams, "passed"), seconds=120)
            until("the tier with a table goes on", lambda: wanted <= set(kept()), seconds=120)

        with Load(three, "steady") as load:
            go_on(load)
            for _ in range(ELECTIONS // 2):
                three.kill(2)
                until("the other one leads", lambda: three.leader("steady") == 3, seconds=90)
                go_on(load)
                three.start(2)
                until("both have all", lambda: three.in_sync("steady") == both, seconds=120)
                three.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("steady", 0)]).result(30)
                until("the first one leads again", lambda: three.leader("steady") == 2, seconds=60)
                go_on(load)
        wanted = list(range(load.put))
        until("all is in the table", lambda: len(kept()) >= load.put, seconds=60)
        assert sorted(kept()) == wanted, "each record is there once"
        until("all is in the stream", lambda: lines(streams, "passed") == set(wanted), seconds=60)
        identities = Identities(three.address)
        (_, epoch) = identities.ends(identities.ask_ends(["steady/0"]))["steady/0"]
        assert epoch >= ELECTIONS
        known = "select (epochs->>'0')::int from tier_streams where tier = 'keep'"
        until("the tier with a table knows the leader", lambda: lab.query(known) == [(epoch,)], seconds=60)
        until("the realtime tier knows it", lambda: settled_by("pass") == epoch, seconds=60)
        for tier in ("pass", "keep"):
            lab.wait_for(tier, 1, State.RUNNING)
            lab.stop(tier, 1)
        assert auditor.look() == []


def test_a_tier_survives_a_clean_election_and_stops_after_an_unclean_one(
    three: ThreeBrokers, lab: Lab
) -> None:
    place, identities = "live/0", Identities(three.address)

    def answer() -> tuple[int, int] | None:
        try:
            return identities.ends(identities.ask_ends([place]))[place]
        except StreamError:
            return None  # not yet

    def leader(expected: int) -> tuple[int, int]:
        until(f"{expected} leads", lambda: three.leader("live") == expected, seconds=90)
        found = until("its leader answers", answer, seconds=60)
        assert found is not None
        return found

    with closing(Streams(three.address)) as streams:
        lab.start_owner("follow", 1, "h1")
        put(three, "live", 0, 100)
        until("all is out", lambda: lines(streams, "followed") == set(range(100)))
        end, first = leader(2)
        assert end == 100
        three.kill(2)
        put(three, "live", 100, 30)
        end, second = leader(3)
        assert (end, second > first) == (130, True)
        assert identities.cut({place: 100}, {place: first}, {place: second}) == {}, (
            "the new leader has all that was read of the one before"
        )
        assert identities.cut({place: 110}, {place: first}, {place: second}) == {place: 100}, (
            "what was read behind it is the new one's, perhaps"
        )
        until("all is out of the new leader, too", lambda: lines(streams, "followed") == set(range(130)))
        until(
            "the tier has begun again",
            lambda: "leaders of the inputs were elected" in lab.log("follow", 1),
            seconds=60,
        )
        until(
            "it knows the new leader",
            lambda: (report := lab.report("follow", 1)) and f'"live/0":{second}' in report.model_dump_json(),
        )
        lab.wait_for("follow", 1, State.RUNNING)

        three.kill(3)
        three.start(2)
        three.force_leader(2, "live")
        leader(2)
        put(three, "live", 1000, 60)
        end, third = leader(2)
        assert end == 160, "it is longer than what was read"
        assert identities.cut({place: 130}, {place: second}, {place: third}) == {place: 100}
        error = str(lab.wait_for("follow", 1, State.FAILED).error)
        assert "live/0 was cut back to offset 100, and was read up to 130" in error
        assert lines(streams, "followed") == set(range(130)), "nothing was read from the old offset"
        lab.stop("follow", 1)
        three.start(3)
        until("three brokers are up", lambda: three.count() == 3, seconds=90)


def test_a_table_goes_on_by_skip_where_its_stream_was_cut_back(three: ThreeBrokers, lab: Lab) -> None:
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
        until("all is out", lambda: (len(loaded(lab)), copied()) == (BEFORE, BEFORE))
        lab.set_owner("load", 1, paused=True)
        stopped = lab.wait_for("load", 1, State.PAUSED).stopped_at
        assert stopped is not None
        assert set(stopped.epochs) == {"copied/0"}
        put(three, "raw", BEFORE, UNREAD)
        until("more waits for the tier", lambda: copied() == BEFORE + UNREAD)
        assert auditor.look() == []

        lose(three, "copied")
        put(three, "raw", BEFORE + UNREAD, AFTER)
        until("the stream is longer than before", lambda: copied() >= AFTER)
        lab.set_owner("load", 1)
        error = str(lab.wait_for("load", 1, State.FAILED).error)
        assert "copied/0 was cut back to offset 0, and was read up to 100" in error
        assert "`sluice skip load`" in error
        (status,) = [tier for tier in said(lab, "status")["tiers"] if tier["name"] == "load"]
        assert "copied/0 was cut back to offset 0" in status["error"]
        lab.stop("load", 1)
        assert len(loaded(lab)) == BEFORE, "nothing was read from the old offset"

        (told,) = auditor.look()
        assert told.sentence.startswith("copied/0 was cut back from offset 120 to 0"), told
        assert told.records == UNREAD
        found = said(lab, "audit")
        assert (found["ok"], found["lost"], [loss["records"] for loss in found["losses"]]) == (
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
            "every record that is there is delivered",
            lambda: wanted - loaded(lab) <= set(range(BEFORE, BEFORE + UNREAD)),
        )
        assert auditor.look() == [], "it is told once"

        lose(three, "copied")  # while it runs
        put(three, "raw", BEFORE + UNREAD + AFTER, 2 * AFTER)
        assert "was cut back" in str(lab.wait_for("load", 2, State.FAILED).error)
        assert loaded(lab) <= wanted, "nothing was read from the old offset"
        lab.stop("load", 2)
        lab.stop("copy", 1)


def test_an_output_that_was_cut_back_stops_its_tier_with_the_way_out(three: ThreeBrokers, lab: Lab) -> None:
    with (
        closing(Streams(three.address)) as streams,
        closing(Auditor(PIPELINE.tiers, lab.endpoints)) as auditor,
    ):
        before = streams.bounds(["raw"]).ends["raw/0"]
        lab.start_owner("copy", 2, "h1")
        put(three, "raw", before, BEFORE)
        until("all is out", lambda: before + BEFORE - 1 in lines(streams, "copied"))
        auditor.look()
        lab.set_owner("copy", 2, paused=True)
        lab.wait_for("copy", 2, State.PAUSED)
        out = streams.bounds(["copied"]).ends
        lose(three, "raw")
        put(three, "raw", 10_000, before + 2 * BEFORE)
        lab.set_owner("copy", 2)
        error = str(lab.wait_for("copy", 2, State.FAILED).error)
        assert "raw/0 was cut back to offset 0, and was read up to" in error
        assert "give the stream another name" in error
        assert streams.bounds(["copied"]).ends == out, "nothing was read from the old offset"
        assert any(missing.sentence.startswith("raw/0 was cut back") for missing in auditor.look())
        refused = skip(lab, "copy")
        assert refused.returncode == 1
        assert "raw/0 was cut back to offset 0" in refused.stderr
        lab.stop("copy", 2)
