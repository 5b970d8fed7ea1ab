"""The pipelines that pages show are valid, and the code that pages quote is that of its files."""

import re
from pathlib import Path

import pytest

import sluice

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "pipelines.md"


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


def test_the_page_of_nexmark_quotes_the_code_that_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "nexmark.md").read_text(), re.DOTALL)
    code = [path.read_text() for path in (ROOT / "pipeline" / "nexmark").glob("*.py")]
    assert len(blocks) == 3
    assert [block for block in blocks if not any(block in text for text in code)] == []
