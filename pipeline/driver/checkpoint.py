"""What Spark's checkpoint of a batch tier says: read from its files, because the commits are the truth of what is done."""

import json
from pathlib import Path

from pipeline.sinks.ledger import Batch


class Checkpoint:
    """A folder that all incarnations of a batch tier share."""

    def __init__(self, folder: Path) -> None:
        """Look at `folder`, which may not exist yet."""
        self.folder = folder

    @property
    def query(self) -> str | None:
        """The query's id; None before its first start."""
        path = self.folder / "metadata"
        return str(json.loads(path.read_text())["id"]) if path.exists() else None

    def committed(self) -> int:
        """Return the number of the last committed batch; -1 when there is none."""
        return _last(self.folder / "commits")

    def planned(self) -> int:
        """Return the number of the last batch whose offsets were chosen; it runs, or ran, or will run again."""
        return _last(self.folder / "offsets")

    def offsets(self, batch: int) -> dict[str, int]:
        """Return where a batch ends, by `stream/partition`; nothing for batch -1."""
        path = self.folder / "offsets" / str(batch)
        if batch < 0 or not path.exists():
            return {}
        ends: dict[str, int] = {}
        for line in path.read_text().splitlines()[2:]:
            for topic, partitions in json.loads(line).items():
                ends |= {f"{topic}/{partition}": int(offset) for partition, offset in partitions.items()}
        return ends

    def batch(self, number: int, oldest: dict[str, int]) -> Batch:
        """Describe a batch; `oldest` is where the first one of all begins."""
        begins = self.offsets(number - 1) if number else {}
        ends = self.offsets(number)
        return Batch(number, self.query or "", {partition: begins.get(partition, oldest.get(partition, 0)) for partition in ends}, ends)


def _last(folder: Path) -> int:
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return -1
    return max((int(name) for name in names if name.isdigit()), default=-1)
