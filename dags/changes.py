"""The runbooks that are a change and nothing else: a DAG in Airflow for each kind of change that names one.

`sluice_ops.planning.changes.kinds` has a module for each kind: its form, its steps and its page come from there.
"""

from sluice_airflow.runbooks import of_kind
from sluice_ops.planning.changes.kinds import KINDS

for kind in KINDS.values():
    if kind.runbook:
        globals()[kind.runbook] = of_kind(kind)
