"""The DAG of each shift of the site file: sets the shares that hold until another shift begins."""

from datetime import timedelta

from airflow.sdk import CronTriggerTimetable

from sluice_airflow.assets import slots_lent
from sluice_airflow.dags.parts import carry_out, runbook
from sluice_airflow.forms import Pipeline
from sluice_ops.model.share import Numbers
from sluice_ops.site.shift_config import ShiftConfig

LENDS = (
    "The tenant `batch` has slots in this shift. At the end of the run, every DAG with the schedule "
    "`SLOTS_LENT` (from `sluice_airflow.assets`) starts."
)
TAKES_BACK = (
    "The tenant `batch` has no slots in this shift. Running batch tasks may first end, within "
    "`reclaim_seconds` of the site file."
)
TAGS = ("runbook", "shift")
FIRST_RUN_LATE = timedelta(minutes=5)
"""How late the first run of a new shift may be.

By default, Airflow begins a new DAG up to a tenth of its interval late: 2.4 hours after a daily
shift. At each parse before the first run, Airflow computes its time again, so 0 could miss it.
"""


def make(pipeline: Pipeline) -> None:
    conn = pipeline.sluice_conn_id
    for name, shift in pipeline.site.shifts.items():
        lends = name in pipeline.site.lending_shifts
        with runbook(
            f"{name}_shift",
            doc=page(name, shift, lends=lends),
            schedule=CronTriggerTimetable(
                shift.schedule, timezone=shift.timezone, run_immediately=FIRST_RUN_LATE
            ),
            sluice_conn_id=conn,
            tags=TAGS,
        ):
            carry_out("shift", last={"outlets": [slots_lent(conn)]} if lends else None, shift=name)


def page(name: str, shift: ShiftConfig, *, lends: bool) -> str:
    """Return the page of a shift's DAG in Markdown: its shares, and when it begins."""
    shares = "".join(f"{tenant} {_text(numbers)}, " for tenant, numbers in shift.shares.items())
    others = f"{shares}all other shares" if shares else "all shares"
    not_on = f", but not on {', '.join(map(str, sorted(shift.not_on)))}" if shift.not_on else ""
    return (
        f"Begin the shift `{name}`: {others} as in `shares` of the site file.\n\n"
        f"It begins at the times of `{shift.schedule}` in {shift.timezone}{not_on}, or when a person "
        "triggers it. Its shares hold until another shift begins. If another change is active, the shift "
        f"waits for its end, up to the run's deadline.\n\n{LENDS if lends else TAKES_BACK}\n"
    )


def _text(numbers: Numbers) -> str:
    """Return `2`, or `2 (minimum 1)`."""
    bounds = ", ".join(
        f"{key} {amount}"
        for key, amount in (
            ("minimum", numbers.minimum),
            ("maximum", numbers.maximum),
            ("spare", numbers.spare),
        )
        if amount is not None
    )
    target = "" if numbers.target is None else str(numbers.target)
    return " ".join(filter(None, (target, f"({bounds})" if bounds else "")))
