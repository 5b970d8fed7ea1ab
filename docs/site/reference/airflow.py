"""The reference of the Airflow provider, from its source: Airflow itself is not imported."""

import ast
from collections.abc import Iterator
from pathlib import Path

from docs.site.reference.text import attribute_docstrings, code, escaped

PACKAGE = Path(__file__).resolve().parents[3] / "plugins" / "sluice_airflow"
INTERNAL = {"dags", "page"}
"""Folders that hold no class for the DAGs of a site: the runbooks, and the page in Airflow."""


def page() -> str:
    """Return the page: the public classes of each folder, and the assets."""
    assets = "".join(
        f"### {code(name)}\n\n`from {PACKAGE.name}.assets import {name}`\n\n{escaped(text)}\n\n"
        for name, text in attribute_docstrings(_parsed(PACKAGE / "assets.py").body)
        if name.isupper()
    )
    folders = "".join(
        f"## {folder.name.capitalize()}\n\n{sections}"
        for folder in sorted(PACKAGE.iterdir())
        if folder.is_dir() and folder.name not in INTERNAL and (sections := "".join(_sections(folder)))
    )
    return (
        f"# What does the package `{PACKAGE.name}` give to a DAG?\n\n"
        "The classes below are for DAGs of your own; the runbooks are made of them, too. [A batch job of "
        "your own](../airflow.md#a-batch-job-of-your-own) is an example.\n\n"
        f"## Assets\n\n{assets}{folders}"
    )


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield each public class of the folders, with the name of its module."""
    for file in sorted(PACKAGE.glob("*/**/*.py")):
        path = file.relative_to(PACKAGE)
        if path.parts[0] in INTERNAL:
            continue
        module = ".".join((PACKAGE.name, *path.with_suffix("").parts)).removesuffix(".__init__")
        for node in _parsed(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield module, node


def _sections(folder: Path) -> Iterator[str]:
    for module, node in classes():
        if module.split(".")[1] == folder.name and not node.name.endswith("Error"):
            yield _section(module, node)


def _section(module: str, node: ast.ClassDef) -> str:
    made = next(
        (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None
    )
    head = f"### {code(node.name)}\n\n`from {module} import {node.name}`\n\n"
    text = f"{escaped(ast.get_docstring(node) or '')}\n\n"
    return head + text + ("" if made is None else _arguments(node.name, made))


def _arguments(name: str, made: ast.FunctionDef) -> str:
    """Return the arguments as code, and the docstring of the constructor."""
    arguments = ast.arguments(
        posonlyargs=made.args.posonlyargs,
        args=made.args.args[1:],
        vararg=made.args.vararg,
        kwonlyargs=made.args.kwonlyargs,
        kw_defaults=made.args.kw_defaults,
        kwarg=made.args.kwarg,
        defaults=made.args.defaults,
    )
    call = f"```python\n{name}({ast.unparse(arguments)})\n```\n\n"
    return f"{call}{escaped(ast.get_docstring(made) or '')}\n\n"
