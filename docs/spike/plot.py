"""Draws the timeline of tests/scenarios/test_spike.py from the JSON that the test writes.

Run `python docs/spike/plot.py spike.json spike.svg`.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

USES = ("at work", "on EC2", "changing", "spare", "free", "lent")
COLORS = ("C0", "C3", "C8", "C9", "0.85", "C2")
"""The color of each use of a slot; grey is free."""
MARKED = re.compile(r"the spike begins|the spike is over|the controller is killed|wants \d+ \+ \d+ on EC2")
"""The events that the plot marks."""


def plot(timeline: Path, path: Path) -> None:
    """Draw rates, lag and slots over the minutes since the spike began."""
    record: dict[str, Any] = json.loads(timeline.read_text())
    minutes = [seconds / 60 for seconds in record["at"]]
    figure = Figure(figsize=(8, 8), layout="constrained")
    rates, lag, slots = figure.subplots(3, 1, sharex=True)
    for key, label, style in (
        ("fed", "fed", {"color": "black", "linestyle": "--", "linewidth": 1}),
        ("rate_in", "into the tier", {"color": "C1", "linewidth": 3, "alpha": 0.5}),
        ("rate_out", "out of the tier", {"color": "C0", "linewidth": 1}),
    ):
        rates.plot(minutes, record[key], label=label, **style)
    lag.plot(minutes, record["lag"], color="C1", linewidth=1)
    counts = [record["slots"][use] for use in USES]
    slots.stackplot(minutes, counts, labels=USES, colors=COLORS, step="post")
    titles = ("records/s", "records that wait", "slots")
    for axis, title in zip((rates, lag, slots), titles, strict=True):
        axis.set(ylabel=title, ylim=(0, None))
        axis.grid(visible=True, alpha=0.3)
        for event in record["events"]:
            if (marked := MARKED.search(event["event"])) is not None:
                killed = "killed" in marked[0]
                axis.axvline(event["at"] / 60, color="C3" if killed else "0.4", linewidth=0.6, linestyle=":")
    slots.set_xlabel("minutes since the spike began")
    rates.legend(loc="upper right")
    slots.legend(loc="upper left", ncols=6)
    slots.set_ylim(0, 1 + max(map(sum, zip(*counts, strict=True))))
    with rc_context({"svg.hashsalt": path.name, "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    plot(Path(sys.argv[1]), Path(sys.argv[2]))
