"""What was published last, as the audit reads it."""

import pytest
from simulation.world import tier

from ops.model.tier import Mode
from pipeline import declare, published, releases
from pipeline.audit.__main__ import tiers_to_audit


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    monkeypatch.delenv("SLUICE_ENDPOINTS", raising=False)
    site = tmp_path / "site.yaml"
    site.write_text("pipeline: tests.integration.pipeline.slow\nhosts: []\n")
    monkeypatch.setenv("SLUICE_SITE", str(site))
    return tmp_path


def test_before_anything_was_published_the_sites_pipeline_is_audited(home):
    assert published.release() is None
    assert published.changed_at() == 0
    assert {each.name for each in tiers_to_audit(home)} == {"enter", "store"}


def test_what_another_site_file_published_is_audited(home, monkeypatch):
    monkeypatch.setattr(releases, "load", lambda at, name: {(home, "r1-0"): declare.load("pipeline.hits")}[at, name])
    published.write([tier("entry", Mode.BATCH, 0, release="r1-0")])
    assert published.changed_at() > 0
    assert {each.name for each in tiers_to_audit(home)} == {"entry", "enrich", "counts", "outbound"}
