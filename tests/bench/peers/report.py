"""`python -m tests.bench.peers.report`: write the last results of `test_peers.py` as tables for
docs/benchmarks.md, and as plots.

With several turns, each number is the median.
"""

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from tests.bench.conftest import RESULTS
from tests.lab import ROOT

SYSTEMS = {"sluice": "Sluice", "flink": "Flink 2.2.0", "storm": "Storm 2.8.3"}
PLOTS = ROOT / "docs" / "plots"
Results = dict[str, list[dict[str, Any]]]


def results_of(folder: Path, question: str) -> Results:
    """Return each system's answers, turn by turn."""
    answers_by_system: Results = defaultdict(list)
    for path in sorted(folder.glob(f"peers-{question}-*.json")):
        answer = json.loads(path.read_text())
        answers_by_system[answer["system"]].append(answer)
    return {system: answers_by_system[system] for system in SYSTEMS if system in answers_by_system}


def median(answers: list[dict[str, Any]], *keys: str) -> float:
    """Return the median over all turns of the number under these keys."""
    values = []
    for answer in answers:
        value: Any = answer
        for key in keys:
            value = value[key]
        values.append(value)
    return statistics.median(values)


def table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def latency(results: Results) -> str:
    head = [
        "records/s",
        "system",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "p99.9 ms",
        "most ms",
        "processor s per million",
    ]
    rows = []
    for rate in next(iter(results.values()))[0]["rates"]:
        for system, answers in results.items():
            waits = [
                f"{median(answers, 'rates', rate, 'milliseconds', share):.1f}"
                for share in ("p50", "p95", "p99", "p99.9", "most")
            ]
            rows.append(
                [
                    rate,
                    SYSTEMS[system],
                    *waits,
                    round(median(answers, "rates", rate, "processor_seconds_per_million")),
                ]
            )
    return table(head, rows)


def rates(results: Results) -> str:
    head = ["system", "highest sustained records/s", "processor s per million there"]
    rows = []
    for system, answers in results.items():
        costs = [
            rung["processor_seconds_per_million"]
            for turn in answers
            for rung in turn["rungs"]
            if rung["rate"] == turn["highest"]
        ]
        rows.append(
            [
                SYSTEMS[system],
                round(median(answers, "highest")),
                round(statistics.median(costs)) if costs else "",
            ]
        )
    return table(head, rows)


def deeds_table(results: Results) -> str:
    figures = (
        "took_seconds",
        "gap_seconds",
        "gap_seconds_with_preparation",
        "most_waited_seconds",
        "lost",
        "twice",
        "twice_after_the_reader",
    )
    rows = [
        [SYSTEMS[system], deed, *(f"{median(answers, 'deeds', deed, figure):g}" for figure in figures)]
        for system, answers in results.items()
        for deed in answers[0]["deeds"]
    ]
    head = [
        "system",
        "what",
        "took s",
        "gap s",
        "gap s with preparation",
        "most waited s",
        "lost",
        "twice",
        "twice after the reader",
    ]
    return table(head, rows)


def save(figure: Figure, path: Path) -> None:
    """Write the plot; the same numbers make the same file."""
    with rc_context({"svg.hashsalt": path.name}):
        figure.savefig(path, metadata={"Date": None})


def plot_latency(results: Results, path: Path) -> None:
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    offered = list(next(iter(results.values()))[0]["rates"])
    for axis, share in zip(axes, ("p50", "p95", "p99"), strict=True):
        for system, answers in results.items():
            waits = [median(answers, "rates", rate, "milliseconds", share) for rate in offered]
            axis.plot([int(rate) for rate in offered], waits, marker="o", label=SYSTEMS[system])
        axis.set(title=share, xlabel="records/s", xscale="log", yscale="log")
        axis.set_xticks([int(rate) for rate in offered], offered)
        axis.minorticks_off()
        axis.grid(visible=True, which="major", alpha=0.3)
    axes[0].set_ylabel("milliseconds")
    axes[0].legend()
    save(figure, path)


def plot_gaps(moves: Results, kills: Results, path: Path) -> None:
    bars = [
        (
            f"{SYSTEMS[system]}: {verb}{deed}",
            median(answers, "deeds", deed, "most_waited_seconds"),
            list(SYSTEMS).index(system),
        )
        for verb, results in (("", moves), ("kill -9 of ", kills))
        for system, answers in results.items()
        for deed in answers[0]["deeds"]
    ]
    figure = Figure(figsize=(10, 0.4 * len(bars) + 1), layout="constrained")
    axis = figure.subplots()
    axis.barh(
        [name for name, _, _ in bars],
        [value for _, value, _ in bars],
        color=[f"C{number}" for _, _, number in bars],
    )
    axis.invert_yaxis()
    axis.set(xlabel="seconds that the latest record waited", xscale="log", xlim=(0.01, None))
    axis.grid(visible=True, axis="x", alpha=0.3)
    save(figure, path)


def main() -> int:
    results_by_question = {
        question: results_of(RESULTS, question) for question in ("latency", "rate", "moves", "kills")
    }
    if missing := [question for question, results in results_by_question.items() if not results]:
        sys.stderr.write(
            f"no results of {', '.join(missing)} in {RESULTS}: "
            "run .venv/bin/python -m pytest tests/bench/test_peers.py\n"
        )
        return 1
    tables = (
        latency(results_by_question["latency"]),
        rates(results_by_question["rate"]),
        deeds_table(results_by_question["moves"]),
        deeds_table(results_by_question["kills"]),
    )
    sys.stdout.write("\n\n".join(tables) + "\n")
    PLOTS.mkdir(exist_ok=True)
    plot_latency(results_by_question["latency"], PLOTS / "peers-latency.svg")
    plot_gaps(results_by_question["moves"], results_by_question["kills"], PLOTS / "peers-gaps.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
