"""What is fed is known by its numbers, and what is published fits what the tiers rely on."""

import os
from pathlib import Path

import pytest

from hits.feed import FeedResult, hit
from sluice.api import declarations
from sluice.commands import publish
from sluice.kafka import topics


def test_a_hit_is_the_same_each_time_but_for_its_time():
    assert hit(7, 1.0) == {**hit(7, 2.0), "at": 1000}
    assert hit(7, 1.0)["id"] == "hit-7"


def test_a_feed_says_what_it_did():
    assert (
        str(FeedResult(first=1, count=100, failed=0, seconds=2.0))
        == "hit-1 to hit-100: 100 hits in 2.0 s, 50/s"
    )
    assert "3 not taken by Kafka" in str(FeedResult(first=1, count=100, failed=3, seconds=2.0))


def test_time_on_streams_is_the_brokers():
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
    ("key", "said"),
    [
        ("shares", "{entri: {minimum: 1}, batch: {minimum: 0}}"),
        ("locality", "{entri: h1, batch: h1}"),
        ("spread", "{entri: {host: 1}}"),
        ("separate", "[[entri, counts]]"),
        ("dedicated", "{h1: [entri, batch]}"),
        ("budget", "{entri: 1}"),
        ("shifts", "{night: {schedule: '0 22 * * *', shares: {entri: 1, batch: 1}}}"),
    ],
)
def test_check_names_what_speaks_of_no_tier(tmp_path, monkeypatch, capsys, key, said):
    assert check(tmp_path, monkeypatch, f"pipeline: hits\nhosts: []\n{key}: {said}\n") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(key)
    assert (
        'in the site file names "entri", which is no tier: the pipeline hits has entry, enrich, counts, outbound'
        in line
    )


def test_check_says_where_no_host_is(tmp_path, monkeypatch, capsys):
    assert check(tmp_path, monkeypatch, "pipeline: hits\nhosts: []\nlocality: {entry: 'rack:r1'}\n") == 0
    line = "locality.entry: no host of the site file is at rack:r1; known places: none"
    assert line in capsys.readouterr().out


def test_check_names_a_pipeline_that_cannot_be_imported(tmp_path, monkeypatch, capsys):
    assert check(tmp_path, monkeypatch, "pipeline: sluice.nowhere\nhosts: []\n") == 1
    assert "cannot be imported" in capsys.readouterr().err
