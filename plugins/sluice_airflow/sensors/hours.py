"""A sensor that waits until all records of an hour have left every tier."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from sluice_airflow.operators.base import TRIGGERER_SECONDS, SluiceOperator
from sluice_airflow.operators.hours import CompleteTrigger, last_full_hour, least_complete


class HourCompleteSensor(SluiceOperator, BaseSensorOperator):
    """Waits until all records that arrived before an hour's end have left every tier.

    It waits in the triggerer, for at most `timeout` seconds.
    """

    template_fields: Sequence[str] = ("until",)
    ui_color = "#e6dcf2"

    def __init__(self, *, until: str = "", **kwargs: Any) -> None:
        """Wait for the hour that ends at `until`, a time in ISO form.

        Without `until`, it is the last full hour before the run was due. A time without a zone is
        in UTC.
        """
        super().__init__(**kwargs)
        self.until = until

    def poke(self, context: Context) -> bool:
        """Tell whether the hour is complete now."""
        _, complete = least_complete(self.hook.figures())
        return complete is not None and complete >= self._end(context).timestamp()

    def execute(self, context: Context) -> None:
        """Check once, then wait in the triggerer."""
        if self.poke(context):
            return
        end = time.time() + self.timeout
        self.defer(
            trigger=CompleteTrigger(self._end(context).timestamp(), end, self.sluice_conn_id),
            method_name="resume",
            timeout=self.timeout + TRIGGERER_SECONDS,
        )

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """End, or fail if the hour was not complete in time; with `soft_fail`, skip."""
        if event["why"] is None:
            return
        message = (
            f"not all records that arrived before {self._end(context):%Y-%m-%d %H:%M %Z} have left every "
            f"tier within {self.timeout:.0f} s: {event['why']}. See `sluice tiers` and `sluice audit`"
        )
        raise AirflowSkipException(message) if self.soft_fail else AirflowFailException(message)

    def _end(self, context: Context) -> datetime:
        if not self.until:
            return last_full_hour(context)
        end = datetime.fromisoformat(self.until)
        return end if end.tzinfo is not None else end.replace(tzinfo=UTC)
