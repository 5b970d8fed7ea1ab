"""What a tier may do itself where it is held and where it goes on: a subclass in its declaration overrides what it needs. Pure.

They are called in the tier's driver: when it is paused, told to stop, or handed over. After a kill nothing was called. A hook that raises
fails the incarnation, which says so.
"""


class Hooks:
    """Each does nothing unless it is overridden."""

    def pause(self) -> None:
        """Prepare to be held; records still flow, until this returns."""

    def get_internal_state(self) -> bytes | None:
        """Return what whoever goes on has to be told, once nothing flows. None: the platform's own description of where it stopped."""
        return None

    def resume_execution(self, state: bytes) -> None:
        """Take what was left last: before the query begins; at a hand-over, when the owner beside which it began has stopped."""
