"""A spike answers itself: ten times the rate for a tier that waits for a slow service.

In mode `act`, the scaler wakes the spare, takes the free slot and the night's slot, and bursts to
EC2; afterwards it hands all of it back. Each step is a run in Airflow with its reason, and each
record is kept once. So it is if the controller is killed in each change. In mode `advise`, the
scaler says the same, and does nothing.

The test has a platform of its own, with the pipeline `slow_service`. It writes `spike.json` and
`spike.svg` into this platform's home; `docs/spike/plot.py` draws the plot.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import boto3
import pytest
from confluent_kafka import Message, Producer

from docs.spike.plot import plot
from tests.scenarios.conftest import HOME, platform
from tests.scenarios.live import WAIT_SECONDS, Live, until
from tests.scenarios.slow_service import PARTITIONS
from tests.scenarios.timeline import (
    AT_WORK,
    FREE,
    LENT,
    ON_EC2,
    SPARE,
    Sample,
    Timeline,
    controller_killed_in_each_change,
)

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(3600), pytest.mark.filterwarnings("ignore")]

TIER = "ask"
CALM, SPIKE = 6.0, 60.0
"""Records a second. One worker answers some 19."""
ROOM = 4
"""The slots of `ask` and batch at home."""
BEFORE = {AT_WORK: 1, SPARE: 1, LENT: 1, FREE: 1, ON_EC2: 0}
MOST_AT_HOME, MOST_ON_EC2 = ROOM, 1
CATCH_UP_SECONDS = 180.0
"""The stated time, `catch_up`: from all workers at work until the lag is gone."""
NO_LAG_SECONDS = 5.0
"""Records that wait for less are no lag: the next micro-batch takes them."""
LEARN_SECONDS = 40.0
"""For so long, the calm rate shows what a worker can do."""
FIRST_SECONDS, ALL_SECONDS = 90.0, 300.0
"""From the beginning of the spike until the spare works, and until all workers do.

On a machine whose processors are busy, the second growth waits a minute or two until it is known
that the new workers only wait.
"""
BACK_SECONDS = 600.0
"""From the end of the spike until all is handed back: three decisions, and the way off EC2."""
RUNS_SECONDS = 240.0
"""A change at home gets its run once the burst or leave has ended, for which `scaler` waits."""
ADVICE_SECONDS = 180.0
QUIET_SECONDS = 30.0
"""For so long, advice is seen to change nothing."""
TOGETHER_SECONDS = 10.0
"""Spare, free slot and lent slot are taken in one change, and seen with some delay."""
RANGE = 1_000_000
"""The size of one feed's range of numbers."""
FEED_SECONDS = 0.02


def site() -> dict[str, Any]:
    """Return the site: `ask` and batch have four slots on h2 and h3, and one more fits on EC2."""
    hosts = [
        {"name": name, "address": f"127.0.1.{number}", "capacity": {"cpu": cpu, "memory": "8g"}}
        for number, (name, cpu) in enumerate({"h1": 4, "h2": 2.5, "h3": 2.5}.items(), start=1)
    ]
    for host in hosts[1:]:
        host["labels"] = ["wide"]
    hour = datetime.now(UTC).hour
    one = {"minimum": 1, "target": 1, "maximum": 1}
    return {
        "pipeline": "tests.scenarios.slow_service",
        "partitions": PARTITIONS,
        "replication": 1,
        "hosts": hosts,
        "repair": False,
        "locality": {"receive": "h1", "keep": "h1", TIER: "label:wide", "batch": "label:wide"},
        "shares": {
            "receive": one,
            TIER: {"minimum": 1, "target": 1, "maximum": MOST_AT_HOME + MOST_ON_EC2, "spare": 1},
            "keep": one,
            "batch": {"minimum": 0, "target": 0, "maximum": 1},
        },
        "batch_quantum": {"cpu": 1, "memory": 750, "threads": 1},
        "shifts": {
            "night": {"schedule": f"0 {(hour + 11) % 24} * * *", "shares": {"batch": 1}},
            "day": {"schedule": f"0 {(hour + 12) % 24} * * *", "shares": {}},
        },
        "ec2": {"capacity": {"cpu": 1, "memory": 1024}, "max_instances": MOST_ON_EC2},
        "scaler": {
            "defaults": {"mode": "off"},
            "tiers": {
                TIER: {
                    "mode": "advise",
                    "burst": True,
                    "catch_up": CATCH_UP_SECONDS,
                    "step": 3,
                    "grow_after": 10,
                    "shrink_after": 30,
                    "cool_down": 15,
                    "changes_per_hour": 60,
                }
            },
        },
    }


class Feed:
    """Feeds numbered questions at `rate`, which may change, inside `with Feed(live) as feed:`."""

    def __init__(self, live: Live) -> None:
        self.rate = CALM
        self.first = time.time_ns() // 10**9 * RANGE
        self.count = 0
        self._live = live
        self._failed = 0

    def __enter__(self) -> Self:
        settings = {"acks": "all", "enable.idempotence": True, "linger.ms": 20}
        self._producer = Producer({**self._live.kafka, **settings})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()
        return self

    def _loop(self) -> None:
        def note(error: object, _message: Message) -> None:
            self._failed += error is not None

        due, last = 0.0, time.monotonic()
        while not self._stopped.wait(FEED_SECONDS):
            now = time.monotonic()
            due, last = due + self.rate * (now - last), now
            while self.count < int(due):
                question = {"number": self.first + self.count, "at": int(time.time() * 1000)}
                self._producer.produce(
                    "raw", json.dumps(question), partition=self.count % PARTITIONS, on_delivery=note
                )
                self.count += 1
            self._producer.poll(0)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        left = self._producer.flush(30)
        assert (left, self._failed) == (0, 0), "Kafka has taken each question"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def kept(self) -> tuple[int, int]:
        """Return the rows of this feed in the last table, and their different numbers."""
        query = "select count(*), count(distinct number) from kept where number between %s and %s"
        rows, numbers = self._live.rows(query, self.first, self.first + RANGE - 1)[0]
        return int(rows), int(numbers)

    def check(self) -> None:
        """Assert that each question was answered and kept exactly once."""
        until(
            f"all {self.count} questions are kept",
            WAIT_SECONDS * 3,
            lambda: self.kept()[1] >= self.count,
            every=1.0,
        )
        assert self.kept() == (self.count, self.count), "rows and different numbers are those fed"
        audit = json.loads(self._live.sluice("audit", "--json", check=False).stdout)
        assert audit["lost"] == [], f"the platform's audit reports losses: {audit}"


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with platform(HOME.with_name(f"{HOME.name}-spike"), site()) as running:
        running.wait_for_class_data()
        yield running


@pytest.fixture(autouse=True)
def complete_pipeline(live: Live) -> None:
    """Before each test, let the night begin: only advice, a slot lent to batch, nothing on EC2."""
    until("all tiers run", WAIT_SECONDS, lambda: all_run(live), every=1.0)
    live.sluice("scaler", "advise", TIER)
    if any(host["zone"] == "ec2" for host in live.hosts().values()):
        live.sluice("leave", seconds=600)
    live.sluice("shift", "night", seconds=600)


def all_run(live: Live) -> bool:
    tiers = live.tiers()
    return bool(tiers) and all(tier["state"] == "running" for tier in tiers.values())


def instances(live: Live) -> dict[str, str]:
    """Return the states of all instances that EC2 knows, also of those that are terminated."""
    cloud = boto3.client(
        "ec2",
        region_name="eu-central-1",
        endpoint_url=live.endpoints["ec2"],
        aws_access_key_id="embedded",
        aws_secret_access_key="embedded",
    )
    reservations = cloud.describe_instances()["Reservations"]
    return {
        each["InstanceId"]: each["State"]["Name"] for group in reservations for each in group["Instances"]
    }


def runs_of_scaler(live: Live, dag: str) -> dict[str, dict[str, Any]]:
    """Return the runs of a DAG that the scaler has triggered, by id."""
    runs = live.airflow_api("GET", f"/dags/{dag}/dagRuns?limit=100&order_by=-id")["dag_runs"]
    return {run["dag_run_id"]: run for run in runs if run["dag_run_id"].startswith("scaler__")}


def seen(sample: Sample) -> dict[str, int]:
    return {use: sample.slots[use] for use in BEFORE}


def is_calm(timeline: Timeline) -> bool:
    last = timeline.last
    return seen(last) == BEFORE and last.lag <= NO_LAG_SECONDS * SPIKE


def learn(timeline: Timeline) -> None:
    """Wait until the night has begun, and the scaler knows what a worker can do."""
    timeline.expect(
        f"before the spike, the slots are {BEFORE}, and nothing lags",
        WAIT_SECONDS * 3,
        lambda: is_calm(timeline),
    )
    time.sleep(LEARN_SECONDS)
    timeline.expect(
        "the scaler knows the rate of a worker, and wants no more than one",
        WAIT_SECONDS,
        lambda: (
            timeline.decisions and timeline.decisions[-1][:2] == (1, 0) and "not known" not in timeline.reason
        ),
    )


@pytest.mark.parametrize("is_killed", [False, True], ids=["alone", "killed-in-each-change"])
def test_the_scaler_answers_a_spike_and_hands_all_back(live: Live, is_killed: bool) -> None:
    launched_before, runs_before = set(instances(live)), all_runs(live)
    with ExitStack() as stack:
        feed = stack.enter_context(Feed(live))
        timeline = stack.enter_context(Timeline(live, TIER, ROOM, lambda: feed.rate))
        learn(timeline)
        killed = stack.enter_context(controller_killed_in_each_change(timeline)) if is_killed else {}
        live.sluice("scaler", "act", TIER)
        zero = spike_begins(timeline, feed)
        try:
            grows(timeline, zero)
            clears_the_lag(timeline)
            calm_again = calm_begins(timeline, feed)
            hands_back(timeline, calm_again)
        finally:
            timeline.save(live.home / f"spike{'-killed' if is_killed else ''}.json", zero)
        feed.stop()
        feed.check()
        are_terminated(timeline, launched_before)
        are_runs_with_reasons(timeline, runs_before)
        assert not is_killed or killed.keys() >= timeline.changes.keys(), (
            f"the controller was killed in {killed}, and the changes were {[*timeline.changes]}"
        )
        live.sluice("scaler", "advise", TIER)
    if not is_killed:
        plot(live.home / "spike.json", live.home / "spike.svg")
        print(f"the timeline is {live.home / 'spike.json'}, and its plot spike.svg beside it")


def spike_begins(timeline: Timeline, feed: Feed) -> float:
    feed.rate = SPIKE
    timeline.tell(f"the spike begins: {SPIKE:.0f} records/s instead of {CALM:.0f}")
    return time.time()


def calm_begins(timeline: Timeline, feed: Feed) -> float:
    feed.rate = CALM
    timeline.tell("the spike is over")
    return time.time()


def grows(timeline: Timeline, zero: float) -> None:
    """The means come in their order: spare, free slot, lent slot, EC2."""
    timeline.expect("the spare works", FIRST_SECONDS, lambda: timeline.last.slots[AT_WORK] >= 2)
    assert "wakes 1 spare" in next(why for wanted, _, why in timeline.decisions if wanted > 1)

    def all_work() -> bool:
        slots, changes = timeline.last.slots, timeline.changes.values()
        return (slots[AT_WORK], slots[ON_EC2]) == (MOST_AT_HOME, MOST_ON_EC2) and any(
            change.spec.kind == "burst" and change.state == "done" for change in changes
        )

    timeline.expect(
        f"{MOST_AT_HOME} workers at home and {MOST_ON_EC2} on EC2 work, and the burst is done",
        ALL_SECONDS,
        all_work,
    )
    means = {
        "the spare works": timeline.first(lambda sample: sample.slots[AT_WORK] >= 2, zero),
        "no slot is free": timeline.first(lambda sample: sample.slots[FREE] == 0, zero),
        "batch has given its slot back": timeline.first(lambda sample: sample.slots[LENT] == 0, zero),
        "EC2 is used": timeline.first(lambda sample: sample.slots[ON_EC2] >= 1, zero),
    }
    come_in_order(timeline, "beginning", means, zero)


def come_in_order(timeline: Timeline, since: str, times: dict[str, float], zero: float) -> None:
    """Assert that events come in their order; those of one change may come together."""
    seconds = {event: round(at - zero, 1) for event, at in times.items()}
    timeline.tell(f"seconds since the {since} of the spike: {seconds}")
    for (event, at), (later, at_later) in pairwise(times.items()):
        assert at <= at_later + TOGETHER_SECONDS, f"{later} before {event}: {seconds}\n{timeline.story()}"


def clears_the_lag(timeline: Timeline) -> None:
    took = timeline.expect(
        f"no record waits for more than {NO_LAG_SECONDS:.0f} s while the spike lasts",
        CATCH_UP_SECONDS,
        lambda: timeline.last.lag <= NO_LAG_SECONDS * SPIKE,
    )
    timeline.tell(f"all workers needed {took:.0f} s for the backlog; stated are {CATCH_UP_SECONDS:.0f} s")


def hands_back(timeline: Timeline, since: float) -> None:
    """The newest cost goes first: EC2, then slots at home; batch has its slot again."""
    timeline.expect(
        f"all is handed back: the slots are {BEFORE} again",
        BACK_SECONDS,
        lambda: seen(timeline.last) == BEFORE,
    )
    steps = {
        "EC2 is left": timeline.first(lambda sample: sample.slots[ON_EC2] == 0, since),
        "workers at home go": timeline.first(lambda sample: sample.slots[AT_WORK] < MOST_AT_HOME, since),
        "batch has its slot again": timeline.first(lambda sample: sample.slots[LENT] == 1, since),
    }
    come_in_order(timeline, "end", steps, since)


def are_terminated(timeline: Timeline, before: set[str]) -> None:
    def launched() -> dict[str, str]:
        return {name: state for name, state in instances(timeline.live).items() if name not in before}

    timeline.expect(
        "each instance that was launched is terminated",
        WAIT_SECONDS,
        lambda: launched() and {*launched().values()} == {"terminated"},
    )


def all_runs(live: Live) -> dict[str, set[str]]:
    return {dag: {*runs_of_scaler(live, dag)} for dag in ("follow_change", "burst_to_ec2", "leave_ec2")}


def are_runs_with_reasons(timeline: Timeline, before: dict[str, set[str]]) -> None:
    """Each change of the scaler has its run, with the decision's sentence as its note."""
    live = timeline.live
    expected = {change.run: change.reason for change in timeline.begun.values()}
    assert expected, "the scaler has begun changes"

    def unfinished() -> dict[str, str]:
        runs = runs_of_scaler(live, "follow_change")
        states = {run: runs[run]["state"] if run in runs else "missing" for run in expected}
        return {run: state for run, state in states.items() if state != "success"}

    timeline.expect(
        "each change of the scaler is a run that succeeded", RUNS_SECONDS, lambda: not unfinished()
    )
    runs = runs_of_scaler(live, "follow_change")
    assert {run: runs[run]["note"] for run in expected} == expected, "each run has its reason as its note"
    causes = {why for _, _, why in timeline.decisions}
    for dag in ("burst_to_ec2", "leave_ec2"):
        new = {run: each for run, each in runs_of_scaler(live, dag).items() if run not in before[dag]}
        states = {run: each["state"] for run, each in new.items()}
        assert states, f"{dag} has a run of the scaler"
        assert {*states.values()} == {"success"}, f"{dag}: {states}"
        assert {each["note"] for each in new.values()} <= causes, (
            f"{dag}: {new}, and the reasons were {causes}"
        )


def test_advice_says_the_same_and_does_nothing(live: Live) -> None:
    launched_before, runs_before = instances(live), all_runs(live)
    with Feed(live) as feed, Timeline(live, TIER, ROOM, lambda: feed.rate) as timeline:
        learn(timeline)
        zero = spike_begins(timeline, feed)
        timeline.expect(
            f"the scaler advises {MOST_AT_HOME} workers at home and {MOST_ON_EC2} on EC2",
            ADVICE_SECONDS,
            lambda: timeline.decisions[-1][:2] == (MOST_AT_HOME, MOST_ON_EC2),
        )
        advice = [why for wanted, _, why in timeline.decisions if wanted > 1]
        assert "wakes 1 spare" in advice[0], advice
        assert f"{MOST_ON_EC2} of them by a burst" in advice[-1], advice
        time.sleep(QUIET_SECONDS)
        assert timeline.last.at > time.time() - QUIET_SECONDS, "samples still come"
        others = [seen(sample) for sample in timeline.samples if sample.at >= zero and seen(sample) != BEFORE]
        assert others == [], f"the slots stay {BEFORE}"
        assert timeline.changes == {}, "the scaler begins no change"
        assert all_runs(live) == runs_before, "no run in Airflow follows"
        assert instances(live) == launched_before, "no instance is launched"
        feed.stop()
        # One worker would need minutes for the backlog.
        live.sluice("scale", TIER, str(MOST_AT_HOME), "--for", "2m", seconds=600)
        feed.check()
        timeline.expect(
            f"after the person's number, the slots are {BEFORE} again",
            BACK_SECONDS,
            lambda: is_calm(timeline),
        )
