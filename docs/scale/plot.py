"""Draws docs/scale/growth.svg from the output of `sluice simulate --json`.

Run `python docs/scale/plot.py RESULT.json…`.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

PANELS = (
    ("every slot planned (s)", "plan_seconds", 1),
    ("a loss answered, p99 (s)", "loss_to_assignment_p99_seconds", 1),
    ("failover (s)", "failover_seconds", 1),
    ("controller's peak (MiB)", "controller_peak_bytes", 2**20),
)
"""The title of each panel, the key of its result, and the unit in which it is drawn."""


def plot(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw each figure over the number of hosts, with its target; equal results, equal files."""
    by_hosts = sorted(results, key=lambda each: each["hosts"])
    hosts = [each["hosts"] for each in by_hosts]
    figure = Figure(figsize=(7.5, 6), layout="constrained")
    axes = figure.subplots(2, 2)
    for axis, (title, key, unit) in zip(axes.flat, PANELS, strict=True):
        axis.plot(hosts, [each[key] / unit for each in by_hosts], marker="o", label="measured")
        targets = [each["targets"][key]["target"] / unit for each in by_hosts]
        axis.plot(hosts, targets, linestyle="--", label="target")
        axis.set(title=title, xlabel="hosts", xlim=(0, None), ylim=(0, None))
        axis.grid(visible=True, alpha=0.3)
    axes[0, 0].legend()
    with rc_context({"svg.hashsalt": path.name, "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    plot(
        [json.loads(Path(name).read_text()) for name in sys.argv[1:]], Path(__file__).with_name("growth.svg")
    )
