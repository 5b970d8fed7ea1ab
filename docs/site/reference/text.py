"""Text for generated pages: docstrings from source code, tables, code spans."""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence


def attribute_docstrings(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield each name that is assigned in a module or class, with the string after it, or ""."""
    for statement, following in zip(body, [*body[1:], ast.Pass()], strict=True):
        text = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = inspect.cleandoc(str(following.value.value))
        yield from ((target.id, text) for target in _targets(statement) if isinstance(target, ast.Name))


def _targets(statement: ast.stmt) -> Sequence[ast.expr]:
    if isinstance(statement, ast.Assign):
        return [part for target in statement.targets for part in getattr(target, "elts", [target])]
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. Cells are Markdown on one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


def cell(text: str) -> str:
    """Return text for a cell: on one line, with `|` escaped."""
    return escaped(" ".join(text.split())).replace("|", r"\|")


def escaped(text: str) -> str:
    """Return text in which `<name>` outside code spans is no HTML."""
    return re.sub(r"(`[^`]*`)|<", lambda found: found[1] or "&lt;", text)


def code(text: str) -> str:
    return f"`{text}`"
