"""Sets Airflow's home before its first import: a folder of its own, the repository's DAGs, and no
services.
"""

import atexit
import os
import shutil
import tempfile
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

if "AIRFLOW_HOME" not in os.environ:
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="sluice-airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)
os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(ROOT / "dags")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["SLUICE_HOME"] = os.environ["AIRFLOW_HOME"]
os.environ["SLUICE_SITE"] = str(ROOT / "site.yaml")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # warnings of Airflow and its libraries
    import airflow.dag_processing.dagbag
    import airflow.providers.apache.spark.operators.spark_submit
    import airflow.serialization.serialized_objects  # noqa: F401
    import fastapi.testclient  # noqa: F401


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test an empty folder as `SLUICE_HOME`."""
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path))
    return tmp_path
