"""The simulated pipeline in real time: its controllers, and some of its agents, may be processes of
their own.
"""

import time

from simulation.world import World

from sluice_ops.model import paths
from sluice_ops.model.status import ControllerStatus

STEP_SECONDS = 0.1


class LiveWorld(World):
    """Agents, drivers and runbooks take a step every tenth of a second while a test waits."""

    def clock(self):
        return time.monotonic()

    def wall(self):
        return time.time()

    def tick(self, seconds=STEP_SECONDS):
        time.sleep(seconds)
        self.now = time.time()
        for agent in self.agents.values():
            agent.step()
        for runbook in self.runbooks:
            runbook.step()
        self.check()

    def until_true(self, condition, seconds):
        deadline = time.monotonic() + seconds
        while not condition():
            status = self.channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
            assert time.monotonic() < deadline, (
                f"after {seconds} s still not true; the controller's last status: {status}"
            )
            self.tick()
