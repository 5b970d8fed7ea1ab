"""What Spark logs of a batch before it begins: up to which offsets it reads, over how many partitions its state is spread."""

import json
from pathlib import Path


def ends(checkpoint: Path, batch: int) -> dict[str, int]:
    """Return where a batch ends, as the query's checkpoint has it."""
    return offsets_of((checkpoint / "offsets" / str(batch)).read_text())


def offsets_of(logged: str) -> dict[str, int]:
    """Return where a batch ends, of what Spark logs before it begins. Pure."""
    found: dict[str, int] = {}
    for line in logged.splitlines()[2:]:
        if line != "-":  # an input of which nothing is known yet
            for topic, partitions in json.loads(line).items():
                found |= {f"{topic}/{partition}": int(offset) for partition, offset in partitions.items()}
    return found


def partitions_of(logged: str) -> int:
    """Return over how many partitions a batch's state is spread, likewise. Pure."""
    return int(json.loads(logged.splitlines()[1])["conf"]["spark.sql.shuffle.partitions"])
