"""Where the seconds of a run went: a line at the end of the log of its change's last task."""

from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, Operation
from sluice_ops.planning.changes.kinds import KINDS


def seconds_of_run(channel: Channel, operation: str, began: float, now: float) -> str | None:
    """Return how long each step took, and the time between the steps; None before the last step.

    `operation` has its result. The run began at `began`. Epoch seconds.
    """
    posted = channel.read(paths.operation(operation), Operation)
    if posted is None or posted.value.step is not KINDS[posted.value.spec.kind].steps[-1]:
        return None
    record = channel.read(paths.change(posted.value.change), ChangeRecord)
    if record is None:
        return None
    took, total = record.value.took, now - began
    steps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in took.items())
    between = max(0.0, total - sum(took.values()))
    return f"The run took {total:.1f} s: {steps}; between the steps, in Airflow, {between:.1f} s"
