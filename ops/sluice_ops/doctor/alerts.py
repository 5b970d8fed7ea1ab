"""Check for alerts that Airflow's notifier could not send; the notifier keeps them in `alerts/`."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sluice_ops.doctor.finding import Finding, Verdict


def check(home: Path) -> Iterator[Finding]:
    """Yield the number of unsent alerts, their times and the last error.

    Yields nothing if the notifier never kept an alert.
    """
    folder = home / "alerts"
    alerts = sorted(_alerts_by_time(folder), key=lambda item: item[0])
    unsent = [(at, alert) for at, alert in alerts if alert["unsent"]]
    if not unsent:
        if alerts:
            yield Finding("alerts", Verdict.OK, f"all {len(alerts)} alerts were sent")
        return
    channels = ", ".join(sorted({channel for _, alert in unsent for channel in alert["unsent"]}))
    (first_at, _), (last_at, last) = unsent[0], unsent[-1]
    sentence = (
        f"unsent alerts: {len(unsent)} ({channels}) since {_clock(first_at)}, "
        f"the last at {_clock(last_at)}: {last['subject']}; "
        f"{last.get('why', 'the log of its Airflow task has the reason')}"
    )
    if alerts[-1][1]["unsent"]:
        advice = (
            "correct `alerts:` in the site file, or the mail server or webhook that it names; "
            f"then read the alerts in {folder} and delete their files"
        )
        yield Finding("alerts", Verdict.BAD, sentence, advice)
    else:
        advice = f"a later alert was sent; read the unsent alerts in {folder} and delete their files"
        yield Finding("alerts", Verdict.NOTE, sentence, advice)


def _alerts_by_time(folder: Path) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield each alert with the time of its last try, in seconds since 1970."""
    for file in folder.glob("*.json"):
        try:
            alert = json.loads(file.read_text())
            yield file.stat().st_mtime, {"unsent": [], "subject": file.stem, **alert}
        except (OSError, ValueError, TypeError):
            continue  # the notifier is writing the file, or somebody deleted it


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
