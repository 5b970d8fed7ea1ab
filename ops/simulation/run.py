"""One simulation from its begin to its end, whatever happens in between. Called by `sluice simulate`."""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from ops.channel import Channel, Write
from ops.channel.client import SESSION_SECONDS
from ops.controller.decide import decide
from ops.controller.leader import LOST_SECONDS
from ops.model import paths
from ops.model.status import ControllerStatus
from ops.simulation import cluster, losses, machine
from ops.simulation.cluster import Size
from ops.simulation.losses import Held, Loss
from ops.simulation.processes import Agents, Controllers, SimulationError
from ops.simulation.server import Server
from ops.simulation.targets import Figures

Say = Callable[[str], None]

PLANS = 3
FAILOVERS = 3
LOSS_PERIOD = 0.5
"""Between one loss and the next: hosts die on their own."""
PATIENCE = 300.0
"""How long any stage may take before the simulation is given up."""
QUIET_SECONDS = 3.0


def simulate(size: Size, java_homes: Path, say: Say) -> Figures:
    """Measure a cluster of this size; nothing of it is left afterwards, neither processes nor files."""
    cluster.check(size)
    machine.check(size)
    say(f"{size.hosts} hosts with {size.slots} slots in {size.tiers} tiers; planning them {PLANS} times")
    planned = max(_plan(size) for _ in range(PLANS))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="sluice-simulate-")))
        say("starting a ZooKeeper of its own")
        server = Server(folder, java_homes, machine.heap(size))
        stack.callback(server.stop)
        agents = Agents(size, machine.sessions(size), server.address, folder / "agents.log")
        stack.callback(agents.stop)
        channel = stack.enter_context(Channel(server.address))
        controllers = Controllers(_site(size, folder), server.address, folder / "logs")
        stack.callback(controllers.stop)
        stage = _Stage(size, channel, agents, controllers, folder, say)
        stage.register()
        started = stage.start()
        stage.stand_by()
        lost = stage.lose()
        failovers = [stage.fail_over() for _ in range(FAILOVERS)]
        say("counting what the tree holds")
        answers = sorted(seconds for _, seconds in lost)
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
            losses_of_drivers=sum(any(unit.id.startswith("driver-") for unit in loss.units) for loss, _ in lost),
            loss_to_assignment_p50_seconds=losses.percentile(answers, 0.5),
            loss_to_assignment_p99_seconds=losses.percentile(answers, 0.99),
            loss_to_assignment_max_seconds=answers[-1],
            failovers=len(failovers),
            failover_seconds=max(failovers),
            controller_peak_bytes=controllers.peak(),
            **server.figures(),
        )


def _plan(size: Size) -> float:
    view, moment = cluster.unplanned(size)
    began = time.perf_counter()
    decide(view, moment)
    return time.perf_counter() - began


def _site(size: Size, folder: Path) -> Path:
    """Write the site file that the controllers read."""
    shares = {name: share.model_dump() for name, share in cluster.rules(size).shares.items()}
    path = folder / "site.yaml"
    path.write_text(yaml.safe_dump({"pipeline": "simulated", "hosts": [], "shares": shares}))
    return path


class _Stage:
    """What is simulated, step by step; every wait has an end."""

    def __init__(self, size: Size, channel: Channel, agents: Agents, controllers: Controllers, folder: Path, say: Say) -> None:
        self._size, self._channel, self._agents, self._controllers = size, channel, agents, controllers
        self._folder, self._say = folder, say
        self._dice = random.Random(size.hosts)  # noqa: S311 - the same hosts are lost in every run of a size

    def register(self) -> None:
        """Wait until all hosts are there, then declare the tiers."""
        tenth = 0
        while self._agents.registered < self._size.hosts:
            self._wait("the hosts to register", lambda: self._agents.registered * 10 // self._size.hosts > tenth)
            tenth = self._agents.registered * 10 // self._size.hosts
            self._say(f"{self._agents.registered} hosts are registered, by {machine.sessions(self._size)} sessions")
        self._channel.multi([Write(paths.tier(name), spec, None) for name, (spec, _) in cluster.tiers(self._size).items()])

    def start(self) -> float:
        """Start a controller and have it place everything; return how long that took from the request on."""
        self._leader = self._controllers.start()
        self._say(f"controller {self._leader} starts and reads everything")
        self._wait("the first controller to lead", lambda: self._status() is not None)
        began = time.time()
        self._channel.multi([Write(paths.wanted(name), cluster.wanted(), None) for name in cluster.tiers(self._size)])
        self._wait("every slot to be assigned", lambda: self._agents.board(lambda board: board.slots()) == self._size.slots)
        took = self._agents.board(lambda board: max(at for at, _, _ in board.appeared)) - began
        self._say(f"every slot is assigned after {took:.1f} s")
        self._rest()
        return took

    def stand_by(self) -> None:
        """Start a controller that stands by."""
        name = self._controllers.start()
        self._say(f"controller {name} stands by")
        self._wait("the second controller to stand by", lambda: len(self._channel.children(paths.LEADER)) > 1)
        self._rest()

    def lose(self) -> list[tuple[Loss, float]]:
        """Lose hosts one after the other; return each with how long its answer took beyond the controller's wait."""
        names = self._dice.sample([cluster.host_name(number) for number in range(self._size.hosts)], self._size.losses)
        self._say(f"losing {len(names)} hosts, one each {LOSS_PERIOD} s; the controller gives each agent {LOST_SECONDS:.0f} s to come back")
        lost: list[Loss] = []
        for name in names:
            units = self._held(name)
            at = time.time()
            self._channel.delete(paths.live(name))
            lost.append(Loss(name, at, units))
            time.sleep(LOSS_PERIOD)
        self._wait("every loss to be answered", lambda: all(at is not None for at in self._answers(lost)))
        self._rest()
        return [(loss, max(0.0, (at or 0.0) - loss.at - LOST_SECONDS)) for loss, at in zip(lost, self._answers(lost), strict=True)]

    def fail_over(self) -> float:
        """Kill the leader; return when the standby had taken its first decision, and have another one stand by."""
        killed, at = self._leader, time.time()
        self._say(f"killing controller {killed}, which leads")
        self._controllers.kill(killed)
        self._wait("the standby to lead", lambda: (self._status() or killed) != killed)
        self._leader = self._status() or ""
        found = self._channel.kazoo.get(paths.CONTROLLER_STATUS)[1]
        took = float(found.mtime) / 1000 - at
        self._say(f"controller {self._leader} decides after {took:.1f} s")
        self.stand_by()
        return took

    def _held(self, name: str) -> frozenset[Held]:
        return self._agents.board(lambda board: board.now.get(cluster.HostName(name), frozenset()))

    def _answers(self, lost: list[Loss]) -> list[float | None]:
        return self._agents.board(lambda board: [losses.answered(loss, board.appeared) for loss in lost])

    def _status(self) -> str | None:
        found = self._channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
        return None if found is None else found.value.leader

    def _rest(self) -> None:
        """Wait until nothing more is published."""
        seen, since = -1, time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since
            now = self._agents.board(lambda board: len(board.appeared))
            if now != seen:
                seen, since = now, time.monotonic()
            return time.monotonic() - since > QUIET_SECONDS

        self._wait("the cluster to come to rest", quiet)

    def _wait(self, what: str, check: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not check():
            ended = [*self._controllers.ended(), *(["the agents"] if self._agents.ended else [])]
            if ended or time.monotonic() > end:
                why = f"{' and '.join(ended)} ended by itself" if ended else f"not within {PATIENCE:.0f} s"
                message = f"waiting for {what}: {why}; the logs end with\n{self._logs()}"
                raise SimulationError(message)
            time.sleep(0.05)

    def _logs(self) -> str:
        logs = [self._folder / "agents.log", *sorted((self._folder / "logs").glob("c*.log"))]
        return "\n".join(f"{log.name}: {line}" for log in logs if log.exists() for line in log.read_text().splitlines()[-3:])
