"""Hooks: functions of a tier that Sluice calls at a pause, a stop, a handover and a start. Pure.

A tier declares a subclass of `Hooks` that overrides the methods it needs. Sluice calls the hooks in
the tier's driver. Sluice cannot call a hook before a kill. If a hook raises an exception, the
incarnation fails and reports the exception.
"""


class Hooks:
    """The base class; its methods do nothing."""

    def pause(self) -> None:
        """Prepare for a pause or a stop; records flow until this method returns."""

    def get_internal_state(self) -> bytes | None:
        """Return the state for the next incarnation; Sluice calls this when no records flow.

        None: Sluice hands over its own description of where the incarnation stopped.
        """
        return None

    def resume_execution(self, state: bytes) -> None:
        """Load the state that the previous incarnation left.

        Sluice calls this before the query starts. In a handover, Sluice calls this when the
        previous owner, beside which the query started, has stopped.
        """
