"""Run one simulation and clean up after it, also after an error. Called by `sluice simulate`."""

import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from sluice_ops.channel import Channel
from sluice_ops.channel.client import SESSION_SECONDS
from sluice_ops.controller.decide import decide
from sluice_ops.controller.leader import LOST_SECONDS, collect_rarely
from sluice_ops.local.simulation import cluster, losses, machine
from sluice_ops.local.simulation.cluster import Size
from sluice_ops.local.simulation.processes import Agents, Controllers
from sluice_ops.local.simulation.server import Server
from sluice_ops.local.simulation.stage import Say, Stage
from sluice_ops.local.simulation.targets import Figures

PLANS = 5
"""How often planning is measured; the fastest counts."""
FAILOVERS = 2
"""How often the leader is killed; the slowest failover counts."""


def simulate(size: Size, say: Say) -> Figures:
    """Measure a cluster of this size, then remove all its processes and files.

    `say` receives progress. SizeError, PlatformError or SimulationError if there is no result.
    """
    cluster.check(size)
    machine.check(size)
    say(f"{size.hosts} hosts with {size.slots} slots in {size.tiers} tiers; planning them {PLANS} times")
    collect_rarely()  # as controllers do, whose planning is measured
    _plan(Size(cluster.FEWEST_TIERS, cluster.FEWEST_TIERS))  # the first plan loads the solver
    planned = min(_plan(size) for _ in range(PLANS))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="sluice-simulate-")))
        say("starting ZooKeeper")
        server = Server(folder, machine.heap(size))
        stack.callback(server.stop)
        server.wait()
        agents = Agents(size, machine.sessions(size), server.address, folder / "agents.log")
        stack.callback(agents.stop)
        channel = stack.enter_context(Channel(server.address))
        controllers = Controllers(_site(size, folder), server.address, folder / "logs")
        stack.callback(controllers.stop)
        stage = Stage(size, channel, agents, controllers, folder, say)
        stage.register()
        started = stage.start()
        stage.stand_by()
        lost = stage.lose()
        failovers = [stage.fail_over() for _ in range(FAILOVERS)]
        say("counting nodes and watches in ZooKeeper")
        answers = sorted(seconds for _, seconds in lost)
        of_drivers = [seconds for loss, seconds in lost if loss.of_driver]
        of_workers = [seconds for loss, seconds in lost if not loss.of_driver]
        return Figures(
            hosts=size.hosts,
            slots=size.slots,
            tiers=size.tiers,
            sessions=machine.sessions(size),
            session_seconds=SESSION_SECONDS,
            lost_seconds=LOST_SECONDS,
            plan_seconds=planned,
            cold_start_seconds=started,
            losses=len(lost),
            losses_of_drivers=len(of_drivers),
            loss_to_assignment_p50_seconds=losses.percentile(answers, 0.5),
            loss_to_assignment_p99_seconds=losses.percentile(answers, 0.99),
            loss_to_assignment_max_seconds=answers[-1],
            loss_of_driver_max_seconds=max(of_drivers, default=None),
            loss_without_driver_max_seconds=max(of_workers, default=None),
            failovers=len(failovers),
            failover_seconds=max(failovers),
            controller_peak_bytes=controllers.peak(),
            **server.figures(),
        )


def _plan(size: Size) -> float:
    view, inputs = cluster.unplanned(size)
    began = time.perf_counter()
    decide(view, inputs)
    return time.perf_counter() - began


def _site(size: Size, folder: Path) -> Path:
    """Write the controllers' site file; return its path."""
    shares = {name: share.model_dump() for name, share in cluster.rules(size).shares.items()}
    path = folder / "site.yaml"
    path.write_text(yaml.safe_dump({"pipeline": "simulated", "hosts": [], "shares": shares}))
    return path
