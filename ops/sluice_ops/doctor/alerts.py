"""Alerts that nobody was sent: Airflow's notifier keeps them below `alerts/`, where nobody looks. Told by both doctors."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sluice_ops.doctor.finding import Finding, Verdict


def look(home: Path) -> Iterator[Finding]:
    """Say how many could not be sent, since when and why; nothing where no alert was ever kept."""
    folder = home / "alerts"
    kept = sorted(_kept(folder), key=lambda each: each[0])
    unsent = [(at, alert) for at, alert in kept if alert["unsent"]]
    if not unsent:
        if kept:
            yield Finding("alerts", Verdict.OK, f"{len(kept)} so far, and none that could not be sent")
        return
    ways = ", ".join(sorted({way for _, alert in unsent for way in alert["unsent"]}))
    (first, _), (last, alert) = unsent[0], unsent[-1]
    sentence = (
        f"{len(unsent)} could not be sent ({ways}) since {_clock(first)}, the last at {_clock(last)}: "
        f"{alert['subject']}; {alert.get('why', 'its log tells why')}"
    )
    if kept[-1][1]["unsent"]:
        advice = f"mend `alerts:` in the site file, or what it names; they are in {folder}: read them there, and remove what is read"
        yield Finding("alerts", Verdict.BAD, sentence, advice)
    else:
        advice = f"one since has been sent; read these in {folder}, and remove what is read"
        yield Finding("alerts", Verdict.NOTE, sentence, advice)


def _kept(folder: Path) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield each alert with when it was last tried."""
    for file in folder.glob("*.json"):
        try:
            found = json.loads(file.read_text())
            yield file.stat().st_mtime, {"unsent": [], "subject": file.stem, **found}
        except (OSError, ValueError, TypeError):
            continue  # it is just being written, or removed


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
