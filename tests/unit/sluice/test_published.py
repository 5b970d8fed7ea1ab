"""The pipeline that the audit reads: the published one, or the site file's before the first
publish.
"""

import json

import pytest
from simulation.world import tier

from sluice import published, releases
from sluice.api import declarations
from sluice.audit.__main__ import tiers_to_audit
from sluice_ops.model.release import Release
from sluice_ops.model.tier import Mode, PublishedTier

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
        return releases.Loaded(declarations.load("hits"))

    monkeypatch.setattr(releases, "load", load)
    published.write([tier("entry", Mode.BATCH, 0, release=RELEASE.name)], declarations.load("hits"))
    assert published.changed_at() > 0
    assert {audited.name for audited in tiers_to_audit(home, {RELEASE.name: RELEASE}.get)} == {
        "entry",
        "enrich",
        "counts",
        "outbound",
    }


def test_the_file_has_the_columns_of_streams_and_tables():
    pipeline = declarations.load("hits")
    published.write(pipeline.specs(), pipeline)
    written = [PublishedTier.model_validate(each) for each in json.loads(published.path().read_text())]
    tiers = {each.name: each for each in written}
    assert [each.model_dump(include=set(type(each).model_fields)) for each in pipeline.specs()] == [
        each.model_dump(exclude={"streams", "tables"}) for each in written
    ]
    assert tiers["entry"].streams["raw"] is None, "records from outside have no columns"
    assert tiers["entry"].streams["hits"] == tiers["enrich"].streams["hits"]
    assert tiers["enrich"].streams["hits"]["at"] == "bigint"
    assert (tiers["enrich"].tables, list(tiers["counts"].tables)) == ({}, ["campaign_counts"])
    assert tiers["outbound"].tables["delivered"]["at"] == "timestamptz"
