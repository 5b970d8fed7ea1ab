"""How far the watermark of a tier with state may go: never past a record that waits (decision record 0045). Pure.

Spark's watermark follows the newest `time` of all input, whichever partition it came from. One that is read ahead of another would make the
other's records late that came in time. So the driver looks at the next records of each partition, and holds the watermark behind them.
"""

from collections.abc import Iterable, Sequence


class Watermark:
    """That of one run: the newest time that Spark may count, after each batch and for each input."""

    def __init__(self) -> None:
        """Begin with a run that has read nothing."""
        self._newest: dict[int, int] = {}

    def after(
        self, times: Sequence[int | None], waiting: Iterable[int] | None, watermark: int
    ) -> list[int | None]:
        """Return the newest time that Spark may count for each input; None holds the watermark where it is.

        `times` are the newest of this batch by input, None where it had no record. `waiting` is when the next records of all partitions
        arrived, None where Kafka did not say. `watermark` is Spark's during the batch: what arrived before it is late already, and is not
        waited for. A record has no `time` after its arrival. Unit: epoch ms.
        """
        for index, time in enumerate(times):
            if time is not None:
                self._newest[index] = max(time, self._newest.get(index, time))
        if waiting is None:
            return [None for _ in times]
        limit = min((arrived - 1 for arrived in waiting if arrived > watermark), default=None)
        known = [self._newest.get(index) for index, _ in enumerate(times)]
        return [newest if newest is None or limit is None else min(newest, limit) for newest in known]
