"""The host that a tier moves to is lost in the middle, with a real controller and agents, while
records flow: none is lost or twice.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

import pytest

from sluice.kafka.reader import Streams
from sluice_ops.agent.host.store import HostFolder
from sluice_ops.agent.limits.control_groups import find_containers
from sluice_ops.model import paths
from sluice_ops.model.assignment import HostState
from sluice_ops.model.ids import HostName
from sluice_ops.model.incarnation import IncarnationSpec, OwnerRecord, Phase, State
from tests.integration.sluice.asking import operated, running, site_of, sluice, tier_line
from tests.integration.sluice.delivered import BALANCE, WRITES_AFTER_NEXT_OWNER, is_output_in_order
from tests.integration.sluice.test_handover import LEDGER_GAPS
from tests.integration.sluice.test_workers import feeding, read_output
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.outliving"
TIER, TIERS = "enter", ("store", "enter")
WHOLE_SECONDS = 180.0
"""A host counts as lost after 12 s; then a cold start, of both tiers where both were there."""
pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    return site_of(", ".join(f"{tier}: {{minimum: 1, target: 1, maximum: 1}}" for tier in TIERS))


@pytest.fixture
def agents() -> Iterator[ExitStack]:
    """Keep the agents of hosts that come back."""
    with ExitStack() as stack:
        yield stack


def owner(lab: Lab) -> OwnerRecord:
    found = lab.channel.read(paths.owner(TIER), OwnerRecord)
    return OwnerRecord() if found is None else found.value


def next_host(lab: Lab, phase: Phase) -> str | None:
    """Return where the next incarnation is, once its driver is under way and the hand-over is in
    this phase.
    """
    record = owner(lab)
    if record.next is None or record.phase is not phase:
        return None
    report = lab.report(TIER, record.next)
    if report is None or (phase is Phase.PREPARE and report.state not in {State.STARTING, State.WARMING}):
        return None
    spec = lab.channel.read(paths.incarnation(TIER, record.next), IncarnationSpec)
    return None if spec is None else str(spec.value.placement.driver)


def die(lab: Lab, host: str) -> None:
    """Kill a host's agent and all that it has started, as a loss of power does."""
    folder = HostFolder(lab.home, HostName(host))
    agent, containers = folder.agent(), find_containers(lab.home, host)
    assert agent is not None
    pids = [agent.pid]
    for unit in folder.units():
        session = unit.session()
        pids += containers.processes(unit.id, session.pid if session else None)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def both_run(lab: Lab) -> bool:
    return all(tier_line(lab, tier)["state"] == "running" for tier in TIERS)


def host_states(lab: Lab) -> dict[str, str]:
    return {each["name"]: each["state"] for each in sluice(lab, "hosts")}


def lose_target(lab: Lab, phase: Phase, agents: ExitStack, out: Callable[[], int]) -> None:
    """Drain the tier's host, and lose the host that it moves to in that phase; afterwards all three
    hosts are there again.
    """
    before = tier_line(lab, TIER)
    host, old = before["driver"]["host"], before["incarnation"]
    with ThreadPoolExecutor() as pool:
        drain = pool.submit(sluice, lab, "drain", host)
        target = until(f"the hand-over is in {phase}", lambda: next_host(lab, phase))
        tried = owner(lab).next
        die(lab, target)
        lost = time.monotonic()
        asked = drain.result()
    until("both run", lambda: both_run(lab), WHOLE_SECONDS)
    there = out()
    until("records flow", lambda: out() > there + 200, 60)
    line = tier_line(lab, TIER)
    print(
        f"{target} lost in {phase}: incarnation {old} on {host}, {tried} on {target}, then "
        f"{line['incarnation']} on {line['driver']['host']}; "
        f"the drain {'succeeded' if asked['ok'] else 'was undone'}; "
        f"records flow {time.monotonic() - lost:.0f} s after the loss"
    )
    assert line["driver"]["host"] != target
    assert line["incarnation"] != tried
    assert host_states(lab)[host] == (HostState.DRAINED if asked["ok"] else HostState.UP)
    agents.enter_context(running(lab, "agent", "--host", target))
    until(f"{target} is back", lambda: host_states(lab)[target] == HostState.UP, 60)
    if asked["ok"]:
        sluice(lab, "return", host)


def test_the_tier_goes_elsewhere_or_stays(lab: Lab, agents: ExitStack) -> None:
    with operated(lab), closing(Streams(lab.endpoints.kafka)) as streams:

        def out() -> int:
            return sum(streams.bounds(["numbers"]).ends.values())

        with feeding(lab) as fed:
            for tier in TIERS:
                sluice(lab, "start", tier)
            until("both run", lambda: both_run(lab))
            for phase in (Phase.PREPARE, Phase.CUT):
                lose_target(lab, phase, agents, out)
        until("all is stored", lambda: lab.query("select count(*) from stored")[0][0] >= len(fed))
        seen = read_output(streams)
    assert len({(each.out.partition, each.out.offset) for each in seen}) == len(fed)
    assert is_output_in_order(seen)
    assert lab.query("select count(*), count(distinct n), sum(n) from stored") == [
        (len(fed), len(fed), sum(fed))
    ]
    assert lab.query(BALANCE) == [(0,)]
    assert lab.query(LEDGER_GAPS) == []
    assert lab.query(WRITES_AFTER_NEXT_OWNER) == []
