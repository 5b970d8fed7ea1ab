"""The former module of `CompleteTrigger`: tasks that an older version deferred still name it."""

from sluice_airflow.operators.hours import CompleteTrigger

__all__ = ["CompleteTrigger"]
