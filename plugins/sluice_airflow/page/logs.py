"""The end of any log of the pipeline, from whichever host has it, as `sluice logs` shows it."""

from typing import Any

from sluice_airflow.forms import dag_id
from sluice_ops.channel import Channel
from sluice_ops.model.ids import TierName
from sluice_ops.queries.logs import Place, read_log, read_log_after
from sluice_ops.snapshot.view import View


def guarded_by(place: Place, view: View, connection: str | None) -> str | None:
    """Return the DAG whose task logs a user must be allowed to read in order to read this log.

    It is `tier_<name>` for the driver and the workers of a tier. None for an agent, a controller
    or a batch job: their reader has to be allowed to read the logs of all DAGs.
    """
    if place.tenant is None or TierName(place.tenant) not in view.tiers:
        return None
    return dag_id(f"tier_{place.tenant}", connection)


def log_part(channel: Channel, view: View, place: Place, lines: int, after: int | None) -> dict[str, Any]:
    """Return the last lines of a log, or what follows the position `after`, as JSON values.

    LogAwayError if its host is lost, its process does not answer, or the log is not there.
    """
    part = (
        read_log(channel, view, place, lines)
        if after is None
        else read_log_after(channel, view, place, after)
    )
    return {"name": place.name, **part.model_dump(mode="json", exclude={"missing"})}
