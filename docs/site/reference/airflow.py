"""The reference of the Airflow provider, from its source and from the kinds of change: Airflow
itself is not imported.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.site.reference.text import attribute_docstrings, code, escaped, table
from sluice_ops.model.change import DEADLINE_SECONDS
from sluice_ops.planning.changes.kind import Field, Input, Kind
from sluice_ops.planning.changes.kinds import KINDS

PACKAGE = Path(__file__).resolve().parents[3] / "plugins" / "sluice_airflow"
INTERNAL = {"dags", "page"}
"""Folders that hold no class for the DAGs of a site: the runbooks, and the page in Airflow."""
ROLES = ("Operator", "Sensor", "Hook", "Notifier", "Trigger")
"""The last words of the names of classes that a DAG uses."""
CHANGES = f"{PACKAGE.name}.operators.changes"
"""The module of the operators that are made from the kinds of change."""
_TYPES = {Input.COUNT: "int", Input.AMOUNT: "int | str", Input.WORKERS: "list[str]"}
"""The types of fields that are no text."""


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
        "your own](../airflow.md#a-batch-job-of-your-own) is an example. `kwargs` are the arguments of the "
        "bases: `sluice_conn_id` of `SluiceOperator`, and those of Airflow's classes, such as `task_id`.\n\n"
        f"## Assets\n\n{assets}{folders}"
    )


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield each class of the folders that a DAG uses, with the name of its module."""
    for file in sorted(PACKAGE.glob("*/**/*.py")):
        path = file.relative_to(PACKAGE)
        if path.parts[0] in INTERNAL:
            continue
        module = ".".join((PACKAGE.name, *path.with_suffix("").parts)).removesuffix(".__init__")
        for node in _parsed(file).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith(ROLES):
                yield module, node


def _sections(folder: Path) -> Iterator[str]:
    by_name = {node.name: node for _, node in classes()}
    for module, node in classes():
        if module.split(".")[1] == folder.name:
            yield _section(module, node, by_name)
        if module == CHANGES:
            yield from (_change_section(kind, node.name) for kind in KINDS.values() if kind.runbook)


def _head(module: str, name: str, bases: str, text: str) -> str:
    return f"### {code(name)}\n\n`from {module} import {name}`\n\nBases: {bases}.\n\n{escaped(text)}\n\n"


def _section(module: str, node: ast.ClassDef, by_name: Mapping[str, ast.ClassDef]) -> str:
    bases = ", ".join(code(ast.unparse(base)) for base in node.bases)
    made = _constructor(node, by_name)
    head = _head(module, node.name, bases, ast.get_docstring(node) or "")
    return head + ("" if made is None else _arguments(node.name, made))


def _constructor(node: ast.ClassDef, by_name: Mapping[str, ast.ClassDef]) -> ast.FunctionDef | None:
    """Return the constructor of a class, which may be the one of a base in the package."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return each
    bases = [by_name[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in by_name]
    return next((made for base in bases if (made := _constructor(base, by_name)) is not None), None)


def _change_section(kind: Kind, base: str) -> str:
    """Return the section of the operator that is made from a kind of change."""
    arguments = ", ".join(map(_argument, kind.fields))
    call = (
        f"```python\n{kind.operator}(*, {arguments}, deadline: float = {DEADLINE_SECONDS}, **kwargs)\n```\n\n"
    )
    rows = [(code(field.name), field.help) for field in kind.fields]
    listed = table(("argument", "meaning"), [*rows, ("`deadline`", "The seconds that the change may take.")])
    text = f"{kind.summary}\n\n{kind.details}".strip()
    return f"{_head(CHANGES, kind.operator, code(base), text)}{call}{listed}\n"


def _argument(field: Field) -> str:
    of_type = _TYPES.get(field.input, "str")
    return f"{field.name}: {of_type}" if field.required else f"{field.name}: {of_type} | None = None"


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
