"""What the scaler observes: the figures of each tier, and the bounds of its number of slots."""

from collections.abc import Mapping
from dataclasses import dataclass

from sluice_ops.model.ids import TierName


@dataclass(frozen=True)
class Signals:
    """The figures of one running tier, measured over the last seconds."""

    rate_in: float
    """Records a second that arrive in its input streams."""
    rate_done: float
    """Records a second that it processes."""
    rate_out: float
    """Records a second that it writes."""
    busy: float
    """The part of its active workers' time that they spend on records, from 0 to 1."""
    workers: int
    """Its active workers, with those of bursts."""
    lag: int
    """The records that wait."""
    lag_seconds: float
    """How long the oldest of them has waited."""
    starved: bool
    """Whether its hosts have too little processor time, for its workers or for more workers."""
    modest: bool = False
    """Whether its workers need little processor time: they wait for something else."""
    throttled: bool = False
    """Whether its records wait for a slower tier downstream."""
    holds: bool = True
    """Whether the tier gets workers for its backlog. False: the tier may lag."""
    fixed: float = 0.0
    """The part of `busy` that does not depend on the number of records."""


@dataclass(frozen=True)
class Bounds:
    """The bounds of one tier. Unit: slots."""

    minimum: int
    base: int
    """The number that the layers below `autoscaler` give."""
    maximum: int
    partitions: int
    """More workers than this get no work."""
    room: int
    """The further slots that fit at home now, with spares, which only have to be woken, and slots
    that batch gives back on demand.
    """
    held_by: str | None
    """The owner of a higher layer that sets the number; None: nobody."""
    set_by: str | None = None
    """The owner of a number in the layer `autoscaler` that is not the scaler's; None: nobody."""
    away: int = 0
    """The slots that bursts give it now."""
    away_by_scaler: bool = False
    """Whether the last of these bursts is one that the scaler wanted."""
    burst: int = 0
    """The most slots that bursts can give it, with the present ones; 0: no burst is possible."""
    placed: int | None = None
    """The workers at home in its placement, without spares; None: it has none.

    Its driver counts others for a moment: a spare that starts is a worker until it waits.
    """
    spares: int = 0
    """The workers that wait, and work as soon as the number is raised."""
    room_is_share: bool = False
    """Whether `room` is what the pipeline's maximum leaves, and the hosts have more."""
    in_place: bool = False
    """Whether it gets workers in place, and keeps all those that it has."""


@dataclass(frozen=True)
class Observation:
    """Everything that one plan observes."""

    now: float
    """Wall clock."""
    signals: Mapping[TierName, Signals]
    """Tiers without fresh figures are missing."""
    bounds: Mapping[TierName, Bounds]
    """All tiers whose number of workers can be set."""
    inputs: Mapping[TierName, tuple[TierName, ...]]
    """The tiers that write a tier's input streams; empty: it is fed from outside."""
    change_seconds: float
    """The measured time from a request to the first record on a worker by a handover."""
    changing: frozenset[TierName]
    """The tiers with a change under way."""
    wake_seconds: float = 2.0
    """The time from a request to the first record on a spare."""
    join_seconds: float = 8.0
    """The same on a worker that a tier gets in place."""
    boot_seconds: float = 0.0
    """The measured time from the launch of an instance to its agent; 0: none was timed."""

    def seconds_to_grow(self, tier: TierName) -> float:
        """Return the time from a request to the first record on one more worker of a tier."""
        bounds = self.bounds[tier]
        if bounds.spares:
            return self.wake_seconds
        return self.join_seconds if bounds.in_place else self.change_seconds

    def seconds_to_burst(self, tier: TierName) -> float:
        """Return the time from a request to the first record on a worker of a burst."""
        join = self.join_seconds if self.bounds[tier].in_place else self.change_seconds
        return self.boot_seconds + join
