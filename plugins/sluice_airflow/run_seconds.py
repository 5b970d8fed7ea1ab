"""Where the seconds of a run went: a line at the end of the log of its last task."""

from collections import Counter
from collections.abc import Mapping

from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.change import ChangeRecord, Operation, Step
from sluice_ops.planning.changes.kinds import KINDS


def seconds_of_run(channel: Channel, operation: str, began: float, now: float) -> str | None:
    """Return how long each step took, and the time between the steps; None before the last step.

    `operation` has its result. An abort is the last step of a change that failed. The run began at
    `began`. Epoch seconds.
    """
    posted = channel.read(paths.operation(operation), Operation)
    if posted is None or posted.value.step not in {Step.ABORT, KINDS[posted.value.spec.kind].steps[-1]}:
        return None
    record = channel.read(paths.change(posted.value.change), ChangeRecord)
    if record is None:
        return None
    return _sentence("The run", now - began, record.value.took, "in Airflow")


def seconds_of_changes(channel: Channel, by: str, began: float, now: float) -> str | None:
    """Return the same of the run `by` of several changes, summed; None if it made no change."""
    nodes = [paths.change(name) for name in channel.children("/changes")]
    reads = channel.read_many([node for node in nodes if node != paths.LOCK], ChangeRecord)
    changes = [read.value for read in reads if read is not None and read.value.by == by]
    took: Counter[Step] = Counter()
    for change in changes:
        took.update(change.took)
    if not changes:
        return None
    run = f"The run of {len(changes)} change{'s' if len(changes) > 1 else ''}"
    return _sentence(run, now - began, took, "in Airflow and in waits")


def _sentence(run: str, total: float, took: Mapping[Step, float], where: str) -> str:
    steps = "".join(f"{step} {seconds:.1f} s, " for step, seconds in took.items()).removesuffix(", ")
    between = max(0.0, total - sum(took.values()))
    return f"{run} took {total:.1f} s: {steps or 'no step'}; between the steps, {where}, {between:.1f} s"
