"""Shares: the slots a tenant is entitled to, and who set the number."""

import math
import re
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, model_validator

from sluice_ops.model.ids import Tenant
from sluice_ops.model.resources import Frozen

_FINE = 10**6
"""The whole by which per cents are compared: parts of one, too."""

_PER_CENT = re.compile(r"^(\d+(?:\.\d+)?)\s*%$")


def _amount(said: object) -> object:
    """Read `3` or `80%`."""
    if isinstance(said, str) and said.strip().isdecimal():
        said = int(said)
    if isinstance(said, int) and not isinstance(said, bool) and said >= 0:
        return said
    found = _PER_CENT.match(said.strip()) if isinstance(said, str) else None
    if found is None or Fraction(found[1]) > 100:  # noqa: PLR2004 - per cent
        message = f"{said!r} is neither a number of slots nor a part of the cluster: write 3, or a per cent from 0% to 100% such as 80%"
        raise ValueError(message)
    return f"{found[1]}%"


Amount = Annotated[int | str, BeforeValidator(_amount)]
"""So many slots (3), or so much of the cluster (`80%`)."""


def part(amount: Amount, whole: int) -> int:
    """Return an amount in slots: of a per cent as many as are whole, so that parts of 100% in all are never more than the whole."""
    return amount if isinstance(amount, int) else math.floor(Fraction(amount.removesuffix("%")) * whole / 100)


class Layer(IntEnum):
    """Who set a number; the highest layer that has an entry wins."""

    BASE = 0
    SCHEDULE = 1
    AUTOSCALER = 2
    MAINTENANCE = 3
    PERSON = 4


def _in_order(minimum: Amount | None, target: Amount | None, maximum: Amount | None) -> None:
    """Refuse a number above one that bounds it; a number of slots and a per cent cannot be compared without the hosts."""
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
    """A tenant's slots: never below minimum, never above maximum, target in between. What is not said gives way to what is."""

    minimum: Amount = 1
    """If not said: 1, or less where target or maximum are."""
    target: Amount = 1
    """If not said: 1, or the nearest within minimum and maximum."""
    maximum: Amount = 16
    """If not said: 16, or more where minimum or target are; 100% where one of these is a per cent."""

    @model_validator(mode="before")
    @classmethod
    def _giving_way(cls, said: Any) -> Any:
        if not isinstance(said, dict):
            return said
        relative = any(str(said.get(key, "")).strip().endswith("%") for key in ("minimum", "target"))
        numbers = {key: int(str(amount)) for key, amount in said.items() if str(amount).strip().isdecimal()}
        aim = min(max(1, numbers.get("minimum", 1)), numbers.get("maximum", math.inf))
        most = "100%" if relative else max(16, *numbers.values(), 0)
        return {"minimum": min(1, *numbers.values(), 1), "target": aim, "maximum": most, **said}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _in_order(self.minimum, self.target, self.maximum)
        return self


class Numbers(Frozen):
    """What a layer says of a share; what it leaves out holds as the layers below say."""

    target: Amount | None = None
    minimum: Amount | None = None
    maximum: Amount | None = None

    @model_validator(mode="before")
    @classmethod
    def _target_alone(cls, said: Any) -> Any:
        return said if isinstance(said, dict | Numbers) else {"target": said}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _in_order(self.minimum, self.target, self.maximum)
        return self


class Setting(StrEnum):
    """What an entry speaks of; a layer says each of these once of a tenant."""

    TARGET = "target"
    PLACE = "place"
    BURST = "burst"


class LayerEntry(Frozen):
    """One thing set by someone: the numbers of a tenant's share, where it has to be, or a burst."""

    tenant: Tenant
    layer: Layer
    target: Amount | None = None
    minimum: Amount | None = None
    maximum: Amount | None = None
    to: str | None = None
    """A host's name, `zone:z` or `label:l`."""
    extra: int = 0
    """Slots on top of the target that have to be where `extra_to` says: a burst."""
    extra_to: str | None = None
    owner: str
    at: float
    until: float | None = None
    """When its time is over, and the controller takes it back; None: it holds until somebody does."""

    @property
    def setting(self) -> Setting:
        """What it speaks of."""
        if any(number is not None for number in (self.target, self.minimum, self.maximum)):
            return Setting.TARGET
        return Setting.PLACE if self.to is not None else Setting.BURST


class Layers(Frozen):
    """`config/layers`: every entry above the base, which is the site file's."""

    entries: tuple[LayerEntry, ...] = ()
