"""Sluice's scaler keeps its bars on every trace, and docs/scaling.md says how well.

`tests/integration/simulation/scaling` compares the rest of the page.
"""

import pytest

from tests.simulation.scaling.judge import judge
from tests.simulation.scaling.report import own_row, tables_of_page
from tests.simulation.scaling.run import run
from tests.simulation.scaling.scalers.sluice import Sluice
from tests.simulation.scaling.traces import TRACES, Trace


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_sluice_keeps_every_bar_and_the_page_says_so(trace: Trace):
    verdict = judge(run(trace, Sluice()))
    assert verdict.missed == ()
    assert own_row(verdict) in tables_of_page().splitlines(), "run python -m tests.simulation.scaling"
