"""A warm standby takes over from a dead owner, and from an owner that only lost its executor; every
hit is delivered once.
"""

import signal
import subprocess
import sys

import pytest

from sluice_ops.model.incarnation import State
from tests.lab import ROOT, Lab, until

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
COUNT = 9_000
RATE = 100


def test_a_warm_standby_takes_over(lab: Lab) -> None:
    for host, tier in (("h1", "entry"), ("h2", "enrich"), ("h3", "outbound")):
        lab.start_owner(tier, 1, host)
        lab.wait_for(tier, 1, State.RUNNING)
    words = [sys.executable, "-m", "hits.feed", "--rate", str(RATE), "--count", str(COUNT), "--first", "1"]
    feed = subprocess.Popen(words, env=lab.env, cwd=ROOT)

    # A new executor takes longer than the standby's start, so the owner leaves the tier to the
    # standby.
    lab.start_standby("entry", 1, 2, "h2", hot=False)
    lab.kill_executor("entry", 1)
    assert "executor" in (lab.wait_for("entry", 1, State.FAILED).error or "")
    lab.set_owner("entry", 2)
    lab.wait_caught_up("entry", 2)
    lab.stop("entry", 1)

    lab.start_standby("outbound", 1, 2, "h1", hot=False)
    lab.driver("outbound", 1).send_signal(signal.SIGKILL)
    lab.set_owner("outbound", 2)
    lab.wait_caught_up("outbound", 2)
    lab.stop("outbound", 1)

    # a standby that is still warming does not take over
    lab.set_owner("entry", 2, standby=3, standby_runs=False)
    lab.start("entry", 3, "h3")
    lab.wait_for("entry", 3, State.WARMING)
    lab.kill_executor("entry", 2)
    until("entry runs again in place", lambda: "by=entry/2.1" in lab.log("entry", 2))

    assert feed.wait() == 0
    until("every hit is delivered", lambda: lab.delivered()[0] >= COUNT)
    assert lab.delivered() == (COUNT, COUNT)
