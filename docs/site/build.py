"""Builds the site: collects the pages, generates the reference, runs Zensical strictly.

Pages stay readable on a code host: they link to files, also outside docs/. `collect` is the only
place that handles those links. A linked file outside docs/ comes along below `project/`.
"""

import json
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any

from docs.site.reference import PAGES

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / ".sluice" / "docs"
CONFIG = Path(__file__).with_name("zensical.toml")
OUTSIDE = "project"
"""The folder of the site with the files from outside docs/."""

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r" *([-*]|[0-9]+\.) ")
_SCHEME = re.compile(r"[a-z]+:")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class SiteBuildError(Exception):
    """The site has a fault; the message names the page and the fault."""


def build(output: Path) -> Path:
    """Build the site into a folder, which is emptied first; return the path of its first page."""
    shutil.rmtree(output, ignore_errors=True)
    pages = output / "pages"
    written = [
        *(_write(pages, name, text) for name, text in collect(ROOT)),
        *(_write(pages, name, page().encode()) for name, page in PAGES.items()),
    ]
    config = tomllib.loads(CONFIG.read_text())
    markdown = [name for name in written if name.endswith(".md")]
    config["project"]["nav"] = navigation(config["project"]["nav"], markdown)
    (output / "zensical.toml").write_text(
        "".join(f"{key} = {toml(value)}\n" for key, value in config.items())
    )
    generate(output)
    return output / str(config["project"]["site_dir"]) / "index.html"


def _write(pages: Path, name: str, content: bytes) -> str:
    path = pages / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return name


def generate(output: Path) -> None:
    """Make the site from the pages and the configuration in a folder.

    Raise SiteBuildError if Zensical warns, such as of a link or an anchor that leads nowhere.
    """
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "zensical.toml"]
    done = subprocess.run(command, cwd=output, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        report = _COLOUR.sub("", done.stdout + done.stderr).partition("Traceback")[0].strip()
        message = f"Zensical refuses the pages in {output / 'pages'}:\n{report}"
        raise SiteBuildError(message)


def collect(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each page below `root`/docs, and each file that a page links to, with its place.

    Raise SiteBuildError if a link leads to a folder, to nothing, or out of `root`, or if a list is
    indented wrongly.
    """
    waiting = [path.relative_to(root).as_posix() for path in sorted((root / "docs").rglob("*.md"))]
    collected = {*waiting}
    while waiting:
        name = waiting.pop(0)
        content = (root / name).read_bytes()
        if name.endswith(".md"):
            check_lists(content.decode(), name)
            text, targets = with_links(content.decode(), name, root)
            content = text.encode()
            new = [*dict.fromkeys(target for target in targets if target not in collected)]
            collected.update(new)
            waiting += new
        yield place(name), content


def check_lists(text: str, page: str) -> None:
    """Raise SiteBuildError for a list that a code host reads, and Python-Markdown does not."""
    lines = _FENCED.sub(lambda fenced: "\n" * fenced[0].count("\n"), text).split("\n")
    for number, (before, line) in enumerate(pairwise(lines), 2):
        indent = len(line) - len(line.lstrip())
        in_list = _ITEM.match(before) or before.startswith(" ")
        if (indent % 4 and (_ITEM.match(line) or not before.strip())) or (
            _ITEM.match(line) and before.strip() and not in_list
        ):
            message = (
                f"{page}, line {number}: begin a list after an empty line, and indent what is inside an "
                "item by four spaces"
            )
            raise SiteBuildError(message)


def place(name: str) -> str:
    """Return the place in the site of a file of the checkout."""
    return name.removeprefix("docs/") if name.startswith("docs/") else f"{OUTSIDE}/{name}"


def with_links(text: str, page: str, root: Path) -> tuple[str, list[str]]:
    """Return a page with links for its place in the site, and the files that the links lead to."""
    targets: list[str] = []

    def moved(link: re.Match[str]) -> str:
        path, hash_sign, anchor = link[1].partition("#")
        if not path or _SCHEME.match(path):
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if not (root / target).is_file() or target.startswith(".."):
            fault = "is a folder" if (root / target).is_dir() else "does not exist"
            message = f"{page} links to {link[1]}, which {fault}; link to a file of the checkout"
            raise SiteBuildError(message)
        targets.append(target)
        relative = posixpath.relpath(place(target), posixpath.dirname(place(page)) or ".")
        return f"]({relative}{hash_sign}{anchor})"

    parts: list[str] = []
    end = 0
    for fenced in _FENCED.finditer(text):
        parts += (_LINK.sub(moved, text[end : fenced.start()]), fenced[0])
        end = fenced.end()
    return "".join((*parts, _LINK.sub(moved, text[end:]))), targets


def navigation(nav: list[Any], pages: Iterable[str]) -> list[Any]:
    """Return the navigation with each pattern such as `design/*.md` replaced by the pages.

    A pattern matches no README.md. Raise SiteBuildError if navigation and pages differ.
    """
    left = sorted(pages)
    unknown: list[str] = []

    def expanded(entries: list[Any]) -> Iterator[Any]:
        for entry in entries:
            if isinstance(entry, dict):
                yield {
                    title: [*expanded(inner)] if isinstance(inner, list) else next(expanded([inner]))
                    for title, inner in entry.items()
                }
                continue
            matching = [name for name in left if name == entry or _is_matched(name, entry)]
            unknown.extend([] if matching else [entry])
            for name in matching:
                left.remove(name)
            yield from matching or [entry]

    whole = [*expanded(nav)]
    if left or unknown:
        faults = [f"{name} has no entry" for name in left] + [f"there is no page {name}" for name in unknown]
        message = f"the navigation in {CONFIG.relative_to(ROOT)} is wrong: {'; '.join(faults)}"
        raise SiteBuildError(message)
    return whole


def _is_matched(name: str, pattern: str) -> bool:
    return fnmatch(name, pattern) and not name.endswith("README.md")


def toml(value: Any) -> str:
    """Write a value as TOML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)
