"""The pipeline that the audit reads: the published one, or the site file's before the first
publish.
"""

import pytest
from simulation.world import tier

from sluice import published, releases
from sluice.api import declarations
from sluice.audit.__main__ import tiers_to_audit
from sluice_ops.model.release import Release
from sluice_ops.model.tier import Mode

RELEASE = Release(name="r1-00000000", module="hits", digest="0" * 64, published_at=0.0)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    monkeypatch.delenv("SLUICE_ENDPOINTS", raising=False)
    site = tmp_path / "site.yaml"
    site.write_text("pipeline: tests.integration.sluice.slow_sink_pipeline\nhosts: []\n")
    monkeypatch.setenv("SLUICE_SITE", str(site))
    return tmp_path


def test_before_the_first_publish_the_sites_pipeline_is_audited(home):
    assert published.release() is None
    assert published.changed_at() == 0
    assert {audited.name for audited in tiers_to_audit(home, dict[str, Release]().get)} == {"enter", "store"}


def test_the_pipeline_published_from_another_site_file_is_audited(home, monkeypatch):
    def load(at, name, release):
        assert (at, name, release) == (home, RELEASE.name, RELEASE), (
            "the release must be the one of the channel"
        )
        return declarations.load("hits")

    monkeypatch.setattr(releases, "load", load)
    published.write([tier("entry", Mode.BATCH, 0, release=RELEASE.name)])
    assert published.changed_at() > 0
    assert {audited.name for audited in tiers_to_audit(home, {RELEASE.name: RELEASE}.get)} == {
        "entry",
        "enrich",
        "counts",
        "outbound",
    }
