"""Each runbook has a page in docs/runbooks that describes it, and each page has a runbook."""

import re
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag

from sluice_airflow.operators.steps import END

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs" / "runbooks"
PAGES = {path.stem: path.read_text() for path in FOLDER.glob("*.md") if path.name != "README.md"}
HEADINGS = ["When", "What happens", "What you see", "When it fails"]
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module")
def tasks() -> dict[str, set[str]]:
    """Return the tasks of each DAG that the package makes; all tiers share one page."""
    loaded = DagBag(str(ROOT / "dags" / "runbooks.py"))
    assert loaded.import_errors == {}
    return {
        re.sub("^tier_.*", "tier_name", name): {task.task_id for task in dag.tasks} - {END}
        for name, dag in loaded.dags.items()
    }


def test_each_runbook_has_its_page_and_each_page_its_runbook(tasks: dict[str, set[str]]) -> None:
    assert tasks.keys() == PAGES.keys()


def test_a_runbooks_page_names_each_of_its_tasks_and_no_other(tasks: dict[str, set[str]]) -> None:
    for name, page in PAGES.items():
        described = re.search(r"\| task \| what happens \|\n\|---\|---\|\n((?:\|.*\n)+)", page)
        assert described is not None, name
        cells = re.findall(r"^\| ([^|]*) \|", described[1], re.MULTILINE)
        named = [task for cell in cells for task in re.findall(r"`([\w-]+)`", cell)]
        assert sorted(named) == sorted(tasks[name]), name


@pytest.mark.parametrize("name", PAGES)
def test_a_runbooks_page_has_the_four_sections(name: str) -> None:
    assert re.findall(r"^## (.*)", PAGES[name], re.MULTILINE) == HEADINGS
    dag = "tier_<name>" if name == "tier_name" else name
    assert re.match(rf"# .*\? \(`{dag}`\)\n\n\S", PAGES[name])


@pytest.mark.parametrize("name", PAGES)
def test_the_index_of_runbooks_names_each_page(name: str) -> None:
    assert f"[{name}]({name}.md)" in (FOLDER / "README.md").read_text()
