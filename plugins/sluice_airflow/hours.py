"""The former place of `CompleteTrigger`, for tasks that were deferred by the former version. This module goes with the next one."""

from sluice_airflow.operators.hours import CompleteTrigger

__all__ = ["CompleteTrigger"]
