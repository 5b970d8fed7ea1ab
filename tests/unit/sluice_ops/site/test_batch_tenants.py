"""Batch tenants in the site file: limits that contradict each other are refused by name."""

from pathlib import Path

import pytest

from sluice_ops.model.batch import BatchTenant
from sluice_ops.site.site_file import Site, SiteError, load


def site_of(folder: Path, tenants: str, batch: str = "{minimum: 0, target: 0, maximum: 2}") -> Site:
    path = folder / "site.yaml"
    path.write_text(f"pipeline: p\nhosts: []\nshares: {{batch: {batch}}}\nbatch_tenants: {tenants}\n")
    return load(path)


def test_a_site_without_batch_tenants_has_one_without_limits(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("pipeline: p\nhosts: []\n")
    assert load(tmp_path / "site.yaml").batch_tenants == {"default": BatchTenant()}


def test_batch_tenants_have_limits_and_a_priority(tmp_path: Path) -> None:
    site = site_of(tmp_path, "{reports: {minimum: 1, maximum: 2, priority: 10}, training: {}}")
    assert site.batch_tenants == {
        "reports": BatchTenant(minimum=1, maximum=2, priority=10),
        "training": BatchTenant(minimum=0, maximum=None, priority=0),
    }


@pytest.mark.parametrize(
    ("tenants", "reason"),
    [
        ("{reports: {minimum: 3, maximum: 2}}", "its minimum of 3 is above its maximum of 2; lower minimum"),
        ("{a: {minimum: 2}, b: {minimum: 1}}", "the minimums add up to 3 slots, but batch has at most 2"),
        ("{nightly report: {}}", "'nightly report' is not a batch tenant's name: write up to 50 letters"),
        ("{reports: {maximum: 0}}", "batch_tenants.reports.maximum"),
        ("{}", "batch_tenants"),
    ],
)
def test_unusable_batch_tenants_are_refused_with_the_reason(
    tmp_path: Path, tenants: str, reason: str
) -> None:
    with pytest.raises(SiteError, match=reason):
        site_of(tmp_path, tenants)


def test_minimums_fit_into_the_largest_share_of_batch(tmp_path: Path) -> None:
    assert site_of(tmp_path, "{a: {minimum: 2}}")
    assert site_of(tmp_path, "{a: {minimum: 9}}", batch="{minimum: 0, target: 50%, maximum: 80%}")
