"""The target host of a handover is lost during the handover, with a real controller and agents,
while records flow: no record is lost or duplicated.
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
from tests.integration.sluice.delivery_checks import BALANCE, WRITES_AFTER_NEXT_OWNER, is_output_in_order
from tests.integration.sluice.operated_lab import operated, running, site_of, sluice, tier_line
from tests.integration.sluice.test_handover import LEDGER_GAPS
from tests.integration.sluice.test_workers import feeding, read_output
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.sluice.hanging_pipeline"
TIER, TIERS = "enter", ("store", "enter")
RECOVERY_SECONDS = 180.0
"""A host counts as lost after 12 s; then comes a cold start, of both tiers if both were on the
host.
"""
pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> str:
    return site_of(", ".join(f"{tier}: {{minimum: 1, target: 1, maximum: 1}}" for tier in TIERS))


@pytest.fixture
def agents() -> Iterator[ExitStack]:
    """Keep the agents of returned hosts."""
    with ExitStack() as stack:
        yield stack


def owner(lab: Lab) -> OwnerRecord:
    record = lab.channel.read(paths.owner(TIER), OwnerRecord)
    return OwnerRecord() if record is None else record.value


def next_host(lab: Lab, phase: Phase) -> str | None:
    """Return the host of the next incarnation if its driver has started and the handover is in this
    phase.
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
    """Kill a host's agent and all its units, as a power loss does."""
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
    return {host["name"]: host["state"] for host in sluice(lab, "hosts")}


def lose_target(lab: Lab, phase: Phase, agents: ExitStack, out: Callable[[], int]) -> None:
    """Drain the tier's host, and lose the target host in the given phase; at the end, all three
    hosts are back.
    """
    before = tier_line(lab, TIER)
    host, old = before["driver"]["host"], before["incarnation"]
    with ThreadPoolExecutor() as pool:
        drain = pool.submit(sluice, lab, "drain", host)
        target = until(f"the handover is in {phase}", lambda: next_host(lab, phase))
        lost_incarnation = owner(lab).next
        die(lab, target)
        lost = time.monotonic()
        drain_result = drain.result()
    until("both tiers run", lambda: both_run(lab), RECOVERY_SECONDS)
    output_before = out()
    until("records flow", lambda: out() > output_before + 200, 60)
    line = tier_line(lab, TIER)
    print(
        f"{target} lost in {phase}: incarnation {old} on {host}, {lost_incarnation} on {target}, then "
        f"{line['incarnation']} on {line['driver']['host']}; "
        f"the drain {'succeeded' if drain_result['ok'] else 'was undone'}; "
        f"records flow {time.monotonic() - lost:.0f} s after the loss"
    )
    assert line["driver"]["host"] != target
    assert line["incarnation"] != lost_incarnation
    assert host_states(lab)[host] == (HostState.DRAINED if drain_result["ok"] else HostState.UP)
    agents.enter_context(running(lab, "agent", "--host", target))
    until(f"{target} is back", lambda: host_states(lab)[target] == HostState.UP, 60)
    if drain_result["ok"]:
        sluice(lab, "return", host)


def test_the_tier_moves_elsewhere_or_stays(lab: Lab, agents: ExitStack) -> None:
    with operated(lab), closing(Streams(lab.endpoints.kafka)) as streams:

        def out() -> int:
            return sum(streams.bounds(["numbers"]).ends.values())

        with feeding(lab) as fed:
            for tier in TIERS:
                sluice(lab, "start", tier)
            until("both tiers run", lambda: both_run(lab))
            for phase in (Phase.PREPARE, Phase.CUT):
                lose_target(lab, phase, agents, out)
        until("every number is stored", lambda: lab.query("select count(*) from stored")[0][0] >= len(fed))
        seen = read_output(streams)
    assert len({(record.out.partition, record.out.offset) for record in seen}) == len(fed)
    assert is_output_in_order(seen)
    assert lab.query("select count(*), count(distinct n), sum(n) from stored") == [
        (len(fed), len(fed), sum(fed))
    ]
    assert lab.query(BALANCE) == [(0,)]
    assert lab.query(LEDGER_GAPS) == []
    assert lab.query(WRITES_AFTER_NEXT_OWNER) == []
