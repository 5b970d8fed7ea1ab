"""The program prints decisions of one trace, and refuses a trace that it does not have."""

import numpy as np

from tests.simulation.scaling.__main__ import main
from tests.simulation.scaling.report import POINTS, thinned


def test_an_unknown_trace_is_refused_with_the_names_of_all(capsys):
    assert main(["flash"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("no trace flash; there are: daily curve, flash crowd,")


def test_one_trace_prints_each_decision_with_its_reason(capsys):
    assert main(["flash crowd"]) == 0
    told = capsys.readouterr().out.splitlines()
    growths = [line for line in told if line.startswith("  2:0") and " entry " in line]
    assert growths
    assert all("->" in line and "records/s" in line for line in growths)
    assert told[-1].startswith("missed: ")


def test_a_line_of_a_plot_keeps_its_highest_values():
    values = np.zeros(100 * POINTS)
    values[12_345] = 7
    thin = thinned(values)
    assert (len(thin), thin.max(), thin.sum()) == (POINTS, 7, 7)
