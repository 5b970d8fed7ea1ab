"""A DAG for each kind of change that names a runbook.

Each module of `sluice_ops.planning.changes.kinds` defines one kind: the form, the steps and the
page of its runbook.
"""

from sluice_airflow.runbooks import of_kind
from sluice_ops.planning.changes.kinds import KINDS

for kind in KINDS.values():
    if kind.runbook:
        globals()[kind.runbook] = of_kind(kind)
