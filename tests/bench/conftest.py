"""The shipped pipeline in a lab without Airflow and controller, so that only the data's side is
measured.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sluice_ops.model.incarnation import State
from tests.lab import ROOT, Lab, opened

RESULTS = ROOT / ".sluice" / "bench"


@pytest.fixture(scope="module")
def flowing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with opened(tmp_path_factory.mktemp("bench")) as lab:
        lab.write_class_data()
        for host, tier in (("h1", "entry"), ("h3", "enrich"), ("h3", "counts"), ("h1", "outbound")):
            lab.start_owner(tier, 1, host)
            lab.wait_for(tier, 1, State.RUNNING)
        yield lab


def save(name: str, results: dict[str, Any]) -> None:
    """Print the results, and save them."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1)
    (RESULTS / f"{name}.json").write_text(text)
    print(text)
