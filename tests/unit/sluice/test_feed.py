"""The feed of the example, and the checks of `publish --check` on site files."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

import hits
from hits.feed import hit
from sluice.api import declarations
from sluice.commands import publish
from sluice.feed import FeedResult
from sluice.kafka import topics
from sluice_ops.model.tier import Standby


def test_a_hit_depends_only_on_its_number_and_time():
    assert hit(7, 1.0) == {**hit(7, 2.0), "at": 1000}
    assert hit(7, 1.0)["id"] == "hit-7"


def test_a_feed_reports_its_counts_and_rate():
    assert (
        str(FeedResult(first=1, count=100, failed=0, seconds=2.0)) == "100 records, 1 to 100, in 2.0 s, 50/s"
    )
    assert "3 not taken by Kafka" in str(FeedResult(first=1, count=100, failed=3, seconds=2.0))


def test_records_of_streams_have_the_brokers_time():
    wanted = topics.wanted(declarations.load("hits"))
    assert {config["message.timestamp.type"] for config in wanted.values()} == {"LogAppendTime"}
    assert int(wanted["raw.quarantine"]["max.message.bytes"]) > int(wanted["raw"]["max.message.bytes"])


def check(tmp_path, monkeypatch, text):
    path = tmp_path / "site.yaml"
    path.write_text(text)
    monkeypatch.setitem(os.environ, "SLUICE_SITE", str(path))
    return publish.main(["--check", "--declared"])


def test_check_finds_the_shipped_site_valid(monkeypatch, capsys):
    monkeypatch.setitem(os.environ, "SLUICE_SITE", str(Path(__file__).parents[3] / "site.yaml"))
    assert publish.main(["--check", "--declared"]) == 0
    assert "hits: valid declarations: entry, enrich, counts, outbound" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shares", "{entri: {minimum: 1}, batch: {minimum: 0}}"),
        ("locality", "{entri: h1, batch: h1}"),
        ("spread", "{entri: {host: 1}}"),
        ("pinned", "{entri: {h1: 1}}"),
        ("separate", "[[entri, counts]]"),
        ("dedicated", "{h1: [entri, batch]}"),
        ("budget", "{entri: 1}"),
        ("scaler", "{tiers: {entri: {mode: act}}}"),
        ("shifts", "{night: {schedule: '0 22 * * *', shares: {entri: 1, batch: 1}}}"),
    ],
)
def test_check_names_keys_with_an_unknown_tier(tmp_path, monkeypatch, capsys, key, value):
    assert check(tmp_path, monkeypatch, f"pipeline: hits\nhosts: []\n{key}: {value}\n") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(key)
    assert (
        'in the site file names "entri", which is no tier: '
        "the pipeline hits has entry, enrich, counts, outbound" in line
    )


SHIFT = "shifts: {night: {schedule: '0 22 * * *', shares: {KEY}}}"


@pytest.mark.parametrize("key", ["shares: {KEY}", SHIFT], ids=["share", "shift"])
def test_check_refuses_spares_of_a_tier_that_cannot_have_any(tmp_path, monkeypatch, capsys, key):
    stands_by = replace(hits.PIPELINE.tier("counts"), standby=Standby.WARM)
    tiers = (tier if tier.name != "counts" else stands_by for tier in hits.PIPELINE.tiers)
    monkeypatch.setattr(hits, "PIPELINE", replace(hits.PIPELINE, tiers=(*tiers,)))
    site = "pipeline: hits\nhosts: []\n" + key.replace("KEY", "NAME: {target: 2, spare: 1}") + "\n"
    assert check(tmp_path, monkeypatch, site.replace("NAME", "enrich")) == 0
    assert check(tmp_path, monkeypatch, site.replace("NAME", "counts")) == 1
    (line,) = capsys.readouterr().err.splitlines()
    named = "shares.counts" if key.startswith("shares") else "shifts.night.shares.counts"
    assert line.startswith(f"{named} in the site file has spare: 1, but the tier cannot have spares: its ")
    assert line.endswith(f"remove spare from {named}")


def test_check_names_a_place_without_a_host(tmp_path, monkeypatch, capsys):
    assert check(tmp_path, monkeypatch, "pipeline: hits\nhosts: []\nlocality: {entry: 'rack:r1'}\n") == 0
    line = "locality.entry: no host of the site file is at rack:r1; known places: none"
    assert line in capsys.readouterr().out


def test_check_names_a_pipeline_that_cannot_be_imported(tmp_path, monkeypatch, capsys):
    assert check(tmp_path, monkeypatch, "pipeline: sluice.nowhere\nhosts: []\n") == 1
    assert "cannot be imported" in capsys.readouterr().err
