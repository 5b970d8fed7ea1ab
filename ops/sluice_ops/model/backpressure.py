"""Lag, watermarks and backpressure reports of drivers (decision 19). Pure."""

from pydantic import Field, model_validator

from sluice_ops.model.ids import TierName
from sluice_ops.model.resources import Frozen

HOUR_SECONDS = 3600


class Lag(Frozen):
    """The records that wait in a stream for a tier."""

    records: int = Field(ge=0)
    seconds: float = Field(ge=0)
    """How long the oldest waiting record has been in the stream."""


class Watermarks(Frozen):
    """The lag limits of a stream.

    A tier with a lag above `high` throttles the pipeline's entry until its lag is below `low`,
    unless the tier is declared to lag.
    """

    high: Lag = Lag(records=100_000, seconds=120)
    """A tier with some hundred records a second stays below it in an outage of one minute."""
    low: Lag = Lag(records=20_000, seconds=30)
    """The rest of the lag gives the tier work while the entry starts again."""

    @model_validator(mode="after")
    def _apart(self) -> "Watermarks":
        if self.low.records >= self.high.records or self.low.seconds >= self.high.seconds:
            message = (
                f"watermarks: low ({told(self.low)}) must be below high ({told(self.high)}), "
                "in records and in seconds"
            )
            raise ValueError(message)
        return self


EXPIRY_PART = 0.5
"""A backlog nears its deletion when its oldest record has waited for this part of the retention."""


class Expiry(Frozen):
    """When Kafka deletes the oldest record that waits for a tier."""

    stream: str
    kept: float = Field(gt=0)
    """How long Kafka keeps a record of the stream. Unit: seconds."""
    left: float
    """How long until Kafka may delete the oldest waiting record. Unit: seconds."""

    @property
    def used(self) -> float:
        """The part of the retention that the oldest waiting record has waited."""
        return 1 - self.left / self.kept

    @property
    def near(self) -> bool:
        """Whether the oldest record has waited for EXPIRY_PART of the retention."""
        return self.used >= EXPIRY_PART

    @property
    def sentence(self) -> str:
        """The text for people."""
        if self.left <= 0:
            return f"Kafka may already delete records of {self.stream} that were not processed"
        left = f"{self.left / HOUR_SECONDS:.1f} h" if self.left >= HOUR_SECONDS else f"{self.left:.0f} s"
        return f"Kafka deletes the oldest of these records of {self.stream} in {left}"

    def after(self, seconds: float) -> "Expiry":
        """Return the expiry so many seconds later, if the tier processes nothing."""
        return self.model_copy(update={"left": self.left - seconds})


class Pressure(Frozen):
    """A tier's lag rose above a high watermark of an input, and has not fallen below the low one
    since.
    """

    stream: str
    lag: Lag | None
    """The lag at the time of the report; None: the tier does not run, so its lag is not
    measured.
    """
    since: float
    """Wall clock."""
    rate_in: float | None = None
    """Records that came into the stream each second."""
    rate_done: float | None = None
    """Records that the tier processed each second."""
    rate_wanted: float = 0.0
    """Records that should come into the stream each second (`admission.wanted_rate`)."""
    hot: str = ""
    """A text that names the partition or key with more than its part of the records;
    empty: none.
    """
    expiry: Expiry | None = None
    """Of the lagging input with the least part of its retention left; None: Kafka keeps all
    records, or it is not known yet.
    """

    @property
    def sentence(self) -> str:
        """The text for people, which continues the tier's name."""
        if self.lag is None:
            return f"does not run, and takes nothing from {self.stream}"
        rates = (
            ""
            if self.rate_in is None
            else f"; {self.rate_in:.0f}/s came in and {self.rate_done or 0:.0f}/s were done"
        )
        return f"is {told(self.lag)} behind in {self.stream}{rates}{f'; {self.hot}' if self.hot else ''}"


class Hold(Frozen):
    """One time that a tier was throttled."""

    tier: TierName
    culprit: TierName
    sentence: str
    """The state of the culprit when the hold began; continues the culprit's name."""
    begun: float
    ended: float | None = None


class Holds(Frozen):
    """`/holds`: the last holds, the newest last."""

    last: tuple[Hold, ...] = ()


def told(lag: Lag) -> str:
    """Return a lag as a text for people."""
    return f"{lag.records} records, {lag.seconds:.0f} s"


def is_over(lag: Lag, marks: Watermarks, *, before: bool) -> bool:
    """Return whether a lag is too large; `before` tells whether it was too large the last time."""
    if lag.records > marks.high.records or lag.seconds > marks.high.seconds:
        return True
    return before and (lag.records > marks.low.records or lag.seconds > marks.low.seconds)
