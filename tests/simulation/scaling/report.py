"""The tables and plots of docs/scaling.md."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.simulation.scaling.judge import (
    MOST_ATTEMPTS,
    MOST_CHANGES_AN_HOUR,
    MOST_COST,
    MOST_STEPS,
    Verdict,
)
from tests.simulation.scaling.optimum import LAG_LIMIT, optimum
from tests.simulation.scaling.run import Run
from tests.simulation.scaling.scalers.dhalion import Dhalion
from tests.simulation.scaling.scalers.flink import EXAMPLE, Flink, Options
from tests.simulation.scaling.scalers.protocol import Scaler
from tests.simulation.scaling.scalers.sluice import Sluice
from tests.simulation.scaling.scalers.threshold import Threshold
from tests.simulation.scaling.traces import DAY, HOUR, TRACES, Trace, Values

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "scaling.md"
PLOTS = ROOT / "docs" / "plots"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->"
POINTS = 160
"""Points of a line in a plot. Matplotlib simplifies lines of 128 points and more."""

SCALERS: dict[str, Callable[[], Scaler]] = {
    "Sluice": Sluice,
    "Flink": lambda: Flink("Flink", Options()),
    "Flink, example": lambda: Flink("Flink, example", EXAMPLE),
    "Dhalion": Dhalion,
    "Kubernetes HPA": Threshold,
}
PLOTTED = ("Sluice", "Flink", "Dhalion", "Kubernetes HPA")
Verdicts = Sequence[Verdict]


def cell(value: float, digits: int = 0, *, missed: bool = False) -> str:
    """Return a number for a table, bold if it misses its bar."""
    text = "never" if np.isinf(value) else f"{value:,.{digits}f}"
    return f"**{text}**" if missed else text


def own_row(verdict: Verdict) -> str:
    """Return the row of Sluice's table about one trace."""
    steps, attempts = verdict.steps, verdict.attempts
    cells = [
        verdict.trace.name,
        "" if steps is None else cell(steps, missed=steps > MOST_STEPS),
        cell(verdict.hourly, missed=verdict.trace.changes_bar and verdict.hourly > MOST_CHANGES_AN_HOUR),
        cell(verdict.lag, missed=verdict.lag > LAG_LIMIT),
        cell(verdict.cost, 3, missed=verdict.cost > MOST_COST),
        "" if attempts is None else cell(attempts, missed=verdict.in_vain),
    ]
    return f"| {' | '.join(cells)} |"


OWN_HEAD = f"""\
| trace | steps | changes an hour | longest wait (s) | slot-hours | growths during the fault |
|---|---|---|---|---|---|
| bar | {MOST_STEPS} | {MOST_CHANGES_AN_HOUR} (1) | {LAG_LIMIT:.0f} | {MOST_COST} | {MOST_ATTEMPTS} (2) |"""

MEASURES: dict[str, Callable[[Verdict], str]] = {
    "Longest wait, in seconds, and the minutes over the limit": lambda verdict: (
        f"{cell(verdict.lag)}, {cell(verdict.late / 60)}" if verdict.late else cell(verdict.lag)
    ),
    "Slot-hours, as a multiple of the optimum": lambda verdict: cell(verdict.cost, 3),
    "Changes a day, of all tiers": lambda verdict: cell(verdict.daily),
    "Changes of a tier until it had the size for a new level": lambda verdict: (
        "" if verdict.steps is None else cell(verdict.steps)
    ),
    "Growths of the slow tier while the fault lasts": lambda verdict: (
        "" if verdict.attempts is None else cell(verdict.attempts)
    ),
}


def measure_row(measure: str, verdicts: Verdicts) -> str:
    """Return the row about one trace, with a cell for each scaler; empty: it says nothing here."""
    cells = [MEASURES[measure](verdict) for verdict in verdicts]
    return f"| {verdicts[0].trace.name} | {' | '.join(cells)} |" if any(cells) else ""


def tables(results: Sequence[Verdicts]) -> str:
    """Return all tables; each element has the verdicts on one trace in the order of SCALERS."""
    head = f"| trace | {' | '.join(SCALERS)} |\n|{'---|' * (len(SCALERS) + 1)}"
    parts = [f"Sluice:\n\n{OWN_HEAD}\n" + "\n".join(own_row(verdicts[0]) for verdicts in results)]
    for measure in MEASURES:
        rows = [row for verdicts in results if (row := measure_row(measure, verdicts))]
        parts.append(f"{measure}:\n\n{head}\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def write_page(text: str) -> None:
    """Replace the tables of the page."""
    page = PAGE.read_text()
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    PAGE.write_text(f"{page[:begin]}\n{text}\n{page[end:]}")


def tables_of_page() -> str:
    """Return the tables that the page has now."""
    (text,) = re.findall(f"{BEGIN}\n(.*)\n{END}", PAGE.read_text(), re.DOTALL)
    return str(text)


def thinned(values: Values) -> Values:
    """Return the highest value of each of some sections of equal length."""
    section = max(1, len(values) // POINTS)
    whole = values[: len(values) // section * section]
    return whole.reshape(-1, section).max(axis=1)


def panels(title: str) -> tuple[Figure, dict[str, Axes]]:
    figure = Figure(figsize=(10, 11), layout="constrained")
    axes = dict(zip((trace.name for trace in TRACES), figure.subplots(len(TRACES) // 2, 2).flat, strict=True))
    for trace in TRACES:
        unit = "days" if trace.seconds > DAY else "hours"
        axis = axes[trace.name]
        axis.set(title=trace.name, xlabel=unit)
        axis.grid(visible=True, alpha=0.3)
    figure.supylabel(title)
    return figure, axes


def times(trace: Trace, count: int) -> Values:
    unit = DAY if trace.seconds > DAY else HOUR
    return np.linspace(0, trace.seconds / unit, count, endpoint=False)


def save(figure: Figure, path: Path) -> None:
    """Write the plot; the same numbers make the same file."""
    with rc_context({"svg.hashsalt": path.name}):
        figure.savefig(path, metadata={"Date": None})


def plot(runs: Sequence[Run]) -> None:
    """Draw workers and waits over time."""
    sizes, size_axes = panels("workers of all tiers")
    waits, wait_axes = panels("longest wait (s)")
    for trace in TRACES:
        best = thinned(np.sum(list(optimum(trace).values()), axis=0))
        size_axes[trace.name].plot(times(trace, len(best)), best, color="black", linewidth=1, label="optimum")
        wait_axes[trace.name].set(yscale="symlog", ylim=(0, 10_000))
        wait_axes[trace.name].axhline(LAG_LIMIT, color="black", linewidth=1, label="limit")
    for run in runs:
        if run.scaler not in PLOTTED:
            continue
        style = {
            "color": f"C{PLOTTED.index(run.scaler)}",
            "linewidth": 1.6 if run.scaler == "Sluice" else 0.9,
            "label": run.scaler,
        }
        for axes, values in (
            (size_axes, np.sum(list(run.sizes.values()), axis=0)),
            (wait_axes, run.lag_seconds),
        ):
            thin = thinned(values)
            axes[run.trace.name].plot(times(run.trace, len(thin)), thin, **style)
    for figure, axes, name in ((sizes, size_axes, "workers"), (waits, wait_axes, "waits")):
        for axis in axes.values():
            axis.set_ylim(bottom=0)
        figure.legend(*axes[TRACES[0].name].get_legend_handles_labels(), loc="outside upper center", ncols=5)
        save(figure, PLOTS / f"scaling-{name}.svg")
