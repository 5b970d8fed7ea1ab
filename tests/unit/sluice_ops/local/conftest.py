"""An installation that nothing runs in."""

from pathlib import Path

import pytest

from sluice_ops.local.layout import Layout, Ports
from sluice_ops.site.installation import CHECKOUT


@pytest.fixture
def where(tmp_path: Path) -> Layout:
    place = Layout(home=tmp_path / "home", ports=Ports.above(40000), site=CHECKOUT / "site.yaml")
    place.make_folders()
    return place
