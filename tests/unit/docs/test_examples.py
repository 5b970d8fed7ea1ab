"""The pipelines that pages show are valid, and the code that pages quote is that of its files."""

import ast
import re
from pathlib import Path
from textwrap import dedent

import pytest
from pyspark import SparkContext
from pyspark.sql import functions as F  # noqa: N812 - the usual alias in Spark code

import hits
import sluice
from sluice import metrics
from sluice.api.declarations import check_alone, load

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "pipelines.md"
STATE_PAGE = ROOT / "docs" / "state.md"


@pytest.mark.parametrize(
    ("section", "name"), [("### Parquet files", "SAVE"), ("### Another Kafka cluster", "TELL")]
)
def test_the_example_of_a_sink_is_a_valid_tier(section: str, name: str) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text().split(section)[1], re.DOTALL)[:1]
    made: dict[str, object] = {}
    exec(code, made)  # noqa: S102 - the page's own code
    tier = made[name]
    assert isinstance(tier, sluice.Tier)
    entry = sluice.Tier("entry", sluice.Kind.ENTRY, (sluice.Stream("raw"),), tier.transform, tier.inputs)
    assert sluice.Pipeline((entry, tier)).spec(name.lower()).delivery is sluice.Delivery.EXACTLY_ONCE


def blocks(page: str) -> list[str]:
    """Return the Python code that a page, or a docstring, shows."""
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no session of another test read types, as where a module is imported first.

    The counters of the examples are forgotten afterwards.
    """
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(metrics, "_texts", {})


COUNTERS = {
    "page": next(block for block in blocks(PAGE.read_text()) if "metrics.counter" in block),
    "docstring": dedent(str(metrics.__doc__).split("tier's other metrics.\n")[1].split("The example is")[0]),
}


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("place", COUNTERS)
def test_the_example_of_a_counter_is_a_module_that_loads(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"shop_of_{place}"
    pipeline = """
from sluice import Kind, Pipeline, Stream, Tier

HITS = Stream("hits", "agent string")
PIPELINE = Pipeline((Tier("entry", Kind.ENTRY, (Stream("raw"),), lambda raw: raw, (HITS,)),))
"""
    (tmp_path / f"{module}.py").write_text(COUNTERS[place] + pipeline)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load(module).tier("entry").outputs[0].name == "hits"
    assert "bots" in metrics.totals()


@pytest.mark.usefixtures("no_spark")
def test_each_example_of_the_pages_of_pipelines_and_state_runs() -> None:
    examples = blocks(PAGE.read_text() + STATE_PAGE.read_text())
    shown = [block for block in examples if "…" not in block and "message" not in block]
    names = {name: getattr(sluice, name) for name in sluice.__all__} | {"F": F}
    names |= {name: getattr(hits, name) for name in ("ENRICHED", "SLOT", "DRIVER")}
    names |= {
        "billed": hits.PIPELINE.tiers[0].transform,
        "BILLS": sluice.Post("bills", {"id": "text"}, "http://h"),
    }
    for block in shown:
        if "confluent_kafka" not in block:
            exec(block, names)  # noqa: S102 - the page's own code
    tiers = [value for value in names.values() if isinstance(value, sluice.Tier)]
    assert {"buys", "bills", "save", "tell", "by-user"} <= {tier.name for tier in tiers}
    for tier in tiers:
        check_alone(tier)


@pytest.mark.parametrize(
    "page",
    [page for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if blocks(page.read_text())],
)
def test_each_example_in_python_can_be_parsed(page: Path) -> None:
    for block in blocks(page.read_text()):
        ast.parse(dedent(block).replace("…", "..."))


def test_the_page_of_nexmark_quotes_the_code_that_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "nexmark.md").read_text(), re.DOTALL)
    code = [path.read_text() for path in (ROOT / "pipeline" / "nexmark").glob("*.py")]
    assert len(blocks) == 3
    assert [block for block in blocks if not any(block in text for text in code)] == []
