"""The steps of a simulation on real controllers; each step has a time limit. Called by `run`."""

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
"""Seconds between two losses: few hosts are lost at the same time, so the brake stays off."""
STEP_SECONDS = 300.0
"""Limit for each step; after that, the simulation fails."""
QUIET_SECONDS = 3.0
"""Seconds without a new assignment after which the cluster is at rest."""
POLL_SECONDS = 0.05
RARE_POLL_SECONDS = 2.0
"""For checks that would take much processor time from the measured processes."""


@dataclass
class Stage:
    """The simulated cluster, and its current leader."""

    size: Size
    channel: Channel
    agents: Agents
    controllers: Controllers
    folder: Path
    say: Say
    leader: str = field(init=False, default="")

    def register(self) -> None:
        """Wait until all hosts are registered, then publish the tiers."""
        self.say(f"{machine.sessions(self.size)} sessions register the hosts")
        self._wait("half of the hosts to register", lambda: self.agents.registered * 2 >= self.size.hosts)
        self.say(f"{self.agents.registered} hosts are registered")
        self._wait("the hosts to register", lambda: self.agents.registered >= self.size.hosts)
        self.say("all hosts are registered")
        self.channel.multi(
            [Write(paths.tier(name), spec, None) for name, (spec, _) in cluster.tiers(self.size).items()]
        )

    def start(self) -> float:
        """Start a controller and request all tiers.

        Return the seconds from the request until every slot was assigned.
        """
        self.leader = self.controllers.start()
        self.say(f"controller {self.leader} starts and reads all nodes")
        self._wait("the first controller to lead", lambda: self._status() is not None)
        began = time.time()
        self.channel.multi(
            [Write(paths.wanted(name), cluster.wanted(), None) for name in cluster.tiers(self.size)]
        )
        self._wait(
            "every slot to be assigned",
            lambda: self.agents.board(lambda board: board.slots()) == self.size.slots,
        )
        seconds = self.agents.board(lambda board: max(at for at, _, _ in board.appeared)) - began
        self.say(f"every slot is assigned after {seconds:.1f} s")
        self._rest()
        return seconds

    def stand_by(self) -> None:
        """Start a standby controller."""
        name = self.controllers.start()
        self.say(f"controller {name} stands by")
        self._wait("the standby controller", lambda: len(self.channel.children(paths.LEADER)) > 1)
        self._rest()

    def lose(self) -> list[tuple[Loss, float]]:
        """Lose hosts one after the other.

        Return each loss with the seconds until its answer, without the controller's wait for the
        agent.
        """
        dice = random.Random(self.size.hosts)  # noqa: S311 - the same hosts are lost in every run of a size
        names = dice.sample(
            [cluster.host_name(number) for number in range(self.size.hosts)], self.size.losses
        )
        self.say(
            f"losing {len(names)} hosts, one every {LOSS_PERIOD:g} s; "
            f"the controller waits {LOST_SECONDS:.0f} s for each agent"
        )
        lost: list[Loss] = []
        for name in names:
            lost.append(Loss(name, time.time(), self.agents.assigned(name)))
            self.channel.delete(paths.live(name))
            time.sleep(LOSS_PERIOD)
        self._wait("the answer to every loss", lambda: None not in self._answers(lost), RARE_POLL_SECONDS)
        self._rest()
        return [
            (loss, max(0.0, (at or 0.0) - loss.at - LOST_SECONDS))
            for loss, at in zip(lost, self._answers(lost), strict=True)
        ]

    def fail_over(self) -> float:
        """Kill the leader, and start another standby controller.

        Return the seconds from the kill until the first decision of the next leader.
        """
        killed, at = self.leader, time.time()
        self.say(f"killing the leader, controller {killed}")
        self.controllers.kill(killed)
        self._wait("the next leader", lambda: (self._status() or killed) != killed)
        self.leader = self._status() or ""
        stat = self.channel.kazoo.get(paths.CONTROLLER_STATUS)[1]
        seconds = float(stat.mtime) / 1000 - at
        self.say(f"controller {self.leader} decides after {seconds:.1f} s")
        self.stand_by()
        return seconds

    def _answers(self, lost: list[Loss]) -> list[float | None]:
        since = self.agents.board(lambda board: board.since(lost[0].at))
        return [losses.answered_at(loss, since) for loss in lost]

    def _status(self) -> str | None:
        """Return the name of the leader that wrote the last status; None without a status."""
        status = self.channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
        return None if status is None else status.value.leader

    def _rest(self) -> None:
        """Wait until no new assignment is published."""
        count, since = -1, time.monotonic()

        def quiet() -> bool:
            nonlocal count, since
            now = self.agents.board(lambda board: len(board.appeared))
            if now != count:
                count, since = now, time.monotonic()
            return time.monotonic() - since > QUIET_SECONDS

        self._wait("the cluster to come to rest", quiet)

    def _wait(self, event: str, check: Callable[[], bool], period: float = POLL_SECONDS) -> None:
        deadline = time.monotonic() + STEP_SECONDS
        while not check():
            ended = [*self.controllers.ended(), *(["the agents"] if self.agents.ended else [])]
            if ended or time.monotonic() > deadline:
                cause = (
                    f"{' and '.join(ended)} ended unexpectedly"
                    if ended
                    else f"it did not come within {STEP_SECONDS:.0f} s"
                )
                message = (
                    f"the simulation failed while it waited for {event}: {cause}. "
                    f"The end of the logs:\n{self._logs()}"
                )
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
