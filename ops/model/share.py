"""Shares: the slots a tenant is entitled to, and who set the number."""

import math
import re
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, model_validator

from ops.model.ids import Tenant
from ops.model.resources import Frozen

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


class Share(Frozen):
    """A tenant's slots: never below minimum, never above maximum, target in between."""

    minimum: Amount = 1
    target: Amount = 1
    maximum: Amount = 16
    """Where minimum or target are per cents, it is 100% if not said."""

    @model_validator(mode="before")
    @classmethod
    def _all_of_it(cls, said: Any) -> Any:
        relative = isinstance(said, dict) and any(str(said.get(key, "")).strip().endswith("%") for key in ("minimum", "target"))
        return {"maximum": "100%", **said} if relative else said

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        alike = isinstance(self.minimum, int) is isinstance(self.maximum, int)
        if alike and part(self.minimum, 100) > part(self.maximum, 100):
            message = f"its minimum of {self.minimum} is above its maximum of {self.maximum}"
            raise ValueError(message)
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
