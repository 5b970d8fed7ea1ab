"""`sluice publish --check` runs every tier's transform in Spark, without any
service.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sluice import releases
from sluice.api import declarations
from sluice.commands import validation
from tests.lab import ROOT

pytestmark = pytest.mark.timeout(600)

MIXED = """
from pyspark.sql import functions as F

from sluice_ops.model.tier import Kind, Mode
from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.sinks.table import Once

HITS = Stream("hits", "id string, n bigint")


def tier(name, transform, **more):
    outputs = (Stream(name, "id string"),)
    return Tier(name, Kind.PROCESSING, (HITS,), transform, **({"outputs": outputs} | more))


def checked(raw):
    return raw.select(F.col("value").alias("id"), F.lit(1).alias("n"), "lineage")


def counted(hits):
    return hits.groupBy("id").agg(F.first("lineage").alias("lineage"))


def sorted_by_id(hits):
    return hits.orderBy("id")


def misspelt(hits):
    return hits.select("ids", "lineage")


PIPELINE = Pipeline(
    (
        Tier("entry", Kind.ENTRY, (Stream("raw"),), checked, outputs=(HITS,), mode=Mode.REALTIME),
        tier("counted", counted, mode=Mode.REALTIME),
        tier("sorted", sorted_by_id),
        tier("misspelt", misspelt),
        tier("stored", lambda hits: hits, outputs=(), sink=Once("rows", {"id": "text", "who": "text"})),
    )
)
"""

BUYS = """
BUYS = Stream("buys", "user string, campaign string, at bigint", Fields("user"))


def bought(enriched):
    return enriched.where("kind = 'buy'").select("user", "campaign", "at", "lineage")


bought_tier = Tier(
    "buys",
    Kind.PROCESSING,
    (ENRICHED,),
    bought,
    outputs=(BUYS,),
    mode=Mode.REALTIME,
    filters=True,
    quantum=SLOT,
    driver=DRIVER,
)  # and bought_tier in PIPELINE's tiers
"""


def check(tmp_path: Path, module: str, checkout: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    """Check a pipeline from `tmp_path`, as in a checkout where nothing was ever started."""
    site = tmp_path / "site.yaml"
    site.write_text(f"pipeline: {module}\nhosts: []\n")
    paths = {
        "PYTHONPATH": f"{checkout}/ops:{checkout}/pipeline:{checkout}:{tmp_path}",
        "SLUICE_HOME": str(tmp_path / "home"),
        "SLUICE_SITE": str(site),
    }
    environment = {
        name: value for name, value in os.environ.items() if name not in {"SLUICE_ENDPOINTS", "JAVA_HOME"}
    } | paths
    environment["PATH"] = "/nowhere"  # the check uses its own Java
    command = [sys.executable, "-m", "sluice.commands.publish", "--check"]
    return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_the_check_names_the_refused_operator_of_every_tier(tmp_path: Path) -> None:
    (tmp_path / "mixed.py").write_text(MIXED)
    done = check(tmp_path, "mixed")
    assert done.returncode == 1
    assert done.stdout == 'tier "entry": valid\n'
    counted, by_id, misspelt, stored = done.stderr.splitlines()
    assert counted.startswith('tier "counted": groupBy(…) cannot run in mode realtime')
    assert by_id.startswith('tier "sorted": orderBy or sort does not keep records one by one and in order')
    line = MIXED.splitlines().index('    return hits.select("ids", "lineage")') + 1
    assert misspelt.startswith(
        f'tier "misspelt": the transform fails at {tmp_path}/mixed.py:{line}: there is no column `ids`; '
    )
    assert stored.startswith(
        'tier "stored": the sink "rows" needs who, but the transform returns id, n; return every column'
    )
    assert not (tmp_path / "home").exists()


def test_the_shipped_pipeline_with_the_docs_tier_is_valid_and_noted(
    tmp_path: Path,
) -> None:
    assert BUYS in (ROOT / "docs" / "pipelines.md").read_text()
    checkout = tmp_path / "checkout"
    for name in ("ops", "pipeline"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    shipped = checkout / "pipeline" / "hits" / "__init__.py"
    before, after = shipped.read_text().split("PIPELINE = Pipeline(\n    tiers=(\n")
    shipped.write_text(f"{before}{BUYS}\nPIPELINE = Pipeline(\n    tiers=(\n        bought_tier,\n{after}")
    (tmp_path / "home").mkdir()
    done = check(tmp_path, "hits", checkout)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(
        f'tier "{name}": valid\n' for name in ("buys", "entry", "enrich", "counts", "outbound")
    )
    assert (tmp_path / "home" / "validated.json").exists()


def test_stateful_tiers_are_checked_and_their_state_found_in_one_session(tmp_path: Path) -> None:
    module = "tests.integration.sluice.stateful_pipeline"
    (tmp_path / "home").mkdir()
    done = check(tmp_path, module)
    assert (done.returncode, done.stderr) == (0, "")
    cached = validation.cached(tmp_path / "home", module)
    assert cached is not None
    assert cached.state_operators.keys() == {
        tier.name for tier in declarations.load(module).tiers if tier.state is not None
    }
    assert cached.state_operators["by-window"] == (
        "Aggregate of who, window(time, width 10000000, every 10000000, offset 0), count(1), sum(id)",
    )
    assert releases.of_current_code(tmp_path / "home", module) is None, "a check makes no release"
