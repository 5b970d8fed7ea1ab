"""Shares: the slots that a tenant is entitled to, and the layers that set the numbers.

`planning.placement.shares` computes each tenant's slots from these types.
"""

import math
import re
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, model_validator

from sluice_ops.model.ids import Tenant
from sluice_ops.model.resources import Frozen

_FINE = 10**6
"""A large whole for comparing per cents, so that fractions of a per cent count too."""

_PER_CENT = re.compile(r"^(\d+(?:\.\d+)?)\s*%$")


def _amount(value: object) -> object:
    """Read `3` or `80%`."""
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _PER_CENT.match(value.strip()) if isinstance(value, str) else None
    if match is None or Fraction(match[1]) > 100:  # noqa: PLR2004 - per cent
        message = (
            f"{value!r} is neither a number of slots nor a part of the cluster: "
            "write 3, or a per cent from 0% to 100% such as 80%"
        )
        raise ValueError(message)
    return f"{match[1]}%"


Amount = Annotated[int | str, BeforeValidator(_amount)]
"""A number of slots (3), or a part of the cluster (`80%`)."""


def part(amount: Amount, whole: int) -> int:
    """Return an amount in slots, where `whole` slots are 100%.

    A per cent is rounded down, so that parts that sum to 100% are never more than the whole.
    """
    return amount if isinstance(amount, int) else math.floor(Fraction(amount.removesuffix("%")) * whole / 100)


def room_of(amount: Amount) -> Fraction:
    """Return an amount as slots, or as a part of the cluster."""
    return Fraction(amount) if isinstance(amount, int) else Fraction(amount.removesuffix("%")) / 100


def is_zero(amount: Amount) -> bool:
    return Fraction(str(amount).removesuffix("%")) == 0


class Layer(IntEnum):
    """The source of a number. For each setting, the highest layer that has an entry wins."""

    BASE = 0
    SCHEDULE = 1
    AUTOSCALER = 2
    MAINTENANCE = 3
    PERSON = 4


def _in_order(minimum: Amount | None, target: Amount | None, maximum: Amount | None) -> None:
    """Raise ValueError if minimum, target and maximum are not in order.

    A number of slots and a per cent are not compared, because that needs the hosts.
    """
    bounds = (
        {"minimum": minimum, "maximum": maximum},
        {"minimum": minimum, "target": target},
        {"target": target, "maximum": maximum},
    )
    for (low, less), (high, more) in (pair.items() for pair in bounds):
        if less is None or more is None or isinstance(less, int) is not isinstance(more, int):
            continue
        if part(less, _FINE) > part(more, _FINE):
            message = f"its {low} of {less} is above its {high} of {more}; lower {low}, or raise {high}"
            raise ValueError(message)


class Share(Frozen):
    """A tenant's slots: minimum, target, maximum and spare. Default values adapt to given ones."""

    minimum: Amount = 1
    """Default: 1, or less if target or maximum are less."""
    target: Amount = 1
    """Default: 1, or the nearest number within minimum and maximum."""
    maximum: Amount = 16
    """Default: 16, or more if minimum or target are more; 100% if one of them is a per cent."""
    spare: Amount = 0
    """Further workers of a tier, which are started and warm, but work only in place of others.

    The maximum does not count them. Default: none.
    """

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, share: Any) -> Any:
        if not isinstance(share, dict):
            return share
        relative = any(str(share.get(key, "")).strip().endswith("%") for key in ("minimum", "target"))
        numbers = {
            key: int(str(amount))
            for key, amount in share.items()
            if key != "spare" and str(amount).strip().isdecimal()
        }
        aim = min(max(1, numbers.get("minimum", 1)), numbers.get("maximum", math.inf))
        most = "100%" if relative else max(16, *numbers.values(), 0)
        return {"minimum": min(1, *numbers.values(), 1), "target": aim, "maximum": most, **share}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _in_order(self.minimum, self.target, self.maximum)
        return self


class PipelineShare(Frozen):
    """What the tiers of the pipeline have together, with spares and without bursts."""

    minimum: Amount = 0
    """What `batch` gives back, down to its last slot, if the tiers need it. Default: none."""
    maximum: Amount = "100%"
    """The most that the tiers get. Default: all."""

    @model_validator(mode="before")
    @classmethod
    def _both(cls, share: Any) -> Any:
        """Read `80%` as minimum and maximum."""
        if share is None or isinstance(share, dict | PipelineShare):
            return share
        return {"minimum": share, "maximum": share}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _in_order(self.minimum, None, self.maximum)
        return self


class Numbers(Frozen):
    """The numbers that a layer sets. A number that it leaves out comes from the layers below."""

    target: Amount | None = None
    """The slots that the tenant gets if room allows."""
    minimum: Amount | None = None
    """The slots that come first when room is short."""
    maximum: Amount | None = None
    """The most slots."""
    spare: Amount | None = None
    """The spare workers of a tier."""

    @model_validator(mode="before")
    @classmethod
    def _target_alone(cls, numbers: Any) -> Any:
        return numbers if isinstance(numbers, dict | Numbers) else {"target": numbers}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _in_order(self.minimum, self.target, self.maximum)
        return self

    def __str__(self) -> str:
        """Return the numbers that are set: `target 3, minimum 1`."""
        return ", ".join(f"{key} {number}" for key, number in self if number is not None)


class Setting(StrEnum):
    """The subject of an entry. A layer has at most one entry for each tenant and setting."""

    TARGET = "target"
    PLACE = "place"
    BURST = "burst"


class LayerEntry(Frozen):
    """One setting of a tenant in a layer: the numbers of its share, its place, or a burst."""

    tenant: Tenant
    layer: Layer
    target: Amount | None = None
    minimum: Amount | None = None
    maximum: Amount | None = None
    spare: Amount | None = None
    to: str | None = None
    """A host's name, `zone:z`, `rack:r` or `label:l`."""
    extra: int = 0
    """The slots of a burst, in addition to the target, which have to be at `extra_to`."""
    extra_to: str | None = None
    owner: str
    """The person, tool or shift that set the entry."""
    at: float
    until: float | None = None
    """When the entry ends and the controller removes it; None: it holds until somebody
    removes it.
    """

    @property
    def setting(self) -> Setting:
        if any(number is not None for number in (self.target, self.minimum, self.maximum, self.spare)):
            return Setting.TARGET
        return Setting.PLACE if self.to is not None else Setting.BURST


class Layers(Frozen):
    """`config/layers`: all entries above the layer `base`, which is the site file."""

    entries: tuple[LayerEntry, ...] = ()

    def present_burst(self, tenant: str) -> LayerEntry | None:
        """Return the entry of the burst that a tier has; None if it has none."""
        bursts = [entry for entry in self.entries if entry.tenant == tenant and entry.extra]
        return max(bursts, key=lambda entry: entry.layer, default=None)
