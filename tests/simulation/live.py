"""The simulated pipeline in real time: its controllers, and perhaps some of its agents, are processes of their own."""

import time

from simulation.world import World

from sluice_ops.model import paths
from sluice_ops.model.status import ControllerStatus

STEP_SECONDS = 0.1


class LiveWorld(World):
    """Its agents, drivers and runbooks take a step every tenth of a second, as long as somebody waits."""

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
        until = time.monotonic() + seconds
        while not condition():
            status = self.channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
            assert time.monotonic() < until, f"not within {seconds} s; the controller said last: {status}"
            self.tick()
