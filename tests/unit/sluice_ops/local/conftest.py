"""An installation in which no process runs."""

from pathlib import Path

import pytest

from sluice_ops.local.layout import Layout, Ports
from tests.lab import ROOT


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made_layout = Layout(home=tmp_path / "home", ports=Ports.above(40000), site=ROOT / "site.yaml")
    made_layout.make_folders()
    return made_layout
