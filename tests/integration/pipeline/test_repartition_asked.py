"""A person asks for other state partitions while records flow, by a controller and agents that are real: it is done, or undone."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from ops.model import paths
from ops.model.incarnation import IncarnationReport, OwnerRecord, Phase, State
from tests.integration.pipeline.given import Feed, ends, giving, windows_are_right
from tests.integration.pipeline.runs import PIPELINE_MODULE
from tests.lab import HOSTS, ROOT, Lab, until

__all__ = ["PIPELINE_MODULE"]
TIER, RATE = "by-window", 100
pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    hosts = [f"  - {{name: {name}, address: {address}, capacity: {{cpu: 4, memory: 4g}}}}" for name, address in HOSTS.items()]
    return "hosts:\n" + "\n".join(hosts) + f"\nshares: {{{TIER}: {{minimum: 1, target: 1, maximum: 2}}}}\n"


def command(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("sluice")), *words]


@contextmanager
def served(lab: Lab, *words: str) -> Iterator[None]:
    with (lab.home / f"{'-'.join(words)}.log").open("wb") as log:
        process = subprocess.Popen(command(*words), env=lab.env, cwd=ROOT, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def sluice(lab: Lab, *words: str) -> Any:
    done = subprocess.run(command(*words, "--json"), env=lab.env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    return json.loads(done.stdout)


def steps(asked: Any) -> dict[str, Any]:
    return {step["step"]: step for step in asked["steps"]}


def spread(lab: Lab) -> int | None:
    (line,) = [line for line in sluice(lab, "tiers") if line["name"] == TIER]
    return int(line["partitions"]) if line["partitions"] else None


def test_it_is_done_or_undone_and_every_record_is_counted_once(lab: Lab) -> None:
    feed = Feed(lab)
    with ExitStack() as stack:
        stack.callback(
            lambda: [subprocess.run(command("agent", "--host", name, "--stop-all"), env=lab.env, cwd=ROOT, check=False) for name in HOSTS]
        )
        for name in HOSTS:
            stack.enter_context(served(lab, "agent", "--host", name))
        stack.enter_context(served(lab, "controller"))
        given = stack.enter_context(ExitStack())
        given.enter_context(giving(feed, RATE))
        until("the hosts are there", lambda: len(sluice(lab, "hosts")) == len(HOSTS), 60)
        sluice(lab, "start", TIER)
        until("it counts", lambda: ends(lab, TIER))

        asked = sluice(lab, "repartition", TIER, "5")
        assert asked["ok"], asked
        assert "its state is in 5 partitions, and was in 2" in steps(asked)["verify"]["sentence"]
        assert spread(lab) == 5

        # its next incarnation is killed while it takes over: the owner goes on
        killer = threading.Thread(target=_kill_the_next, args=(lab,))
        killer.start()
        asked = sluice(lab, "repartition", TIER, "3")
        killer.join()
        assert not asked["ok"], asked
        assert steps(asked)["abort"]["ok"]
        assert spread(lab) == 5

        refused = sluice(lab, "repartition", TIER, "5000")
        assert "ask for" in steps(refused)["preflight"]["sentence"]
        given.close()
        windows_are_right(lab, feed)


def _kill_the_next(lab: Lab) -> None:
    def cutting() -> int | None:
        found = lab.channel.read(paths.owner(TIER), OwnerRecord)
        return found.value.next if found is not None and found.value.phase is Phase.CUT else None

    number = until("it takes over", cutting)
    said = lab.channel.read(paths.report(TIER, number), IncarnationReport)
    assert said is not None
    assert said.value.state in {State.READY, State.RUNNING}
    psutil.Process(said.value.pid).kill()
