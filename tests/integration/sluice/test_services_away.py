"""Kafka and PostgreSQL are frozen while drivers start: drivers wait, report for which service, and
then run.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from sluice_ops.model.incarnation import State
from tests.lab import ROOT, Lab, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
COUNT = 200


@contextmanager
def frozen(lab: Lab, program: str) -> Iterator[None]:
    """Freeze the lab's processes of a program."""
    processes = [process for process in psutil.process_iter() if _is(process, program, str(lab.home))]
    assert processes
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


def _is(process: psutil.Process, program: str, home: str) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return any(program in word for word in words) and any(home in word for word in words)


def wait_until_waiting_for(lab: Lab, tier: str, service: str) -> None:
    def is_waiting() -> bool:
        report = lab.report(tier, 1)
        return (
            report is not None
            and report.state is State.STARTING
            and report.away is not None
            and service in report.away
        )

    until(f"{tier} waits for {service}", is_waiting)


def test_a_starting_driver_waits_for_services_that_are_away(lab: Lab) -> None:
    with frozen(lab, "kafka.Kafka"):
        lab.start_owner("entry", 1, "h1")
        wait_until_waiting_for(lab, "entry", "Kafka")
    lab.wait_for("entry", 1, State.RUNNING)
    assert lab.report("entry", 1).away is None
    with frozen(lab, "postgres"):
        lab.start_owner("outbound", 1, "h2")
        wait_until_waiting_for(lab, "outbound", "PostgreSQL")
    lab.wait_for("outbound", 1, State.RUNNING)
    lab.start_owner("enrich", 1, "h3")
    subprocess.run(
        [sys.executable, "-m", "hits.feed", "--rate", "100", "--count", str(COUNT)],
        env=lab.env,
        cwd=ROOT,
        check=True,
    )
    until("every hit is delivered", lambda: lab.delivered() == (COUNT, COUNT))
