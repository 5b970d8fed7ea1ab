"""The end of the log of a tier's driver, or the host and the command that show it.

The log is a file of the driver's host. Airflow reads it if this file is below its pipeline's home,
as on the embedded platform and in Docker Compose.
"""

from pathlib import Path
from typing import Any

from sluice_airflow.triggers.tier_watch import read_incarnations
from sluice_ops.channel import Channel
from sluice_ops.model import paths
from sluice_ops.model.assignment import driver_id
from sluice_ops.model.incarnation import IncarnationReport, IncarnationSpec, OwnerRecord
from sluice_ops.model.wording import listed
from sluice_ops.queries.unit_logs import tail, unit_logs


class UnknownDriverError(Exception):
    """The pipeline has no such tier, or the tier no such incarnation; the message names it."""


def driver_log(channel: Channel, home: Path, tier: str, number: int | None, lines: int) -> dict[str, Any]:
    """Return the last lines of a driver's log as JSON values; without them, where the log is.

    `number` is the incarnation; None: the tier's owner, or else the newest incarnation.
    """
    tiers = channel.children("/tiers")
    if tier not in tiers:
        message = f"there is no tier {tier!r}; the pipeline has {listed(tiers) or 'none'}"
        raise UnknownDriverError(message)
    numbers = read_incarnations(channel, tier)
    if not numbers:
        message = f"tier {tier} has not run yet: sluice start {tier}"
        raise UnknownDriverError(message)
    owner = channel.read(paths.owner(tier), OwnerRecord)
    owning = None if owner is None else owner.value.owner
    shown = number or owning or numbers[-1]
    spec = channel.read(paths.incarnation(tier, shown), IncarnationSpec)
    if spec is None:
        message = f"tier {tier} has no incarnation {shown}; it has {listed(map(str, numbers))}"
        raise UnknownDriverError(message)
    host, unit = spec.value.placement.driver, driver_id(tier, shown)
    sentence, found = _last_lines(home, host, unit, lines)
    return {
        "tier": tier,
        "incarnation": shown,
        "host": host,
        "incarnations": [
            {"number": each, "state": _state(channel, tier, each), "owner": each == owning}
            for each in reversed(numbers)
        ],
        "sentence": sentence,
        "lines": found,
    }


def _state(channel: Channel, tier: str, number: int) -> str:
    report = channel.read(paths.report(tier, number), IncarnationReport)
    return "starting" if report is None else report.value.state.value


def _last_lines(home: Path, host: str, unit: str, lines: int) -> tuple[str, list[str]]:
    """Return a sentence about the log, and its last lines if this machine has it."""
    path = unit_logs(home).get(f"{host}/{unit}")
    if path is not None:
        try:
            return f"The end of {path} on host {host}:", [line.rstrip("\n") for line in tail(path, lines)]
        except OSError as error:
            reason = f"Airflow's API server cannot read {path}: {error.strerror}."
    elif (home / "hosts" / host).is_dir():
        reason = f"Host {host} has no log of {unit}: it has not started yet, or 20 others ended since."
    else:
        reason = f"The log of {unit} is a file of host {host}, and Airflow's API server runs elsewhere."
    return f"{reason} On {host}, as the user of its agent: sluice logs {host}/{unit} -n {lines} -f", []
