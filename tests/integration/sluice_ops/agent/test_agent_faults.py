"""Faults of the agent, with a real ZooKeeper, a real Spark master and real Workers."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sluice_ops.agent.host.processes import live_process
from sluice_ops.agent.limits.control_groups import QUIET, installation_group
from sluice_ops.agent.loop import HANGS
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostFacts
from sluice_ops.process.watchdog import HUNG
from tests.integration.sluice_ops.agent.conftest import (
    Lab,
    application,
    driver,
    executors,
    limited,
    slot,
    until,
)

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]

ROUND_SECONDS = 30.0
"""The time in which a loaded agent begins its next round, and hangs in it."""
RESTART_SECONDS = 30.0
"""The time in which a killed slot serves again."""


def memory_limits(lab: Lab) -> dict[Path, str]:
    """Return the memory limit of the slot's control group, in the file of either version."""
    group = f"**/{installation_group(lab.home)}/h1/{slot().id}"
    return {
        file: file.read_text()
        for name in ("memory.max", "memory.limit_in_bytes")
        for file in Path("/sys/fs/cgroup").glob(f"{group}/{name}")
    }


def test_a_slot_with_a_killed_worker_serves_the_same_application_again(
    lab: Lab,
) -> None:
    lab.start_agent()
    lab.assign(slot())
    before = lab.wait_running(slot())
    work = application(lab, slot().label, 3)
    (executor,) = until("an executor", lambda: executors(lab, slot()))
    before_kill = memory_limits(lab)
    assert before_kill or os.geteuid() != 0
    os.kill(before.pid or 0, signal.SIGKILL)
    after = until(
        "the slot is restarted",
        lambda: (seen := lab.unit(slot())) and seen.restarts == 1 and seen.pid and seen,
        RESTART_SECONDS,
    )
    assert after.pid != before.pid
    assert after.pid in lab.unit_processes(slot())
    assert memory_limits(lab) == before_kill
    assert live_process(executor) is None, "no process of the dead Worker is left"
    out, _ = work.communicate(timeout=180)
    assert out.strip() == "result [7]"


def test_an_agent_with_a_hung_loop_ends_itself_and_its_units_are_adopted(lab: Lab) -> None:
    hangs = lab.home / "hangs"
    first = lab.start_agent(hangs=hangs)
    lab.assign(slot())
    before = lab.wait_running(slot())
    hangs.touch()
    hung_at = time.monotonic()
    until("the agent ends itself", lambda: first.poll() == HUNG)
    seconds = time.monotonic() - hung_at
    sys.stdout.write(f"the agent ended itself {seconds:.1f} s after its loop hung\n")
    assert seconds < HANGS.idle + ROUND_SECONDS
    assert "the working loop of the agent has made no progress" in (lab.home / "agent-h1.log").read_text()
    assert lab.main(slot()).alive
    started = lab.observed().agent_started  # type: ignore[union-attr]
    lab.start_agent()
    until("the next agent reports", lambda: (seen := lab.observed()) and seen.agent_started > started)
    after = lab.wait_running(slot())
    assert (after.pid, after.restarts) == (before.pid, 0)


def test_a_killed_driver_is_reported_and_left_to_the_controller(lab: Lab) -> None:
    lab.start_agent()
    lab.assign(driver())
    seen = lab.wait_running(driver())
    os.kill(seen.pid or 0, signal.SIGKILL)
    ended = until(
        "the driver has ended", lambda: (seen := lab.unit(driver())) and seen.state == "exited" and seen
    )
    assert (ended.exit or "").startswith("killed by signal 9")
    assert lab.unit_processes(driver()) == {}
    lab.assign()
    lab.wait_gone(driver())


@limited
def test_a_quiet_unit_weighs_little_until_it_serves(lab: Lab) -> None:
    lab.start_agent()
    lab.assign(slot(quiet=True))
    before = lab.wait_running(slot())
    (weight,) = Path("/sys/fs/cgroup").glob(
        f"**/{installation_group(lab.home)}/h1/{slot().id}/cpu.[sw][he][ai][rg]*"
    )
    quiet = int(weight.read_text())
    assert quiet <= 1024 * QUIET
    lab.assign(slot())
    until("the weight is raised", lambda: int(weight.read_text()) > 2 * quiet)
    assert lab.wait_running(slot()).pid == before.pid, "without a restart"


@limited
def test_units_keep_their_own_cores_when_their_agent_is_killed(lab: Lab) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two processors")
    site = lab.home / "site.yaml"
    own_cores_site = (
        "pipeline: hits\nhosts:\n  - {name: h1, address: 127.0.1.1, cores: "
        "own, capacity: {cpu: 2, memory: 4g}}\n"
    )
    site.write_text(own_cores_site)
    lab.environment["SLUICE_SITE"] = str(site)
    half = driver().model_copy(update={"quantum": slot().quantum.model_copy(update={"cpu": 0.5})})
    first = lab.start_agent()
    lab.assign(slot(), half)
    before = lab.wait_running(slot())
    lab.wait_running(half)
    seen = lab.observed()
    assert seen is not None
    assert seen.limits.endswith("; cores of their own")
    work = application(lab, slot().label, 1)
    out, _ = work.communicate(timeout=180)
    assert out.strip() == "result [7]"
    affinities = {pid: os.sched_getaffinity(pid) for pid in lab.unit_processes(slot())}
    (processor,) = set.union(*affinities.values())
    assert all(processor not in os.sched_getaffinity(pid) for pid in lab.unit_processes(half))
    lab.kill(first)
    second = lab.start_agent()
    until(
        "the next agent reports", lambda: (now := lab.observed()) and now.agent_started > seen.agent_started
    )
    assert {pid: os.sched_getaffinity(pid) for pid in affinities} == affinities
    lab.kill(second)
    site.write_text(own_cores_site.replace("cores: own, ", ""))
    lab.start_agent()
    until(
        "units share all processors again",
        lambda: os.sched_getaffinity(before.pid or 0) == os.sched_getaffinity(0),
    )
    assert lab.wait_running(slot()).pid == before.pid


@limited
def test_a_driver_over_its_memory_quantum_names_the_cause_at_its_end(lab: Lab) -> None:
    lab.start_agent()
    greedy = slot(memory=60)
    lab.assign(greedy)
    ended = until("the slot exceeded its memory", lambda: (seen := lab.unit(greedy)) and seen.exit and seen)
    assert "its container was full: quantum.memory is 60m" in (ended.exit or "")


def test_a_slot_over_its_disk_quantum_is_restarted_without_its_files(
    lab: Lab,
) -> None:
    lab.start_agent()
    full = slot(disk=20)
    lab.assign(full)
    lab.wait_running(full)
    (scratch,) = lab.home.glob(f"**/{full.id}/scratch")
    (scratch / "shuffle").write_bytes(bytes(30 << 20))
    ended = until(
        "the slot was restarted",
        lambda: (seen := lab.unit(full)) and seen.restarts == 1 and seen.pid and seen,
    )
    assert ended.state == "running"
    assert not (scratch / "shuffle").exists()
    assert lab.has_logged("of the disk: quantum.disk is 20m")


@limited
def test_an_agent_with_a_full_disk_lives_and_restarts_units_later(lab: Lab) -> None:
    disk = lab.home / "hosts"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], check=True)
    try:
        agent = lab.start_agent()
        lab.assign(slot())
        before = lab.wait_running(slot())
        filler = disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        os.kill(before.pid or 0, signal.SIGKILL)
        until(
            "the agent reports the full disk",
            lambda: lab.has_logged("its end cannot be written to unit.json"),
        )
        assert agent.poll() is None
        lab.kill(agent)
        until("the agent's session is over", lambda: not lab.channel.exists(paths.live("h1")))
        agent = lab.start_agent()
        until("another agent serves the host", lambda: lab.channel.exists(paths.live("h1")))
        filler.unlink()
        after = until(
            "the slot is restarted",
            lambda: (seen := lab.unit(slot())) and seen.state == "running" and seen.restarts == 1 and seen,
        )
        assert after.pid != before.pid
        assert list(disk.glob("**/.*.json.*")) == [], "no half-written file is left"
        lab.assign()
        lab.wait_gone(slot())
        lab.kill(agent)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_dead_slots_are_restarted_while_zookeeper_is_away(lab: Lab) -> None:
    first = lab.start_agent()
    lab.assign(slot())
    before = lab.wait_running(slot())
    lab.zookeeper.stop()
    try:
        os.kill(before.pid or 0, signal.SIGKILL)
        until("the slot is restarted", lambda: (main := lab.main(slot())).alive and main.pid != before.pid)
        lab.kill(first)
        (lab.home / "hosts/h1/assignment.json").write_bytes(b"")
        lab.start_agent()
        until(
            "the next agent continues without ZooKeeper and without the assignment file",
            lambda: lab.has_logged("the units of the last assignment continue"),
        )
        assert lab.main(slot()).alive
    finally:
        lab.zookeeper.start()
    until(
        "the slot is reported again",
        lambda: lab.channel.connected and (seen := lab.unit(slot())) and seen.restarts == 1 and seen,
    )
    assert lab.channel.exists(paths.live("h1"))


def test_a_unit_with_unreadable_records_is_ended_and_started_again_once(lab: Lab) -> None:
    first = lab.start_agent()
    lab.assign(slot())
    before = lab.wait_running(slot())
    old_processes = lab.unit_processes(slot())
    lab.kill(first)
    (lab.home / "hosts/h1/units" / slot().id / "unit.json").write_bytes(b"")
    lab.start_agent()
    after = until(
        "the slot is restarted",
        lambda: (seen := lab.unit(slot())) and seen.state == "running" and seen.pid != before.pid and seen,
    )
    assert lab.has_logged("unit killed: its unit.json cannot be read")
    assert after.restarts == 0
    assert not old_processes.keys() & lab.unit_processes(slot()).keys()
    assert [pid for pid in old_processes if live_process(pid) is not None] == []


def test_a_reboot_kills_all_units_once_and_the_agent_reports_its_return(lab: Lab) -> None:
    first = lab.start_agent()
    lab.assign(slot())
    before = lab.wait_running(slot())
    lab.assign(slot(), reboot="op-1")
    assert first.wait(timeout=60) == -signal.SIGKILL
    assert before.pid
    assert live_process(before.pid) is None
    second = lab.start_agent()
    until("the agent reports the reboot", lambda: (seen := lab.observed()) and seen.rebooted == "op-1")
    assert lab.wait_running(slot()).pid != before.pid
    assert second.poll() is None, "an agent reboots once for each id"


def test_a_lent_slot_finishes_its_task_before_it_comes_back(lab: Lab) -> None:
    lent = slot("batch")
    lab.start_agent()
    lab.assign(lent)
    lab.wait_running(lent)
    work = application(lab, lent.label, 8)
    logs = f"hosts/h1/units/{lent.id}/scratch/work/*/*/stderr"
    until("the task runs", lambda: any("task 7 begins" in log.read_text() for log in lab.home.glob(logs)))
    lab.assign()
    until("the slot is asked to stop", lambda: (seen := lab.unit(lent)) and seen.state == "stopping")
    out, _ = work.communicate(timeout=120)
    assert out.strip() == "result [7]", "the task was not interrupted"
    lab.wait_gone(lent)


@pytest.mark.long
def test_a_clock_jump_neither_ends_a_lent_slots_task_nor_stops_restarts(
    lab: Lab,
) -> None:
    lent, clock = slot("batch"), lab.home / "ahead"
    clock.write_text("0")
    lab.start_agent(clock=clock)
    lab.assign(lent, slot())
    lab.wait_running(lent)
    work = application(lab, lent.label, 8)
    logs = f"hosts/h1/units/{lent.id}/scratch/work/*/*/stderr"
    until("the task runs", lambda: any("task 7 begins" in log.read_text() for log in lab.home.glob(logs)))
    lab.assign(slot())
    until("the slot is asked to stop", lambda: (seen := lab.unit(lent)) and seen.state == "stopping")
    clock.write_text("3600")
    out, _ = work.communicate(timeout=120)
    assert out.strip() == "result [7]", "the clock jump of an hour does not use up the task's two minutes"
    lab.wait_gone(lent)
    clock.write_text("-3600")
    for restarts in (1, 2, 3):
        os.kill(lab.wait_running(slot()).pid or 0, signal.SIGKILL)
        until(
            "the slot is restarted",
            lambda times=restarts: (seen := lab.unit(slot())) and seen.restarts == times,
            60,
        )
    seen = lab.unit(slot())
    assert seen is not None
    assert seen.since < time.time() - 3000, "the agent's clock has jumped"


def test_the_agent_leaves_its_units_at_sigterm_and_stop_all_ends_them(lab: Lab) -> None:
    first = lab.start_agent()
    lab.assign(slot())
    lab.wait_running(slot())
    words = [sys.executable, "-m", "sluice_ops.agent", "--stop-all", "--host", "h1"]
    refused = subprocess.run(words, env=lab.environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "runs already" in refused.stderr
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=30) == 0
    assert lab.main(slot()).alive
    subprocess.run(words, env=lab.environment, capture_output=True, check=True)
    assert lab.unit_processes(slot()) == {}


def test_a_host_that_another_machine_serves_is_refused_and_named(lab: Lab, tmp_path: Path) -> None:
    lab.start_agent()
    until("the first agent serves the host", lambda: lab.channel.exists(paths.live("h1")))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "endpoints.json").write_text((lab.home / "endpoints.json").read_text())
    second = lab.start_agent("h1", home=elsewhere)
    assert second.wait(timeout=60) == 1
    assert f"with home {lab.home}" in (lab.home / "agent-h1.log").read_text()


def test_a_burst_host_registers_what_the_command_line_says(lab: Lab) -> None:
    lab.start_agent(
        "ec2-1",
        "--address",
        "127.0.2.1",
        "--zone",
        "ec2",
        "--cpu",
        "2",
        "--memory",
        "4g",
        "--labels",
        "spot,fast",
    )
    registered = until("the host is registered", lambda: lab.channel.read(paths.host("ec2-1"), HostFacts))
    assert registered.value == HostFacts(
        name="ec2-1", address="127.0.2.1", zone="ec2", labels=("spot", "fast"), cpu=2, memory=4096
    )
