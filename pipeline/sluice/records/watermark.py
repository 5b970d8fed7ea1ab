"""The limit of the watermark of a tier with state: no waiting record (decision 45). Pure.

Spark's watermark follows the newest `time` of all partitions together. If Spark reads one partition
ahead of another, timely records of the other partition would become late. So the driver looks at
the next record of each partition, and keeps the watermark behind these records.
"""

from collections.abc import Iterable, Sequence


class Watermark:
    """The watermark of one run: the newest time that Spark may count, by batch and input."""

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}

    def after(
        self, times: Sequence[int | None], waiting: Iterable[int] | None, watermark: int
    ) -> list[int | None]:
        """Return the newest time that Spark may count for each input after a batch.

        None keeps the watermark unchanged. Unit of all times: epoch ms.

        - `times`: the newest `time` of this batch, by input; None for an input without records;
        - `waiting`: the arrival times of the next records of all partitions, None if Kafka did
          not answer. A record's `time` is never after its arrival;
        - `watermark`: Spark's watermark during the batch. Records that arrived before it are late
          already, and the watermark does not wait for them.
        """
        for index, time in enumerate(times):
            if time is not None:
                self._newest[index] = max(time, self._newest.get(index, time))
        if waiting is None:
            return [None for _ in times]
        limit = min((arrived - 1 for arrived in waiting if arrived > watermark), default=None)
        known = [self._newest.get(index) for index, _ in enumerate(times)]
        return [newest if newest is None or limit is None else min(newest, limit) for newest in known]
