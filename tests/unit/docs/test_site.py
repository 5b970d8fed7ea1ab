"""The docs site: pages keep their links, and each fault of a page fails the build."""

import re
from pathlib import Path

import pytest

from docs.site.build import (
    CONFIG,
    ROOT,
    SiteBuildError,
    build,
    check_lists,
    collect,
    generate,
    navigation,
    with_links,
)

pytestmark = pytest.mark.timeout(120)  # the whole site is built, and the machine may be busy

CONFIG_OF_TEST = '[project]\nsite_name = "t"\ndocs_dir = "pages"\nsite_dir = "html"\n'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the whole site, built from this checkout."""
    return build(tmp_path_factory.mktemp("site") / "docs").parent


def checkout(root: Path, **files: str) -> Path:
    """Write files into a checkout; `docs__a` is docs/a.md."""
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_site_has_each_page_and_links_within_itself(site: Path) -> None:
    for name in ("index", "quickstart", "runbooks/drain_host", "reference/site-file", "project/CONTRIBUTING"):
        assert (site / f"{name}.html").exists(), name
    changelog = re.findall(r'href="([^"]*CHANGELOG\.html)"', (site / "upgrade.html").read_text())
    assert changelog
    assert all((site / link).exists() for link in changelog)


def test_a_reader_fetches_nothing_from_elsewhere(site: Path) -> None:
    loading = re.compile(r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="?(?:https?:)?//|class="?mermaid')
    pages = [*site.rglob("*.html")]
    assert len(pages) > 100
    assert [page.name for page in pages if loading.search(page.read_text())] == []
    styles = [sheet.read_text() for sheet in site.rglob("*.css")]
    assert not any(re.search(r"url\([\"']?(?:https?:)?//", style) for style in styles)


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ("[x](none.md)", "page does not exist"),
        ("[x](index.md#none)", "anchor does not exist"),
        ("[x](#none)", "anchor does not exist"),
    ],
)
def test_a_link_to_nothing_fails_the_generator(tmp_path: Path, page: str, fault: str) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "zensical.toml").write_text(CONFIG_OF_TEST)
    (tmp_path / "pages" / "index.md").write_text("# Begin\n\ntext\n")
    generate(tmp_path)
    (tmp_path / "pages" / "index.md").write_text(f"# Begin\n\n{page}\n")
    with pytest.raises(SiteBuildError, match=fault):
        generate(tmp_path)


@pytest.mark.parametrize(
    ("link", "fault"),
    [("none.md", "does not exist"), ("part/", "is a folder"), ("../../etc/passwd", "does not exist")],
)
def test_a_link_to_no_file_of_the_checkout_is_refused(tmp_path: Path, link: str, fault: str) -> None:
    root = checkout(tmp_path, docs__a=f"[x]({link})", docs__part__b="text")
    with pytest.raises(SiteBuildError, match=rf"^docs/a.md links to {re.escape(link)}, which {fault}"):
        list(collect(root))


def test_linked_files_outside_docs_come_along_with_their_links(tmp_path: Path) -> None:
    root = checkout(
        tmp_path,
        README="# Top",
        NEWS="See [a](docs/part/a.md#x), [the top](README.md) and [itself](#y).",
        docs__part__a="See [news](../../NEWS.md#y), [b](../b.md) and [elsewhere](https://example.com/a.md).",
        docs__b="text",
    )
    (root / "code.py").write_text("pass")
    (root / "docs" / "b.md").write_text("[code](../code.py)")
    assert {name: content.decode() for name, content in collect(root)} == {
        "part/a.md": "See [news](../project/NEWS.md#y), [b](../b.md) and [elsewhere](https://example.com/a.md).",
        "b.md": "[code](project/code.py)",
        "project/NEWS.md": "See [a](../part/a.md#x), [the top](README.md) and [itself](#y).",
        "project/README.md": "# Top",
        "project/code.py": "pass",
    }


def test_links_in_code_blocks_are_left_alone(tmp_path: Path) -> None:
    text = "```python\nhandlers[0](none)\n```\n"
    assert with_links(text, "docs/a.md", tmp_path) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        "text\n- no empty line before the list",
        "- item\n  - indented by two",
        "1. item\n   - indented by three",
        "1. item\n\n   a paragraph indented by three",
        "1. item\n\n       code indented by seven",
    ],
)
def test_a_list_that_only_a_code_host_reads_is_refused(text: str) -> None:
    with pytest.raises(SiteBuildError, match=r"^docs/a.md, line [23]: begin a list after"):
        check_lists(text, "docs/a.md")


def test_a_list_that_both_readers_understand_is_accepted() -> None:
    check_lists("text\n\n1. item\n   goes on\n    - inside\n      goes on\n\n    more\n2. next\n", "a.md")
    check_lists("```\ntext\n- no list\n```\n", "a.md")


def test_the_navigation_names_each_page_once() -> None:
    nav = [{"A": "a.md"}, {"B": ["b/README.md", "b/*.md"]}]
    pages = ["a.md", "b/2.md", "b/1.md", "b/README.md"]
    assert navigation(nav, pages) == [{"A": "a.md"}, {"B": ["b/README.md", "b/1.md", "b/2.md"]}]
    with pytest.raises(SiteBuildError, match=r"c\.md has no entry"):
        navigation(nav, [*pages, "c.md"])
    with pytest.raises(SiteBuildError, match=r"there is no page a\.md"):
        navigation(nav, pages[1:])


def test_no_file_of_the_site_is_at_the_top_level() -> None:
    assert CONFIG.is_relative_to(ROOT / "docs")
    assert not [*ROOT.glob("mkdocs*"), *ROOT.glob("zensical*")]
