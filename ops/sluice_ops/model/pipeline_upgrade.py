"""An upgrade of the whole pipeline: what it has to do, and how far it is."""

from pydantic import Field

from sluice_ops.model.ids import TierName
from sluice_ops.model.run_node import RunNode


class PipelineUpgrade(RunNode):
    """`upgrades/pipeline`: an upgrade of all tiers that is under way, or has ended."""

    release: str
    """The release that every tier gets."""
    before: dict[TierName, str | None] = Field(default_factory=dict)
    """By tier, in the order of the upgrades: the release before. None: no known release."""
    tier: TierName | None = None
    """The tier of the last change, which may be under way."""
    upgraded: tuple[TierName, ...] = ()
    """The tiers that this upgrade has upgraded, in order."""
    failed: str = ""
    """Why the upgraded tiers go back; empty while none does."""
    ended: bool = False
    """Whether the upgrade has ended; the next run then begins another one."""
