"""The start of a platform: what `sluice up` refuses before it changes anything."""

from dataclasses import replace
from pathlib import Path

import pytest

from sluice_ops.local import lifecycle
from sluice_ops.local.layout import Layout
from sluice_ops.local.services import endpoints_file
from sluice_ops.site.installation import PlatformError


@pytest.fixture
def shop(layout: Layout, tmp_path: Path) -> Layout:
    """Return the home with a site file that names the pipeline `shop`."""
    site = tmp_path / "site.yaml"
    site.write_text("pipeline: own.shop\nhosts: []\n")
    return replace(layout, site=site)


def test_a_start_in_the_home_of_another_pipeline_changes_nothing(layout: Layout, shop: Layout) -> None:
    endpoints_file.write(layout, "hits", users=True, roles=True)
    before = {path: path.read_bytes() for path in layout.home.rglob("*") if path.is_file()}
    with pytest.raises(PlatformError) as refused:
        lifecycle.up(shop, lambda timing: pytest.fail(f"{timing.name} ran"))
    assert f"the home {layout.home} belongs to the pipeline hits" in str(refused.value)
    assert f"{shop.site} names shop: nothing was changed" in str(refused.value)
    assert "SLUICE_HOME=FOLDER" in str(refused.value)
    assert before == {path: path.read_bytes() for path in layout.home.rglob("*") if path.is_file()}


@pytest.mark.parametrize("before", ["shop", None])
def test_a_new_home_or_the_pipelines_own_home_is_accepted(shop: Layout, before: str | None) -> None:
    if before is not None:
        endpoints_file.write(shop, before, users=True, roles=True)
    lifecycle.refuse_other_pipeline(shop)
