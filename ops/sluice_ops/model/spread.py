"""The rule `spread`, which limits how many workers of a tier one failure can take away."""

from pydantic import Field

from sluice_ops.model.resources import Frozen


class Spread(Frozen):
    """The most workers of one incarnation in one host, rack or zone; None: any number."""

    host: int | None = Field(default=None, ge=1)
    """The most workers on one host."""
    rack: int | None = Field(default=None, ge=1)
    """The most workers in one rack. A host without a rack counts as a rack of its own."""
    zone: int | None = Field(default=None, ge=1)
    """The most workers in one zone."""
