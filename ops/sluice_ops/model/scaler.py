"""The scaler: its settings in the site file, its decisions, and its memory between two decisions.

The planner is `planning.scaler`, and decision 62 explains it.
"""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from sluice_ops.model.ids import TierName
from sluice_ops.model.resources import Frozen


class Mode(StrEnum):
    """What the scaler does with its decisions about a tier."""

    OFF = "off"
    """It decides nothing."""
    ADVISE = "advise"
    """It tells the number of slots, and changes nothing."""
    ACT = "act"
    """It sets the number of slots in the layer `autoscaler`."""


def _mode(value: object) -> object:
    """Read YAML's `off`, which is the value False."""
    if value is False:
        return Mode.OFF
    if value is True:
        message = "write act, advise or off; YAML reads on, yes and true as one value"
        raise ValueError(message)
    return value


class TierScaling(Frozen):
    """How the scaler decides about one tier."""

    mode: Annotated[Mode, BeforeValidator(_mode)] = Mode.ADVISE
    """`act`: set the slots. `advise`: only tell the number. `off`: decide nothing."""
    utilisation: float = Field(default=0.7, gt=0, lt=1)
    """The part of a worker's capacity that the load should take."""
    band: float = Field(default=0.15, gt=0, lt=1)
    """How far the utilisation may be above or below before the number changes."""
    catch_up: float = Field(default=300.0, ge=10)
    """The time in which a backlog is processed, after new workers have started. Unit: seconds."""
    grow_after: float = Field(default=20.0, ge=0)
    """How long the load needs more slots before the tier grows. Unit: seconds."""
    shrink_after: float = Field(default=600.0, ge=0)
    """How long the load needs fewer slots before the tier shrinks. Unit: seconds."""
    cool_down: float = Field(default=60.0, ge=0, le=3600)
    """The shortest time between two changes. Unit: seconds."""
    step: float = Field(default=4.0, ge=2)
    """The largest factor of one change: with 4, from 2 slots to 8, or from 8 to 2."""
    changes_per_hour: int = Field(default=6, ge=3)
    """The most changes within an hour. The last two are kept for growth, and the last of them for a
    load above the capacity.
    """
    burst: bool = False
    """Whether the scaler may ask for workers on EC2 where home has no room.

    It acts in the mode `act` only. Airflow's runbooks `burst_to_ec2` and `leave_ec2` do the work.
    """
    retry_after: float = Field(default=3600.0, ge=0)
    """How long the scaler does not repeat a growth that did not help. Unit: seconds.

    The time doubles with each of the next five attempts that do not help.
    """

    @property
    def limits(self) -> tuple[float, float]:
        """The utilisation below which a tier may shrink, and the one above which it grows."""
        return self.utilisation - self.band, self.utilisation + self.band

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        low, high = self.limits
        if not 0 < low < high <= 1:
            message = (
                f"the band from {low:.2f} to {high:.2f} "
                f"(utilisation {self.utilisation:g} with band {self.band:g}) is not between 0 and 1; "
                "lower band, or move utilisation towards 0.5"
            )
            raise ValueError(message)
        if self.grow_after > self.shrink_after:
            message = (
                f"grow_after of {self.grow_after:g} is above shrink_after of {self.shrink_after:g}: "
                "a tier would shrink faster than it grows; lower grow_after, or raise shrink_after"
            )
            raise ValueError(message)
        return self


class ScalerSettings(Frozen):
    """How the scaler decides."""

    defaults: TierScaling = TierScaling()
    """The values of each tier that has no own ones. Default: the defaults of the keys below."""
    tiers: dict[TierName, TierScaling] = Field(default_factory=dict)
    """Tier → its own values, such as `{mode: act}`; it takes the other ones from `defaults`."""

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, settings: Any) -> Any:
        """Complete each tier's values, so that they are checked and stored as they apply."""
        if not isinstance(settings, dict) or not isinstance(settings.get("tiers"), dict):
            return settings
        defaults = settings.get("defaults", {})
        if isinstance(defaults, TierScaling):
            defaults = defaults.model_dump()
        if not isinstance(defaults, dict):
            return settings
        tiers = {
            tier: {**defaults, **own} if isinstance(own, dict) else own
            for tier, own in settings["tiers"].items()
        }
        return {**settings, "tiers": tiers}

    def of(self, tier: TierName) -> TierScaling:
        """Return the settings of one tier."""
        return self.tiers.get(tier, self.defaults)


class Decision(Frozen):
    """What the scaler wants for one tier, also if nothing is to do."""

    mode: Mode
    slots: int
    """The slots that the tier has now."""
    wanted: int
    """The slots that the tier should have, without those of bursts."""
    reason: str
    """One sentence with its numbers."""
    since: float
    """When `wanted` changed last. Wall clock."""
    away: int = 0
    """The slots that bursts should give the tier besides, because home has no room.

    They include those of a burst that a person began.
    """
    in_place: bool = False
    """Whether the tier gets workers in place, and keeps all those that it has."""
    because: str = ""
    """The sentence with which the numbers changed last. Empty: an older version decided."""

    @property
    def cause(self) -> str:
        """The reason of a change or a runbook that follows the numbers.

        Each plan has a new reason, and a change may begin some plans after its decision.
        """
        return self.because or self.reason


Figure = Annotated[float, AfterValidator(lambda value: float(f"{value:.6g}") if value > SMALLEST else 0.0)]
"""A measured number. Six digits are exact enough, and keep the memory small."""
SMALLEST = 1e-30
"""Smaller figures count as 0, so that ratios stay finite."""


class Readings(Frozen):
    """The figures of a tier, smoothed."""

    at: float
    rate_in: Figure
    rate_done: Figure
    rate_out: Figure
    best_done: Figure
    """The highest `rate_done` of the last minutes."""
    per_worker: Figure | None
    """Records a second that one worker processes when it never waits; None: not known yet."""
    lag_mean: Figure = 0.0
    """The mean of the records that waited in the last minutes."""


class Week(Frozen):
    """The mean rate in each hour of the week, from past weeks."""

    peak: Figure = 0.0
    """The largest mean."""
    hours: str = ""
    """One byte for each hour in UTC from Thursday 0:00 on, in base64: 0 unknown, 1 no record, 255
    the peak.
    """
    hour: int
    """The hour that is measured now, in hours since 1970."""
    records: Figure = 0.0
    """The records of this hour so far."""
    seconds: Figure = 0.0
    """The part of this hour that was measured."""


class Trend(Frozen):
    """Since when the load has needed more slots, or fewer, without a break."""

    more: bool
    since: float
    most: int
    """The most slots that the load needed meanwhile."""


class Attempt(Frozen):
    """The last growth, until its effect is known."""

    before: int
    after: int
    rate_done: Figure
    """The most records a second that the tier processed before."""
    at: float
    ready: float | None = None
    """When all its workers were first seen."""
    lagged: bool = False
    """Whether records have waited since then."""


class Block(Frozen):
    """A growth that did not help. It ends when the load falls."""

    before: int
    after: int
    done_before: Figure
    done_after: Figure
    load: Figure
    """The load then, with the backlog's part, in records a second."""
    at: float
    times: int = 1
    """How many attempts in a row did not help."""


class Starvation(Frozen):
    """The hosts of a tier have no processor time left."""

    seen: float
    """The last time."""
    tried: int | None = None
    """The slots to which the tier grew meanwhile. It grows once at most."""


class TierMemory(Frozen):
    """What a decision about one tier leaves for the next."""

    readings: Readings | None = None
    week: Week | None = None
    """Only of a tier that is fed from outside; the load of the other tiers follows from it."""
    wanted: int | None = None
    told: bool = False
    """Whether `wanted` was advice: neither the scaler nor a higher layer had set it."""
    away: int = 0
    since: float = 0.0
    changes: tuple[float, ...] = ()
    """The times of the changes within the last hour."""
    trend: Trend | None = None
    attempt: Attempt | None = None
    block: Block | None = None
    starvation: Starvation | None = None


class Memory(Frozen):
    """What one plan leaves for the next."""

    tiers: dict[TierName, TierMemory] = Field(default_factory=dict)


class ScalerModes(Frozen):
    """`config/scaler`: the modes that people set for single tiers, instead of the site file's."""

    modes: dict[TierName, Mode] = Field(default_factory=dict)
    by: str = ""
    at: float = 0.0


RUN_PREFIX = "scaler__"
"""The begin of the ids of the runs in Airflow that follow a wish or show a change of the scaler."""


def asked_by_scaler(author: str) -> bool:
    """Tell whether the author of a change, `airflow:DAG/RUN`, is a run that followed a wish."""
    return author.partition("/")[2].startswith(RUN_PREFIX)


class Wish(Frozen):
    """A runbook that the scaler wants Airflow to run, for the workers of a tier on EC2."""

    tier: TierName | None = None
    """None: every tier has to leave EC2. Only a controller of an older version wants this."""
    k: int = 0
    """How many workers come, or leave."""
    reason: str = ""


class ScalerRecord(Frozen):
    """`scaler`: the last decision about each tier, and the runbook that follows from them."""

    decisions: dict[TierName, Decision] = Field(default_factory=dict)
    wish: Wish | None = None
    """The burst that a tier needs."""
    leave: Wish | None = None
    """The workers of a burst that a tier needs no more. Airflow of an older version does not read
    this, and so takes it for no burst.
    """
    busy: dict[TierName, float] = Field(default_factory=dict)
    """The part of the time that a tier's workers are busy; without tiers of which it is unknown."""
    at: float = 0.0
