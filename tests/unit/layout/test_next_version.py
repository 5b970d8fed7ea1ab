"""The edits that make the next version for tests of rolling upgrades still apply.

Those tests themselves run seldom.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import ROOT
from tests.versions import EDITS, edited, make_next


@pytest.mark.parametrize("name", EDITS)
def test_each_edit_of_the_next_version_applies(name: str) -> None:
    compile(edited(name), name, "exec")


def output_of(code: Path, program: str, home: Path) -> str:
    """Return what the program prints when it imports the code of a folder."""
    env = {
        "PYTHONPATH": os.pathsep.join(map(str, (code / "ops", ROOT / "plugins", ROOT))),
        "AIRFLOW_HOME": str(home),
        "SLUICE_HOME": str(home),
        "SLUICE_SITE": str(ROOT / "site.yaml"),
    }
    completed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=env, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_the_next_version_has_one_more_kind_of_change(tmp_path: Path) -> None:
    program = "from sluice_ops.planning.changes.kinds import KINDS; print(*KINDS['survey'].steps)"
    assert output_of(make_next(tmp_path), program, tmp_path) == "survey\n"


VACATE = """
from sluice_ops.planning.changes.kinds.drain import Drain
class Vacate(Drain):
    name, runbook, summary, example = "vacate", "vacate_host", "Vacate a host.", "sluice vacate h1"
KIND = Vacate()
"""
DERIVED = """
from typer.main import get_command
from sluice_airflow import dags
from sluice_airflow.forms import Pipeline
from sluice_ops.main import app
from sluice_ops.model.change import ChangeSpec
from sluice_ops.model.incarnation import Placement
from sluice_ops.model.share import Share
from sluice_ops.planning.changes.kinds import KINDS
from sluice_ops.planning.changes.plan import aftermath, plan
from sluice_ops.planning.check.checker import violations
from sluice_ops.planning.placement.cluster import Cluster, Rules, TierNow, holding
from tests.unit.sluice_ops.planning.clusters import SMALL, host_of, spec_of

print(*(parameter.name for parameter in get_command(app).commands["vacate"].params))
dag = dags.of_kind(KINDS["vacate"], Pipeline.of(None))
print(dag.dag_id, *dag.params)
print(*dag.task_ids)
now, tier = Placement(driver="h1", slots=("h1",)), spec_of("t")
hosts = holding({name: host_of(name) for name in ("h1", "h2")}, tier, now)
shares = {"t": Share(minimum=1, target=1, maximum=4)}
tiers = {"t": TierNow(tier, now, release="r1-0")}
cluster = Cluster(hosts, tiers, (), Rules(shares=shares, partitions=8, batch_quantum=SMALL))
spec = ChangeSpec(kind="vacate", host="h1")
planned = plan(spec, cluster)
print(*(host for move in planned.moves for host in move.after.hosts))
print(violations(planned, spec, aftermath(spec, cluster)))
"""


def test_one_file_adds_a_kind_with_its_command_dag_and_plan(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "ops", tmp_path / "ops", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "ops/sluice_ops/planning/changes/kinds/vacate.py").write_text(VACATE)
    assert output_of(tmp_path, DERIVED, tmp_path).splitlines()[-5:] == [
        "host deadline dry_run as_json",
        "vacate_host host deadline dry_run",
        "preflight cordon prepare cut_over verify release abort end",
        "h2",
        "[]",
    ]
