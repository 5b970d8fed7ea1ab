"""Triggers: the conditions that deferred tasks wait for. Start with `operations`.

Airflow's database stores the class paths of deferred tasks, so this package keeps the paths that
older versions used.
"""

from sluice_airflow.triggers.operations import HostsTrigger, OperationTrigger, TierTrigger

__all__ = ["HostsTrigger", "OperationTrigger", "TierTrigger"]
