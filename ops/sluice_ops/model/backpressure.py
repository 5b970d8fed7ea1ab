"""How far a tier may be behind, and what its driver says when it is further (decision record 0019). Pure."""

from pydantic import Field, model_validator

from sluice_ops.model.ids import TierName
from sluice_ops.model.resources import Frozen


class Lag(Frozen):
    """What waits in a stream for a tier."""

    records: int = Field(ge=0)
    seconds: float = Field(ge=0)
    """How long the oldest record that it has not done has been in the stream."""


class Watermarks(Frozen):
    """Between which lags whoever reads a stream may be: above `high` it holds the pipeline's entry back, until it is below `low`."""

    high: Lag = Lag(records=100_000, seconds=120)
    """A minute's outage of a tier with some hundred records a second stays below."""
    low: Lag = Lag(records=20_000, seconds=30)
    """So much is left to work on while the entry begins again."""

    @model_validator(mode="after")
    def _apart(self) -> "Watermarks":
        if self.low.records >= self.high.records or self.low.seconds >= self.high.seconds:
            message = f"watermarks: low ({told(self.low)}) must be below high ({told(self.high)}), in records and in seconds"
            raise ValueError(message)
        return self


class Pressure(Frozen):
    """A tier is behind by more than a high watermark of one of its inputs, and has not come below the low one since."""

    stream: str
    lag: Lag | None
    """When it was said; None when the tier does not run, and nobody measures."""
    since: float
    """Wall clock."""
    rate_in: float | None = None
    """Records that came into the stream each second, and that the tier did."""
    rate_done: float | None = None
    hot: str = ""
    """The partition, or the key, that has more than its part, in words; empty where none has."""

    @property
    def sentence(self) -> str:
        """What a person reads after the tier's name."""
        if self.lag is None:
            return f"does not run, and takes nothing from {self.stream}"
        rates = (
            ""
            if self.rate_in is None
            else f"; {self.rate_in:.0f}/s came in and {self.rate_done or 0:.0f}/s were done"
        )
        return f"is {told(self.lag)} behind in {self.stream}{rates}{f'; {self.hot}' if self.hot else ''}"


class Hold(Frozen):
    """One time that a tier was held back."""

    tier: TierName
    culprit: TierName
    sentence: str
    """What the culprit was, then."""
    begun: float
    ended: float | None = None


class Holds(Frozen):
    """`/holds`: the last times that tiers were held back, the newest last."""

    last: tuple[Hold, ...] = ()


def told(lag: Lag) -> str:
    """Write a lag for people."""
    return f"{lag.records} records, {lag.seconds:.0f} s"


def is_over(lag: Lag, marks: Watermarks, *, before: bool) -> bool:
    """Tell whether a tier is behind too far, having been so `before` or not."""
    if lag.records > marks.high.records or lag.seconds > marks.high.seconds:
        return True
    return before and (lag.records > marks.low.records or lag.seconds > marks.low.seconds)
