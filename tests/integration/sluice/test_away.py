"""Kafka, and the database, stand still while drivers start: they wait, say what for, and run as soon as those go on."""

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
def standing_still(lab: Lab, program: str) -> Iterator[None]:
    """Have the lab's processes of a program do nothing."""
    found = [each for each in psutil.process_iter() if _is(each, program, str(lab.home))]
    assert found
    for process in found:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in found:
            process.send_signal(signal.SIGCONT)


def _is(process: psutil.Process, program: str, home: str) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return any(program in word for word in words) and any(home in word for word in words)


def waits_for(lab: Lab, tier: str, what: str) -> None:
    def told() -> bool:
        said = lab.report(tier, 1)
        return (
            said is not None and said.state is State.STARTING and said.away is not None and what in said.away
        )

    until(f"{tier} waits for {what}", told)


def test_a_driver_that_starts_waits_for_what_is_away(lab: Lab) -> None:
    with standing_still(lab, "kafka.Kafka"):
        lab.start_owner("entry", 1, "h1")
        waits_for(lab, "entry", "Kafka")
    lab.wait_for("entry", 1, State.RUNNING)
    assert lab.report("entry", 1).away is None
    with standing_still(lab, "postgres"):
        lab.start_owner("outbound", 1, "h2")
        waits_for(lab, "outbound", "PostgreSQL")
    lab.wait_for("outbound", 1, State.RUNNING)
    lab.start_owner("enrich", 1, "h3")
    subprocess.run(
        [sys.executable, "-m", "hits.feed", "--rate", "100", "--count", str(COUNT)],
        env=lab.env,
        cwd=ROOT,
        check=True,
    )
    until("every hit is delivered", lambda: lab.delivered() == (COUNT, COUNT))
