"""How far apart a tier's workers have to be, so that what is lost together is a small part of it."""

from pydantic import Field

from sluice_ops.model.resources import Frozen


class Spread(Frozen):
    """So many workers of one incarnation at most may be in one place; None: any number."""

    host: int | None = Field(default=None, ge=1)
    rack: int | None = Field(default=None, ge=1)
    """A host that names no rack counts as one of its own."""
    zone: int | None = Field(default=None, ge=1)
