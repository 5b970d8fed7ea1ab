"""What happens in a simulation, step by step, on real controllers; every wait has an end. Called by `run`."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sluice_ops.channel import Channel, Write
from sluice_ops.controller.leader import LOST_SECONDS
from sluice_ops.local.simulation import cluster, losses, machine
from sluice_ops.local.simulation.cluster import Size
from sluice_ops.local.simulation.losses import Loss
from sluice_ops.local.simulation.processes import Agents, Controllers, SimulationError
from sluice_ops.model import paths
from sluice_ops.model.status import ControllerStatus

Say = Callable[[str], None]

LOSS_PERIOD = 2.0
"""Between one loss and the next: hosts die on their own, and so few of them are away at a time that the brake stays off."""
PATIENCE = 300.0
"""How long any step may take before the simulation is given up."""
QUIET_SECONDS = 3.0
LOOK_SECONDS = 0.05
RARELY_SECONDS = 2.0
"""Between looks that would take the processor from what is measured."""


@dataclass
class Stage:
    """A cluster that is being simulated."""

    size: Size
    channel: Channel
    agents: Agents
    controllers: Controllers
    folder: Path
    say: Say
    leader: str = field(init=False, default="")

    def register(self) -> None:
        """Wait until all hosts are there, then declare the tiers."""
        self.say(f"{machine.sessions(self.size)} sessions register the hosts")
        self._wait("half of the hosts to register", lambda: self.agents.registered * 2 >= self.size.hosts)
        self.say(f"{self.agents.registered} hosts are registered")
        self._wait("the hosts to register", lambda: self.agents.registered >= self.size.hosts)
        self.say("all hosts are registered")
        self.channel.multi(
            [Write(paths.tier(name), spec, None) for name, (spec, _) in cluster.tiers(self.size).items()]
        )

    def start(self) -> float:
        """Start a controller and have it place everything; return how long that took from the request on."""
        self.leader = self.controllers.start()
        self.say(f"controller {self.leader} starts and reads everything")
        self._wait("the first controller to lead", lambda: self._status() is not None)
        began = time.time()
        self.channel.multi(
            [Write(paths.wanted(name), cluster.wanted(), None) for name in cluster.tiers(self.size)]
        )
        self._wait(
            "every slot to be assigned",
            lambda: self.agents.board(lambda board: board.slots()) == self.size.slots,
        )
        took = self.agents.board(lambda board: max(at for at, _, _ in board.appeared)) - began
        self.say(f"every slot is assigned after {took:.1f} s")
        self._rest()
        return took

    def stand_by(self) -> None:
        """Start a controller that stands by."""
        name = self.controllers.start()
        self.say(f"controller {name} stands by")
        self._wait("the second controller to stand by", lambda: len(self.channel.children(paths.LEADER)) > 1)
        self._rest()

    def lose(self) -> list[tuple[Loss, float]]:
        """Lose hosts one after the other; return each with how long its answer took beyond the controller's wait."""
        dice = random.Random(self.size.hosts)  # noqa: S311 - the same hosts are lost in every run of a size
        names = dice.sample(
            [cluster.host_name(number) for number in range(self.size.hosts)], self.size.losses
        )
        self.say(
            f"losing {len(names)} hosts, one each {LOSS_PERIOD:g} s; the controller gives each agent {LOST_SECONDS:.0f} s to come back"
        )
        lost: list[Loss] = []
        for name in names:
            lost.append(Loss(name, time.time(), self.agents.holds(name)))
            self.channel.delete(paths.live(name))
            time.sleep(LOSS_PERIOD)
        self._wait("every loss to be answered", lambda: None not in self._answers(lost), RARELY_SECONDS)
        self._rest()
        return [
            (loss, max(0.0, (at or 0.0) - loss.at - LOST_SECONDS))
            for loss, at in zip(lost, self._answers(lost), strict=True)
        ]

    def fail_over(self) -> float:
        """Kill the leader; return when the standby had taken its first decision, and have another one stand by."""
        killed, at = self.leader, time.time()
        self.say(f"killing controller {killed}, which leads")
        self.controllers.kill(killed)
        self._wait("the standby to lead", lambda: (self._status() or killed) != killed)
        self.leader = self._status() or ""
        found = self.channel.kazoo.get(paths.CONTROLLER_STATUS)[1]
        took = float(found.mtime) / 1000 - at
        self.say(f"controller {self.leader} decides after {took:.1f} s")
        self.stand_by()
        return took

    def _answers(self, lost: list[Loss]) -> list[float | None]:
        since = self.agents.board(lambda board: board.since(lost[0].at))
        return [losses.answered(loss, since) for loss in lost]

    def _status(self) -> str | None:
        found = self.channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
        return None if found is None else found.value.leader

    def _rest(self) -> None:
        """Wait until nothing more is published."""
        seen, since = -1, time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since
            now = self.agents.board(lambda board: len(board.appeared))
            if now != seen:
                seen, since = now, time.monotonic()
            return time.monotonic() - since > QUIET_SECONDS

        self._wait("the cluster to come to rest", quiet)

    def _wait(self, what: str, check: Callable[[], bool], period: float = LOOK_SECONDS) -> None:
        end = time.monotonic() + PATIENCE
        while not check():
            ended = [*self.controllers.ended(), *(["the agents"] if self.agents.ended else [])]
            if ended or time.monotonic() > end:
                why = f"{' and '.join(ended)} ended by itself" if ended else f"not within {PATIENCE:.0f} s"
                message = f"waiting for {what}: {why}; the logs end with\n{self._logs()}"
                raise SimulationError(message)
            time.sleep(period)

    def _logs(self) -> str:
        logs = [self.folder / "agents.log", *sorted((self.folder / "logs").glob("c*.log"))]
        return "\n".join(
            f"{log.name}: {line}"
            for log in logs
            if log.exists()
            for line in log.read_text().splitlines()[-3:]
        )
