"""A batch job whose tasks sleep: `sleeping_job.py FILE`. Each task that ends adds a line to FILE.

The tasks of its first stage are short, those of the second take 1 to 80 seconds.
"""

import os
import sys
import time
from collections.abc import Iterator

from pyspark.sql import SparkSession

SHORT_TASKS, LONG_TASKS = 12, 24
LONGEST = 80.0
"""The longest task. Unit: seconds."""


def seconds_of(task: int) -> float:
    """Return how long a task of the second stage takes: 1 to 80 s, in an order that mixes them."""
    return 1.0 + (task * 37 % LONG_TASKS) / (LONG_TASKS - 1) * (LONGEST - 1.0)


def note(path: str, stage: str, task: int) -> None:
    with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123 - one write for each line
        file.write(f"{stage} {task} {os.getpid()}\n")


def main(path: str) -> None:
    context = SparkSession.builder.appName("sleeping_job").getOrCreate().sparkContext

    def short(task: int, values: Iterator[int]) -> Iterator[tuple[int, int]]:
        time.sleep(0.5)
        note(path, "short", task)
        return ((value, value) for value in values)

    def long(task: int, values: Iterator[object]) -> Iterator[int]:
        count = sum(1 for _ in values)
        time.sleep(seconds_of(task))
        note(path, "long", task)
        return iter([count])

    numbers = context.parallelize(range(LONG_TASKS), SHORT_TASKS)
    shuffled = numbers.mapPartitionsWithIndex(short).groupByKey(LONG_TASKS)
    total = sum(shuffled.mapPartitionsWithIndex(long).collect())
    note(path, "total", total)


if __name__ == "__main__":
    main(sys.argv[1])
