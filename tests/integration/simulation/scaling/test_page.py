"""docs/scaling.md has the tables that the program prints."""

import pytest

from tests.simulation.scaling.judge import judge
from tests.simulation.scaling.report import SCALERS, tables, tables_of_page
from tests.simulation.scaling.run import run
from tests.simulation.scaling.traces import TRACES


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_tables_of_the_page_are_those_of_the_simulation():
    results = [[judge(run(trace, make())) for make in SCALERS.values()] for trace in TRACES]
    assert tables_of_page() == tables(results)
