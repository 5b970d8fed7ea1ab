"""Real processes are killed under load.

The pipeline runs completely again in time, runbooks end with the true state, and no record is lost
or duplicated.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import psutil
import pytest

from sluice_ops.channel import Channel
from sluice_ops.local.start.supervisord import Supervisor
from sluice_ops.model import paths
from sluice_ops.model.change import Step
from sluice_ops.model.exit_codes import AWAY
from sluice_ops.operations import requests
from sluice_ops.planning.changes.kinds import KINDS
from tests.scenarios.live import WAIT_SECONDS, Live, until
from tests.scenarios.oracle import Load, counts_agree

pytestmark = [pytest.mark.timeout(900)]
LONG = pytest.mark.long

RATE = 250
NEED_DATABASE = {"counts", "outbound"}


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def is_restarted(live: Live, service: str, before: int) -> bool:
    try:
        return live.service_pid(service) != before
    except AssertionError:  # the service does not run yet
        return False


def driver_of(live: Live, tier: str) -> int:
    incarnation = live.tiers()[tier]["incarnation"]
    return live.unit_pids(f"driver-{tier}-{incarnation}")[f"driver-{tier}-{incarnation}"]


def slot_of(live: Live, tier: str) -> int:
    incarnation = live.tiers()[tier]["incarnation"]
    return next(iter(live.unit_pids(f"slot-{tier}-{incarnation}-").values()))


def executor_of(live: Live, tier: str) -> int:
    for child in psutil.Process(slot_of(live, tier)).children(recursive=True):
        if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
            return child.pid
    message = f"no executor of {tier}"
    raise AssertionError(message)


def incarnations(live: Live) -> dict[str, int]:
    return {name: tier["incarnation"] for name, tier in live.tiers().items()}


def agent_of(live: Live, tier: str) -> int:
    return live.service_pid(f"agent-{live.tiers()[tier]['driver']['host']}")


VICTIMS: dict[str, Callable[[Live], int]] = {
    "the driver of a realtime tier": lambda live: driver_of(live, "entry"),
    "the driver of a batch tier": lambda live: driver_of(live, "outbound"),
    "an executor of a realtime tier": lambda live: executor_of(live, "enrich"),
    "an executor of a batch tier": lambda live: executor_of(live, "counts"),
    "a slot": lambda live: slot_of(live, "entry"),
    "an agent": lambda live: agent_of(live, "entry"),
}
QUICK = {"a slot", "an agent"}
"""Victims that recover in seconds; a slot takes its executor with it."""
HAS_OUTPUT: dict[str, Callable[[Load, int], bool]] = {
    "the driver of a batch tier": lambda load, fed: load.has_delivered(fed),
    "an executor of a batch tier": lambda load, _: load.has_counted(),
}
"""Tells whether hits up to a number have left a victim's tier; by default, whether they are in
`enriched`.
"""
RECOVERY_SECONDS = {"the driver of a realtime tier": 20.0, "the driver of a batch tier": 20.0, "a slot": 30.0}
"""The longest time without output for a tier without a standby, in seconds."""


@pytest.mark.parametrize(
    "victim", [pytest.param(victim, marks=[] if victim in QUICK else LONG) for victim in VICTIMS]
)
def test_a_process_is_killed_while_records_flow(live: Live, victim: str) -> None:
    live.wait_for_class_data()
    with Load(live, RATE) as load:
        pid = VICTIMS[victim](live)
        kill(pid)
        killed = time.monotonic()
        until(
            f"{victim} is gone",
            10,
            lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie",
            every=0.1,
        )
        time.sleep(2)  # records that were already under way have come out
        fed = max(load.raw.first_seen)
        is_out = HAS_OUTPUT.get(victim, lambda load, fed: load.enriched.has_all(load.raw, fed))
        until("hits fed meanwhile have come out", WAIT_SECONDS, lambda: is_out(load, fed), every=0.2)
        seconds = time.monotonic() - killed
        print(f"{victim}: output again within {seconds:.1f} s")
        until("all tiers run again", WAIT_SECONDS, live.all_running)
    load.check()
    assert seconds < RECOVERY_SECONDS.get(victim, WAIT_SECONDS)


@LONG
def test_an_agent_is_frozen_while_records_flow(live: Live) -> None:
    """The agent's host counts as lost, and its tiers run elsewhere; until then its units continue
    without the agent.
    """
    with Load(live, RATE) as load:
        host = live.tiers()["entry"]["driver"]["host"]
        owner, units = live.tiers()["entry"]["incarnation"], live.unit_pids("")
        agent = psutil.Process(agent_of(live, "entry"))
        agent.suspend()
        try:
            stopped = time.monotonic()
            until(
                f"{host} counts as lost",
                WAIT_SECONDS,
                lambda: live.hosts()[host]["state"] == "lost",
                every=0.2,
            )
            print(f"{host} counts as lost after {time.monotonic() - stopped:.1f} s")
            ended = {unit for unit, pid in units.items() if not psutil.pid_exists(pid)}
            assert not ended, "units run on without their agent"
            until(
                "`sluice status` reports the lost host",
                WAIT_SECONDS,
                lambda: re.search(rf"\b{host}\b.* lost|lost: .*\b{host}\b", live.sluice("status").stdout),
            )
            until("entry is moved", WAIT_SECONDS, lambda: live.tiers()["entry"]["incarnation"] > owner)
            until("all tiers run on other hosts", WAIT_SECONDS, live.all_running)
            assert all(host not in live.hosts_of(tier) for tier in live.tiers())
        finally:
            agent.resume()
        until(f"{host} is back", WAIT_SECONDS, lambda: live.hosts()[host]["state"] == "up")
        until(
            "the moved units have ended on the old host",
            WAIT_SECONDS,
            lambda: live.tier_processes_on(host) == [],
        )
    load.check()


DRAIN_VICTIMS: dict[str, Callable[[Live], int]] = {
    "the controller": lambda live: live.service_pid("controller"),
    "the Spark master": lambda live: live.service_pid("spark"),
    "Airflow's scheduler": lambda live: live.service_pid("airflow-scheduler"),
    "Airflow's triggerer": lambda live: live.service_pid("airflow-triggerer"),
    "the driver that the drain moves": lambda live: driver_of(live, "entry"),
}
MAY_END_A_DRAIN = {"the driver that the drain moves"}
"""Victims without which a drain may fail; the host is then in use again."""


@LONG
@pytest.mark.parametrize("victim", DRAIN_VICTIMS)
def test_a_process_is_killed_during_a_drain(live: Live, victim: str) -> None:
    with Load(live, RATE) as load:
        host = live.tiers()["entry"]["driver"]["host"]
        pid = DRAIN_VICTIMS[victim](live)
        run = live.trigger("drain_host", host=host)
        until(
            "the host is cordoned",
            WAIT_SECONDS,
            lambda: live.hosts()[host]["state"] in {"cordoned", "draining"},
        )
        kill(pid)
        state = live.wait_for_end("drain_host", run)
        until("all tiers run again", WAIT_SECONDS, live.all_running)
        if victim not in MAY_END_A_DRAIN:
            assert state == "success", live.log_of_failed("drain_host", run)
        if state == "success":
            assert live.tier_processes_on(host) == []
            assert live.hosts()[host]["state"] == "drained"
        else:
            assert live.hosts()[host]["state"] == "up", "after a failed drain, the host is in use"
    load.check()


def busy_airflow_worker(live: Live) -> list[psutil.Process]:
    """Return Airflow's worker process that executes a task, and the task's own processes."""
    for worker in psutil.Process(live.service_pid("airflow-scheduler")).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "LocalExecutor" in " ".join(worker.cmdline()) and (tasks := worker.children(recursive=True)):
                return [worker, *tasks]
    return []


def task_try(live: Live, run: str, task: str) -> tuple[str | None, int]:
    """Return the state of a drain's task, and the number of its try."""
    task_instance = live.airflow_api("GET", f"/dags/drain_host/dagRuns/{run}/taskInstances/{task}")
    return task_instance["state"], task_instance["try_number"]


def clear(live: Live, run: str, *tasks: str) -> None:
    """Clear tasks of a drain in any state."""
    request = {"dry_run": False, "only_failed": False, "dag_run_id": run, "task_ids": list(tasks)}
    live.airflow_api("POST", "/dags/drain_host/clearTaskInstances", request)


@LONG
def test_a_drain_survives_a_zombie_task_and_cleared_tasks(live: Live) -> None:
    """A worker dies after its task posted the first step, and a person clears two steps that the
    triggerer posted.
    """
    with Load(live, RATE) as load, Channel(live.endpoints["zookeeper"]) as channel:
        before = incarnations(live)
        host = live.tiers()["entry"]["driver"]["host"]
        on_host = {name for name in before if host in live.hosts_of(name)}
        run = live.trigger("drain_host", host=host)
        change = requests.change_id(f"drain_host.{run}")
        preflight, prepare = (
            paths.operation(requests.operation_id(change, step)) for step in (Step.PREFLIGHT, Step.PREPARE)
        )
        until("preflight is posted", WAIT_SECONDS, lambda: channel.exists(preflight), every=0.02)
        for process in busy_airflow_worker(live):
            process.kill()
        killed = time.monotonic()
        assert task_try(live, run, "preflight") == ("running", 1), "the worker died before its task ended"
        until(
            "Airflow finds the zombie, and retries preflight",
            WAIT_SECONDS,
            lambda: task_try(live, run, "preflight")[1] == 2,
        )
        print(f"the zombie was retried {time.monotonic() - killed:.0f} s after its worker was killed")
        until("prepare is posted", WAIT_SECONDS, lambda: channel.exists(prepare))
        until("prepare is waited for", WAIT_SECONDS, lambda: task_try(live, run, "prepare")[0] == "deferred")
        clear(live, run, "cordon", "prepare")
        until("prepare is waited for again", WAIT_SECONDS, lambda: task_try(live, run, "prepare")[1] >= 2)
        assert live.wait_for_end("drain_host", run) == "success", live.log_of_failed("drain_host", run)
        until("all tiers run again", WAIT_SECONDS, live.all_running)
        posted = {name for name in channel.children("/operations") if name.startswith(f"{change}.")}
        assert posted == {requests.operation_id(change, step) for step in KINDS["drain"].steps}, (
            "each step was posted once"
        )
        for name in posted:
            sentences = [entry.sentence for entry in requests.read_journal(channel, name)]
            assert len(sentences) == len(set(sentences)), f"{name} was carried out twice: {sentences}"
        moved = {name: incarnation - before[name] for name, incarnation in incarnations(live).items()}
        assert moved == {name: int(name in on_host) for name in before}, (
            "each tier of the host was moved once"
        )
        assert live.tier_processes_on(host) == []
        assert live.hosts()[host]["state"] == "drained"
    load.check()


@LONG
@pytest.mark.parametrize(
    "minutes", [1, pytest.param(10, marks=[pytest.mark.timeout(1500), pytest.mark.endurance])]
)
def test_zookeeper_is_frozen(live: Live, minutes: int) -> None:
    with Load(live, RATE) as load:
        before = incarnations(live)
        zookeeper = psutil.Process(live.service_pid("zookeeper"))
        zookeeper.suspend()
        try:
            stopped = time.time()
            while time.time() < stopped + 60 * minutes:
                time.sleep(15)
                assert max(load.enriched.first_seen.values()) > time.time() - 8, (
                    "records flow while ZooKeeper is frozen"
                )
            status = live.sluice("status", check=False)
            assert status.returncode == AWAY
            assert "Tiers run on, but no change is possible until ZooKeeper answers." in status.stdout
        finally:
            zookeeper.resume()
        until("all tiers run again", WAIT_SECONDS, live.all_running)
        assert incarnations(live) == before, "nothing moved"
    load.check()


@LONG
@pytest.mark.parametrize("service", ["kafka", "postgres"])
def test_a_service_is_killed_while_records_flow(live: Live, service: str) -> None:
    with Load(live, RATE) as load:
        pid = live.service_pid(service)
        kill(pid)
        killed = time.monotonic()
        until(f"{service} runs again", WAIT_SECONDS, lambda: is_restarted(live, service, pid), every=0.2)
        time.sleep(5)  # clients that give up have noticed by now
        until("all tiers run again", WAIT_SECONDS, live.all_running)
        fed = max(load.raw.first_seen)
        until(
            "hits fed meanwhile have come out",
            WAIT_SECONDS,
            lambda: load.enriched.has_all(load.raw, fed),
            every=0.2,
        )
        print(f"{service}: all tiers run again after {time.monotonic() - killed:.1f} s")
    load.check()


@contextmanager
def frozen(live: Live) -> Iterator[None]:
    """Freeze PostgreSQL: it accepts connections, but answers none."""
    postmaster = psutil.Process(live.service_pid("postgres"))
    stopped = [postmaster, *postmaster.children(recursive=True)]
    for process in stopped:
        process.suspend()
    try:
        yield
    finally:
        for process in stopped:
            process.resume()


@contextmanager
def down(live: Live) -> Iterator[None]:
    """Stop PostgreSQL: it refuses connections."""
    supervisor = Supervisor(live.layout)
    supervisor.stop("postgres")
    try:
        yield
    finally:
        supervisor.start("postgres")


ENDURANCE = [pytest.mark.timeout(1800), pytest.mark.endurance]
FLOWS_SECONDS = 100
"""The entry is throttled when a tier is 120 s behind (decision 19); until then tiers without a
table flow on.
"""


@LONG
@pytest.mark.parametrize(
    ("outage", "minutes"), [(frozen, 1), (down, 1), pytest.param(down, 10, marks=ENDURANCE)]
)
def test_postgresql_is_frozen_or_down(
    live: Live, outage: Callable[[Live], AbstractContextManager[None]], minutes: int
) -> None:
    with Load(live, RATE) as load:
        before = incarnations(live)
        with outage(live):
            since = time.time()
            flowing, throttled = 0.0, False
            while time.time() < since + 60 * minutes:
                time.sleep(10)
                tiers = live.sluice_json("tiers")
                throttled = throttled or any(tier["held_for"] in NEED_DATABASE for tier in tiers)
                flowing = flowing if throttled else max(load.enriched.first_seen.values())
                assert throttled or flowing > time.time() - 8, (
                    "tiers that need no database flow on until the entry is throttled for a tier that does"
                )
            assert flowing > since + min(FLOWS_SECONDS, 60 * minutes - 10)
            print(
                f"database {outage.__name__} for {minutes} min: "
                f"other tiers flowed for {flowing - since:.0f} s, entry throttled: {throttled}"
            )
            status = live.sluice("status", check=False).stdout
            assert "No figures: " in status, status
        back = time.monotonic()
        until("all tiers run again", WAIT_SECONDS, live.all_running)
        fed = max(load.raw.first_seen)
        until(
            "hits fed meanwhile have come out",
            WAIT_SECONDS,
            lambda: load.enriched.has_all(load.raw, fed),
            every=0.2,
        )
        print(f"all tiers run without lag {time.monotonic() - back:.0f} s after the database was back")
        assert incarnations(live) == before, "tiers that need the database waited, and none was restarted"
    load.check()
    counts_agree(live)


def test_the_counts_still_sum_to_the_deliveries(live: Live) -> None:
    counts_agree(live)
