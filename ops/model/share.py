"""Shares: the slots a tenant is entitled to, and who set the number."""

from enum import IntEnum, StrEnum

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


class Setting(StrEnum):
    """What an entry speaks of; a layer says each of these once of a tenant."""

    TARGET = "target"
    PLACE = "place"
    BURST = "burst"


class LayerEntry(Frozen):
    """One thing set by someone: how many slots a tenant has, where it has to be, or a burst."""

    tenant: Tenant
    layer: Layer
    target: int | None = None
    """Slots."""
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
        if self.target is not None:
            return Setting.TARGET
        return Setting.PLACE if self.to is not None else Setting.BURST


class Layers(Frozen):
    """`config/layers`: every entry above the base, which is the site file's."""

    entries: tuple[LayerEntry, ...] = ()
