"""Shares: the slots a tenant is entitled to, and who set the number."""

from enum import IntEnum

from pydantic import Field

from ops.model.ids import Tenant
from ops.model.resources import Frozen


class Layer(IntEnum):
    """Who set a number; the highest layer that has an entry wins."""

    BASE = 0
    SCHEDULE = 1
    AUTOSCALER = 2
    MAINTENANCE = 3
    PERSON = 4


class Share(Frozen):
    """A tenant's slots: never below minimum, never above maximum, target in between."""

    minimum: int = Field(default=1, ge=0)
    target: int = Field(default=1, ge=0)
    maximum: int = Field(default=16, ge=0)


class LayerEntry(Frozen):
    """One number set by someone: how many slots, and where the tier has to be."""

    tenant: Tenant
    layer: Layer
    target: int | None = None
    """Slots; None when this entry speaks of locality only."""
    to: str | None = None
    """A host's name, `zone:z` or `label:l`; None for anywhere."""
    extra: int = 0
    """Slots on top of the target that have to be where `extra_to` says: a burst."""
    extra_to: str | None = None
    owner: str
    at: float


class Layers(Frozen):
    """`config/layers`: every entry above the base, which is the site file's."""

    entries: tuple[LayerEntry, ...] = ()
