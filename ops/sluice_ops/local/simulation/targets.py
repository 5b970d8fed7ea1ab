"""The figures of a simulation, and their targets. Pure; `sluice simulate` prints them."""

from dataclasses import dataclass

from sluice_ops.channel.client import SESSION_SECONDS

PLAN_SECONDS = {1_000: 0.150, 10_000: 2.0}
"""Target for planning, by number of hosts; linear in between."""
ANSWER_SECONDS = 1.0
"""Target for the answer to a loss.

It leaves out the session timeout and the time for which the controller waits for the agent.
"""
FAILOVER_SECONDS = SESSION_SECONDS + 2.0
"""Target for the failover to the standby controller."""
PEAK_BYTES = 2**30
"""Target for a controller's peak memory."""


@dataclass(frozen=True)
class Figures:
    """The figures of one simulation."""

    hosts: int
    slots: int
    tiers: int
    sessions: int
    """Sessions of the simulated agents; a session serves several hosts if there are more hosts."""
    session_seconds: float
    """The timeout of a ZooKeeper session."""
    lost_seconds: float
    """The time for which the controller waits for a silent agent."""
    plan_seconds: float
    """The time of the decision that places every slot, the fastest of five.

    The fastest is the least disturbed by other processes.
    """
    cold_start_seconds: float
    """From the request to run all tiers until the last assignment."""
    losses: int
    losses_of_drivers: int
    """The losses of hosts with a driver, after which the whole tier was started again."""
    loss_to_assignment_p50_seconds: float
    loss_to_assignment_p99_seconds: float
    loss_to_assignment_max_seconds: float
    loss_of_driver_max_seconds: float | None
    """The longest time to answer the loss of a driver; None if no driver was lost."""
    loss_without_driver_max_seconds: float | None
    """The longest time to answer another loss; None if every loss was one of a driver."""
    failovers: int
    failover_seconds: float
    """The longest time from the kill of a leader to the first decision of the next leader."""
    controller_peak_bytes: int
    znodes: int
    ephemerals: int
    tree_bytes: int
    watches: int


@dataclass(frozen=True)
class Target:
    """A figure and its target."""

    figure: str
    """The field of `Figures`."""
    label: str
    measured: float
    target: float

    @property
    def met(self) -> bool:
        """Whether the figure is at most its target."""
        return self.measured <= self.target


def plan_seconds(hosts: int) -> float:
    """Return the target for planning this number of hosts, in seconds."""
    (few, least), (many, most) = PLAN_SECONDS.items()
    return max(least, least + (hosts - few) * (most - least) / (many - few))


def targets(figures: Figures) -> list[Target]:
    """Return the figures that have a target, with their targets."""
    return [
        Target("plan_seconds", "plan of every slot (s)", figures.plan_seconds, plan_seconds(figures.hosts)),
        Target(
            "loss_to_assignment_p99_seconds",
            "time to answer a loss, p99, without the waits (s)",
            figures.loss_to_assignment_p99_seconds,
            ANSWER_SECONDS,
        ),
        Target("failover_seconds", "failover to the standby (s)", figures.failover_seconds, FAILOVER_SECONDS),
        Target(
            "controller_peak_bytes",
            "controller's peak memory (MiB)",
            figures.controller_peak_bytes,
            PEAK_BYTES,
        ),
    ]
