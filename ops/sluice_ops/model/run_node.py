"""The node of a run that carries out several changes, one after the other."""

from sluice_ops.model.resources import Frozen


class RunNode(Frozen):
    """The fields that every node of such a run has."""

    run: str
    """The run that carries it on. A later run replaces an earlier one."""
    by: str
    """The user or run that began it."""
    begun_at: float
    number: int = 0
    """The number of the last change."""
