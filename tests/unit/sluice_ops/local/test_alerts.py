"""The doctor tells of alerts that reached nobody: how many, since when, why, and what to do."""

import json
import os
from pathlib import Path

from sluice_ops.doctor import alerts
from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.local import doctor
from sluice_ops.local.layout import Layout

HOUR = 3600.0


def kept(home: Path, name: str, at: float, *unsent: str) -> None:
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


def told(home: Path) -> Finding:
    (finding,) = alerts.check(home)
    return finding


def test_where_no_alert_was_kept_there_is_nothing_to_tell(tmp_path: Path) -> None:
    assert list(alerts.check(tmp_path)) == []


def test_alerts_that_were_sent_are_well(tmp_path: Path) -> None:
    kept(tmp_path, "drain_host.r1.cut_over.1", HOUR)
    assert told(tmp_path).verdict is Verdict.OK


def test_unsent_alerts_are_shown_with_count_time_and_next_step(tmp_path: Path) -> None:
    kept(tmp_path, "sent", HOUR)
    kept(tmp_path, "first", 2 * HOUR, "webhook")
    kept(tmp_path, "last", 26 * HOUR, "e-mail", "webhook")
    finding = told(tmp_path)
    assert finding.verdict is Verdict.BAD
    assert finding.sentence.startswith("unsent alerts: 2 (e-mail, webhook) since 1970-01-0")
    assert "[sluice] last; e-mail: refused; webhook: refused" in finding.sentence
    assert "`alerts:` in the site file" in finding.advice
    kept(tmp_path, "again", 27 * HOUR)
    finding = told(tmp_path)
    assert (finding.verdict, finding.advice.startswith("a later alert was sent")) == (Verdict.NOTE, True)


def test_alerts_half_written_or_of_an_older_version_do_no_harm(tmp_path: Path) -> None:
    kept(tmp_path, "good", HOUR)
    (tmp_path / "alerts" / "half.json").write_text('{"subject": ')
    (tmp_path / "alerts" / "old.json").write_text('{"dag": "drain_host"}')
    assert told(tmp_path).sentence.startswith("all 2 alerts were sent")


def test_the_doctor_tells_it(where: Layout) -> None:
    where.make_folders()
    kept(where.home, "first", HOUR, "webhook")
    assert [finding.verdict for finding in doctor.examine(where) if finding.thing == "alerts"] == [
        Verdict.BAD
    ]
