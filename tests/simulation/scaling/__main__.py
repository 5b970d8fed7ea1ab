"""`python -m tests.simulation.scaling`: write the tables and plots of docs/scaling.md.

With the name of a trace, print what Sluice's scaler decides on it, and the verdict.
"""

import sys

from tests.simulation.scaling.judge import judge
from tests.simulation.scaling.report import PAGE, SCALERS, plot, tables, write_page
from tests.simulation.scaling.run import run
from tests.simulation.scaling.scalers.sluice import Sluice
from tests.simulation.scaling.traces import TRACES, Trace


def tell(trace: Trace) -> None:
    """Print the decisions of Sluice's scaler, and the bars that it misses."""
    scaler = Sluice()
    verdict = judge(run(trace, scaler))
    for now, tier, decision in scaler.decisions:
        hours, seconds = divmod(round(now - trace.begins), 3600)
        print(
            f"{hours:3}:{seconds // 60:02}:{seconds % 60:02} {tier:8} "
            f"{decision.slots} -> {decision.wanted}: {decision.reason}"
        )
    print(verdict)
    print("missed:", "; ".join(verdict.missed) or "no bar")


def main(arguments: list[str]) -> int:
    traces = {trace.name: trace for trace in TRACES}
    if unknown := [name for name in arguments if name not in traces]:
        sys.stderr.write(f"no trace {', '.join(unknown)}; there are: {', '.join(traces)}\n")
        return 2
    for name in arguments:
        tell(traces[name])
    if arguments:
        return 0
    runs = [[run(trace, scaler()) for scaler in SCALERS.values()] for trace in TRACES]
    text = tables([[judge(each) for each in of_trace] for of_trace in runs])
    write_page(text)
    plot([each for of_trace in runs for each in of_trace])
    print(f"{text}\nwritten to {PAGE}; the plots are in docs/plots")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
