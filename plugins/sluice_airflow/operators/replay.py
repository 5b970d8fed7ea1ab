"""The task of the runbook `replay_tier`: the command `sluice replay`, in a worker of Airflow."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from sluice_airflow.errors import AwayError
from sluice_airflow.forms import INPUTS, QUARANTINE
from sluice_airflow.operators.base import SluiceOperator, asked_by
from sluice_airflow.operators.steps import seconds_left
from sluice_ops.model.exit_codes import AWAY, FAILED, INTERRUPTED


class ReplayOperator(SluiceOperator):
    """Processes old or quarantined records of a tier again, beside the live records.

    The replay has the name of the run. So a retry after a lost worker continues it.
    """

    template_fields: Sequence[str] = ("tier", "records", "begin", "end", "rate")
    ui_color = "#d9efd9"

    def __init__(
        self,
        *,
        tier: str,
        records: str = INPUTS,
        begin: str = "",
        end: str = "",
        rate: str = "",
        **kwargs: Any,
    ) -> None:
        """Replay the `records` (`inputs` or `quarantine`) of `tier`; `begin` and `end` are times or
        places, and `rate` is the most records per second.
        """
        super().__init__(execution_timeout=None, **kwargs)
        self.tier = tier
        self.records = records
        self.begin = begin
        self.end = end
        self.rate = rate
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the command until the replay is complete, or the run's deadline passes."""
        late, sentence = threading.Event(), "sluice replay printed nothing"
        with subprocess.Popen(
            self._words(context),
            env=os.environ | self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            self._process = process
            timer = threading.Timer(seconds_left(context), self._stop, (process, late))
            timer.start()
            try:
                for line in process.stdout or ():
                    sentence = line.strip() or sentence
                    self.log.info("%s", line.rstrip())
                code = process.wait()
            finally:
                timer.cancel()
        if code == 0:
            if context["params"]["dry_run"]:
                context["ti"].xcom_push("plan", {"sentence": sentence})
            return {"sentence": sentence}
        if late.is_set():
            message = f"the run's deadline passed, so the replay was stopped. {sentence}"
            raise AirflowFailException(message)
        if code in {AWAY, INTERRUPTED}:  # Airflow's worker ends, as it does when Airflow restarts
            raise AwayError(sentence)
        raise AirflowFailException(sentence if code == FAILED else f"exit code {code}: {sentence}")

    @staticmethod
    def _stop(process: "subprocess.Popen[str]", late: threading.Event) -> None:
        late.set()
        process.terminate()

    def on_kill(self) -> None:
        """Stop the replay: a person has ended the task. What it has written stays."""
        if self._process is not None:
            self._process.terminate()

    def _words(self, context: Context) -> list[str]:
        words = [str(Path(sys.executable).with_name("sluice")), "replay", self.tier]
        words += ["--quarantine"] if self.records == QUARANTINE else []
        for option, value in (("--from", self.begin), ("--to", self.end), ("--rate", self.rate)):
            words += [option, value] if value else []
        return [*words, *(["--dry-run"] if context["params"]["dry_run"] else ["--name", asked_by(context)])]

    def _environment(self) -> dict[str, str]:
        """Return the environment in which the command finds the connection's pipeline."""
        hook = self.hook
        return {
            "SLUICE_SITE": str(hook.site_path),
            "SLUICE_ENDPOINTS": str(hook.endpoints_path),
            "SLUICE_HOME": str(hook.home),
        }
