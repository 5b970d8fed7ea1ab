"""Reads Spark's log of a batch, written before the batch begins: its end offsets, and the
partitions of its state.
"""

import json
from pathlib import Path


def ends(checkpoint: Path, batch: int) -> dict[str, int]:
    """Return where a batch ends, by `stream/partition`, from the query's checkpoint."""
    return offsets_of((checkpoint / "offsets" / str(batch)).read_text())


def offsets_of(logged: str) -> dict[str, int]:
    """Return where a batch ends, from the text of Spark's log. Pure."""
    offsets: dict[str, int] = {}
    for line in logged.splitlines()[2:]:
        if line != "-":  # an input without known offsets yet
            for topic, partitions in json.loads(line).items():
                offsets |= {f"{topic}/{partition}": int(offset) for partition, offset in partitions.items()}
    return offsets


def partitions_of(logged: str) -> int:
    """Return the number of partitions of a batch's state, from the text of Spark's log. Pure."""
    return int(json.loads(logged.splitlines()[1])["conf"]["spark.sql.shuffle.partitions"])
