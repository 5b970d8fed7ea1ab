"""The site file is followed: what it says holds at once, and what cannot be used changes
nothing.
"""

import os
from dataclasses import replace

import pytest
from simulation.world import HOSTS, World

from sluice_ops.controller.site_watcher import SiteWatcher
from sluice_ops.site.site_file import SiteError

BASE = "pipeline: p\nhosts: []\n"
SITE = BASE + "locality: {{counts: {place}}}\n"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text(SITE.format(place="h1"))
    return path


def looked(book):
    """Look until the file has been the same for two looks."""
    return [book.look(), book.look()]


def test_a_change_holds_from_the_second_look_on(path):
    book = SiteWatcher(path)
    assert looked(book) == [False, False]
    path.write_text(SITE.format(place="zone:annex"))
    assert looked(book) == [False, True]
    assert book.rules.locality == {"counts": "zone:annex"}
    assert looked(book) == [False, False]


def test_a_file_that_is_still_being_written_is_waited_for(path):
    book = SiteWatcher(path)
    for number in range(3):
        path.write_text(SITE.format(place=f"h{number}") + "#" * number)
        assert not book.look()
    assert book.look()
    assert book.rules.locality == {"counts": "h2"}


SHIFT = "shifts: {night: {schedule: daily}}\n"


@pytest.mark.parametrize(
    "text", ["hosts: [", f"{BASE}separate: [[counts]]\n", f"{BASE}budget: {{counts: -1}}\n", BASE + SHIFT]
)
def test_what_cannot_be_used_changes_nothing_and_is_said(path, text):
    book = SiteWatcher(path)
    before = book.rules
    path.write_text(text)
    assert looked(book) == [False, True]
    assert "site.yaml: " in book.rules.refused
    assert "\n" not in book.rules.refused
    path.unlink()
    looked(book)
    assert replace(book.rules, refused="") == before
    path.write_text(text)
    with pytest.raises(SiteError, match=r"site\.yaml: "):
        SiteWatcher(path)
    path.write_text(SITE.format(place="h1"))
    assert looked(book) == [False, True]
    assert book.rules == before


def test_a_touch_changes_nothing(path):
    book = SiteWatcher(path)
    os.utime(path, (1, 1))
    assert looked(book) == [False, False]


def test_what_keeps_tiers_apart_is_read(path):
    path.write_text(
        "pipeline: p\nhosts: []\nspread: {counts: {host: 1, rack: 2}}\nseparate: [[counts, enrich]]\n"
        "dedicated: {'label:gpu': [enrich]}\nbudget: {counts: 1}\n"
    )
    rules = SiteWatcher(path).rules
    assert dict(rules.spread["counts"]) == {"host": 1, "rack": 2, "zone": None}
    assert rules.separate_from("counts") == {"enrich"}
    assert rules.separate_from("outbound") == frozenset()
    assert rules.dedicated == {"label:gpu": {"enrich"}}
    assert rules.budget == {"counts": 1}


def test_why_the_site_file_cannot_be_used_is_in_the_status():
    world = World(hosts=HOSTS)
    world.want()
    world.settle()
    world.rules = replace(world.rules, refused="site.yaml: budget.counts: it is -1")
    world.tick()
    assert (
        "the changed site file cannot be used, its last valid version applies: site.yaml: budget.counts"
        in world.sentences[-1]
    )
    world.check_settled()
