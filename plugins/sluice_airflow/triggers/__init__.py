"""Triggers: what deferred tasks wait for. Start with `operations`.

Airflow's database has the class paths of deferred tasks, so the paths of the former module `triggers` stay.
"""

from sluice_airflow.triggers.operations import HostsTrigger, OperationTrigger, TierTrigger

__all__ = ["HostsTrigger", "OperationTrigger", "TierTrigger"]
