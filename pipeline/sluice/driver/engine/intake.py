"""How many records a throttled tier may let in, and how fast it catches up afterwards (decision
64). Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

ROUND_SECONDS = 2.0
"""Time between two allowances. Each is a Spark job."""
LATE_SECONDS = 1.5 * ROUND_SECONDS
"""A tier that catches up and is so late for a round takes records as fast as it can."""
GROWTH = 1.25
"""How many times as many records a tier that catches up takes in the next round."""
START_SECONDS = 4.0
"""A tier that took nothing before catches up with one batch in this time at first.

Within it the controller hears of a tier that lags (a look every two seconds, and a pass of the
controller).
"""
SILENT_SECONDS = 60.0
"""Without a controller, a tier that may let nothing in lets a few records in each time this has
passed.
"""
LITTLE = 0.1
"""The size of such a batch, as a part of the tier's largest batch."""


@dataclass
class Intake:
    """Works in rounds, with one allowance in each.

    Allowed records that do not come are not saved up for later rounds.
    """

    most: int
    """The tier's largest batch. Unit: records."""
    _admitted: float | None = 0.0
    """The admitted rate at the last call."""
    _rate: float = 0.0
    """The rate of this round, or the last one above zero. Unit: records per second."""
    _part: float = 0.0
    """The part of a record that is saved, so that a rate below one record in each round counts."""
    _begun: float | None = None
    """When the round began."""

    def allowance(self, now: float, silent: float, admitted: float | None) -> int:
        """Return how many records to let in now, for a tier whose query does not run.

        `silent` is how long there has been no controller. `admitted` is the rate at which the
        controller lets records in; None: the tier is not throttled any more, and catches up.
        """
        before, self._admitted = self._admitted, admitted
        since = None if self._begun is None else now - self._begun
        if admitted == 0:
            due = silent >= SILENT_SECONDS and (since is None or since >= SILENT_SECONDS)
            self._begun = now if due else self._begun
            return max(1, int(self.most * LITTLE)) if due else 0
        if admitted is None and not self._rate:
            return self._round(now, self.most / START_SECONDS, START_SECONDS)
        if since is None or before == 0 or (before is None and admitted is not None):
            return self._round(now, self._rate if admitted is None else admitted, ROUND_SECONDS)
        if since < ROUND_SECONDS:
            return 0
        grows = before is None and since < LATE_SECONDS
        caught_up = self._rate * GROWTH if grows else self._rate
        return self._round(now, caught_up if admitted is None else admitted, min(since, LATE_SECONDS))

    def _round(self, now: float, rate: float, seconds: float) -> int:
        allowed = self._part + rate * seconds
        self._begun, self._rate, self._part = now, rate, allowed % 1
        return int(allowed)


def portion(begins: Mapping[str, int], ends: Mapping[str, int], most: int) -> dict[str, int]:
    """Return where a batch of at most `most` records ends, with a proportional part of each
    partition.
    """
    waits = {partition: max(0, end - begins[partition]) for partition, end in ends.items()}
    total = sum(waits.values())
    if total <= most:
        return {partition: begins[partition] + count for partition, count in waits.items()}
    until = {partition: begins[partition] + count * most // total for partition, count in waits.items()}
    left_over = most - sum(until[partition] - begins[partition] for partition in until)
    for partition, count in sorted(waits.items(), key=lambda item: (-item[1], item[0]))[:left_over]:
        until[partition] += 1 if until[partition] < begins[partition] + count else 0
    return until
