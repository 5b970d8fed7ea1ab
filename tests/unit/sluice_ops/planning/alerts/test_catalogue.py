"""The list of alerts: its names, its texts, and Prometheus's rules that are made from it."""

import re
import shutil
import subprocess
from pathlib import Path
from string import Formatter

import pytest

from sluice_ops.planning.alerts.catalogue import ALERTS, WATCHED, rank
from sluice_ops.planning.alerts.rules import rules_file

DOCS = Path(__file__).resolve().parents[5] / "docs"
PLACES = {
    "change",
    *("by", "again", "what", "did", "do", "value", "host", "tier", "incarnation", "instance"),
    *("kind", "role", "source", "step", "stream", "tenant", "unit"),
}


def test_the_shipped_rules_are_those_of_the_list():
    assert (DOCS / "metrics" / "alerts.yml").read_text() == rules_file()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian's prometheus)")
def test_promtool_accepts_the_rules_and_the_configuration():
    done = subprocess.run(
        ["promtool", "check", "config", str(DOCS / "metrics" / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(kind.rule is not None for kind in ALERTS)} rules found" in done.stdout


def test_each_name_is_used_once():
    names = [kind.name for kind in ALERTS]
    rules = [kind.rule[0] for kind in ALERTS if kind.rule is not None]
    assert len(set(names)) == len(names)
    assert len(set(rules)) == len(rules)
    assert [rank(name) for name in names] == list(range(len(names)))


@pytest.mark.parametrize("kind", ALERTS, ids=lambda kind: kind.name)
def test_each_alert_says_what_to_do_and_somebody_tells_it(kind):
    assert kind.watched or kind.rule is not None
    for text in (kind.happened, kind.did, kind.do):
        assert text
        assert {place for _, place, _, _ in Formatter().parse(text) if place is not None} <= PLACES


@pytest.mark.parametrize("kind", WATCHED, ids=lambda kind: kind.name)
def test_each_watched_alert_has_a_row_on_the_page(kind):
    assert f"| `{kind.name}` | {kind.severity} | {_wait(kind.wait)} |" in (DOCS / "alerts.md").read_text()


def test_the_page_names_no_other_alert():
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (?:critical|warning)", (DOCS / "alerts.md").read_text(), re.MULTILINE
    )
    assert sorted(rows) == sorted(kind.name for kind in WATCHED)


def _wait(seconds):
    if not seconds:
        return "at once"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
