"""The controller follows the site file: a valid change applies at once, and an invalid file changes
nothing.
"""

import os
from dataclasses import replace

import pytest
from simulation.world import HOSTS, World

from sluice_ops.controller.site_watcher import SiteWatcher
from sluice_ops.model.scaler import Mode
from sluice_ops.site.site_file import SiteError
from sluice_ops.snapshot.site_settings import settings_of

BASE = "pipeline: p\nhosts: []\n"
SITE = BASE + "locality: {{counts: {place}}}\n"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text(SITE.format(place="h1"))
    return path


def look_twice(watcher):
    """Look twice, so that an unchanged file is accepted."""
    return [watcher.read_if_changed(), watcher.read_if_changed()]


def test_a_change_applies_from_the_second_look_on(path):
    watcher = SiteWatcher(path)
    assert look_twice(watcher) == [False, False]
    path.write_text(SITE.format(place="zone:annex"))
    assert look_twice(watcher) == [False, True]
    assert watcher.rules.locality == {"counts": "zone:annex"}
    assert look_twice(watcher) == [False, False]


def test_a_changing_file_is_read_when_it_no_longer_changes(path):
    watcher = SiteWatcher(path)
    for number in range(3):
        path.write_text(SITE.format(place=f"h{number}") + "#" * number)
        assert not watcher.read_if_changed()
    assert watcher.read_if_changed()
    assert watcher.rules.locality == {"counts": "h2"}


SHIFT = "shifts: {night: {schedule: daily}}\n"


@pytest.mark.parametrize(
    "text", ["hosts: [", f"{BASE}separate: [[counts]]\n", f"{BASE}budget: {{counts: -1}}\n", BASE + SHIFT]
)
def test_an_invalid_file_changes_nothing_and_is_reported(path, text):
    watcher = SiteWatcher(path)
    before = watcher.rules
    path.write_text(text)
    assert look_twice(watcher) == [False, True]
    assert "site.yaml: " in watcher.rules.refused
    assert "\n" not in watcher.rules.refused
    path.unlink()
    look_twice(watcher)
    assert replace(watcher.rules, refused="") == before
    path.write_text(text)
    with pytest.raises(SiteError, match=r"site\.yaml: "):
        SiteWatcher(path)
    path.write_text(SITE.format(place="h1"))
    assert look_twice(watcher) == [False, True]
    assert watcher.rules == before


def test_a_touch_changes_nothing(path):
    watcher = SiteWatcher(path)
    os.utime(path, (1, 1))
    assert look_twice(watcher) == [False, False]


def test_rules_that_keep_tiers_apart_are_read(path):
    path.write_text(
        "pipeline: p\nhosts: []\nspread: {counts: {host: 1, rack: 2}}\nseparate: [[counts, enrich]]\n"
        "dedicated: {'label:gpu': [enrich]}\nbudget: {counts: 1}\npinned: {counts: {h3: 1}}\n"
    )
    rules = SiteWatcher(path).rules
    assert dict(rules.spread["counts"]) == {"host": 1, "rack": 2, "zone": None}
    assert rules.separate_from("counts") == {"enrich"}
    assert rules.separate_from("outbound") == frozenset()
    assert rules.dedicated == {"label:gpu": {"enrich"}}
    assert rules.budget == {"counts": 1}
    assert rules.pinned == {"counts": {"h3": 1}}
    assert settings_of(rules).said["pinned.counts"] == "h3=1"


def test_the_scaler_s_settings_are_read(path):
    path.write_text("pipeline: p\nhosts: []\nscaler: {tiers: {counts: {mode: act}}}\n")
    scaler = SiteWatcher(path).rules.scaler
    assert (scaler.of("counts").mode, scaler.of("enrich").mode) == (Mode.ACT, Mode.ADVISE)


def test_the_status_says_why_the_site_file_is_refused():
    world = World(hosts=HOSTS)
    world.bring_up()
    world.rules = replace(world.rules, refused="site.yaml: budget.counts: it is -1")
    world.tick()
    assert (
        "the changed site file cannot be used, its last valid version applies: site.yaml: budget.counts"
        in world.sentences[-1]
    )
    world.check_settled()
