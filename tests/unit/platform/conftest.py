"""An installation that nothing runs in."""

from pathlib import Path

import pytest

from ops.platform.layout import CHECKOUT, Layout, Ports


@pytest.fixture
def where(tmp_path: Path) -> Layout:
    place = Layout(home=tmp_path / "home", ports=Ports.above(40000), site=CHECKOUT / "site.yaml")
    place.make_folders()
    return place
