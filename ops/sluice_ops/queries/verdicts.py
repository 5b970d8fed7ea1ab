"""The audit's verdict on a tier, in words. Pure."""

from sluice_ops.model.status import Check
from sluice_ops.queries.figures import Audited

VERDICTS = {
    Check.RECORDS: "balanced",
    Check.SUMS: "balanced by its sums",
    Check.LAST: "no gap between batches; rows of the last batch are checked",
    Check.BATCHES: "no gap between batches; rows are not checked",
}
"""The verdict on a tier without losses, by what the audit can check."""


def verdict(line: Audited, lost: int) -> str:
    """Return the verdict in a few words; the verdict claims only what the audit checked."""
    if lost:
        return "LOST"
    if not line.judges:
        return "filters records: not judged"
    words = VERDICTS[line.checked]
    return f"{words}, except {line.unseen} deleted records" if line.unseen else words
