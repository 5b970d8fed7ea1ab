"""The doctor reports alerts that reached no person: number, time, reason, and next step."""

import json
import os
from pathlib import Path

from sluice_ops.doctor import alerts
from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.local import doctor
from sluice_ops.local.layout import Layout

HOUR = 3600.0


def write_alert(home: Path, name: str, at: float, *unsent: str) -> None:
    (home / "alerts").mkdir(exist_ok=True)
    file = home / "alerts" / f"{name}.json"
    file.write_text(
        json.dumps(
            {
                "subject": f"[sluice] {name}",
                "unsent": unsent,
                "why": "; ".join(f"{way}: refused" for way in unsent),
            }
        )
    )
    os.utime(file, (at, at))


def finding_of(home: Path) -> Finding:
    (finding,) = alerts.check(home)
    return finding


def test_without_alerts_there_is_no_finding(tmp_path: Path) -> None:
    assert list(alerts.check(tmp_path)) == []


def test_sent_alerts_are_ok(tmp_path: Path) -> None:
    write_alert(tmp_path, "drain_host.r1.cut_over.1", HOUR)
    assert finding_of(tmp_path).verdict is Verdict.OK


def test_unsent_alerts_are_shown_with_count_time_and_next_step(tmp_path: Path) -> None:
    write_alert(tmp_path, "sent", HOUR)
    write_alert(tmp_path, "first", 2 * HOUR, "webhook")
    write_alert(tmp_path, "last", 26 * HOUR, "e-mail", "webhook")
    finding = finding_of(tmp_path)
    assert finding.verdict is Verdict.BAD
    assert finding.sentence.startswith("unsent alerts: 2 (e-mail, webhook) since 1970-01-0")
    assert "[sluice] last; e-mail: refused; webhook: refused" in finding.sentence
    assert "`alerts:` in the site file" in finding.advice
    write_alert(tmp_path, "again", 27 * HOUR)
    finding = finding_of(tmp_path)
    assert (finding.verdict, finding.advice.startswith("a later alert was sent")) == (Verdict.NOTE, True)


def test_incomplete_or_older_alert_files_are_ignored(tmp_path: Path) -> None:
    write_alert(tmp_path, "good", HOUR)
    (tmp_path / "alerts" / "half.json").write_text('{"subject": ')
    (tmp_path / "alerts" / "old.json").write_text('{"dag": "drain_host"}')
    assert finding_of(tmp_path).sentence.startswith("all 2 alerts were sent")


def test_the_doctor_reports_unsent_alerts(layout: Layout) -> None:
    layout.make_folders()
    write_alert(layout.home, "first", HOUR, "webhook")
    assert [finding.verdict for finding in doctor.examine(layout) if finding.thing == "alerts"] == [
        Verdict.BAD
    ]
