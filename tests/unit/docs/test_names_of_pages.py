"""Messages and docstrings name pages of the documentation by names that the first page has."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sluice_ops.model.wording import page

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
CHECKOUT_ONLY = {ROOT / "ops/sluice_ops/local/install.py"}
"""Files that run in a checkout only."""
SUFFIXES = {".py", ".html", ".yaml", ".csv", ".service", ".env"}
IN_WORDS = re.compile(r'page "([^"{]+)"\s+of\s+the\s+documentation(?:, section "([^"{]+)")?')


def sources() -> Iterator[Path]:
    for folder in ("ops", "pipeline", "plugins", "deploy"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in SUFFIXES and path not in CHECKOUT_ONLY:
                yield path


def named_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and section of each page that a call of `page`, or a docstring, names."""
    for path in sources():
        yield from (found.groups(default="") for found in IN_WORDS.finditer(path.read_text()))
        for node in ast.walk(ast.parse(path.read_text())) if path.suffix == ".py" else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "page":
                values = [each.value for each in node.args if isinstance(each, ast.Constant)]
                if values:
                    name, section = (*values, "")[:2]
                    yield str(name), str(section)


def test_an_installed_file_names_no_path_of_a_page() -> None:
    paths = re.compile(r"\bdocs/[\w/-]+\.md")
    assert [f"{path}: {found[0]}" for path in sources() for found in paths.finditer(path.read_text())] == []


def test_each_page_and_section_that_a_text_names_exists() -> None:
    files = dict(re.findall(r"\| \[([^]]+)\]\(([^)]+)\) \|", (DOCS / "README.md").read_text()))
    named = {*named_pages()}
    assert {("Access", "Kafka"), ("Hosts", ""), ("Limits", "Control groups"), ("Metrics", "")} <= named
    assert {("Docker Compose", ""), ("Hosts", "Prepare each machine")} <= named, "unit files name pages"
    assert {name for name, _ in named} <= files.keys()
    missing = {
        (name, section)
        for name, section in named
        if section
        and not re.search(rf"^##+ {re.escape(section)}$", (DOCS / files[name]).read_text(), re.MULTILINE)
    }
    assert missing == set()


def test_a_message_names_a_page_and_its_section() -> None:
    assert page("Limits") == 'the page "Limits" of the documentation'
    assert page("Access", "Kafka") == 'the page "Access" of the documentation, section "Kafka"'
