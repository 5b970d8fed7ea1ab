"""What the control plane has to reach, and whether it did. Pure; called by `sluice simulate`, which prints it."""

from dataclasses import dataclass

from sluice_ops.channel.client import SESSION_SECONDS

PLAN_SECONDS = {1_000: 0.150, 10_000: 2.0}
"""By number of hosts; in between on the straight line."""
ANSWER_SECONDS = 1.0
"""Beyond the session timeout and the time for which the controller waits for an agent on purpose."""
FAILOVER_SECONDS = SESSION_SECONDS + 2.0
PEAK_BYTES = 2**30


@dataclass(frozen=True)
class Figures:
    """What one simulation measured."""

    hosts: int
    slots: int
    tiers: int
    sessions: int
    """Connections of the simulated agents: each stands for several hosts when this is less than `hosts`."""
    session_seconds: float
    lost_seconds: float
    plan_seconds: float
    """The pure decision that places every slot of every tier, the fastest of five: a pure function's time, not that of what else runs."""
    cold_start_seconds: float
    """From the request to run all tiers until the last assignment was published."""
    losses: int
    losses_of_drivers: int
    """Those among them that took a driver along, so that its whole tier was started anew."""
    loss_to_assignment_p50_seconds: float
    loss_to_assignment_p99_seconds: float
    loss_to_assignment_max_seconds: float
    loss_of_driver_max_seconds: float | None
    """The longest of the losses that took a driver along; None when no loss did."""
    loss_without_driver_max_seconds: float | None
    """The longest of the others; None when every loss took a driver along."""
    failovers: int
    failover_seconds: float
    """From the kill of the leader to the first decision of the next one, the longest."""
    controller_peak_bytes: int
    znodes: int
    ephemerals: int
    tree_bytes: int
    watches: int


@dataclass(frozen=True)
class Target:
    """One figure that has a target."""

    figure: str
    what: str
    measured: float
    target: float

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.measured <= self.target


def plan_seconds(hosts: int) -> float:
    """Return how long planning so many hosts may take."""
    (few, least), (many, most) = PLAN_SECONDS.items()
    return max(least, least + (hosts - few) * (most - least) / (many - few))


def targets(figures: Figures) -> list[Target]:
    """Hold what was measured against what has to be reached."""
    return [
        Target("plan_seconds", "every slot planned (s)", figures.plan_seconds, plan_seconds(figures.hosts)),
        Target(
            "loss_to_assignment_p99_seconds",
            "a loss answered, p99, beyond the waits (s)",
            figures.loss_to_assignment_p99_seconds,
            ANSWER_SECONDS,
        ),
        Target(
            "failover_seconds", "fail-over to the standby (s)", figures.failover_seconds, FAILOVER_SECONDS
        ),
        Target(
            "controller_peak_bytes",
            "controller's peak memory (MiB)",
            figures.controller_peak_bytes,
            PEAK_BYTES,
        ),
    ]
