"""Prints tables for people and JSON for scripts."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]

WIDE = 180
"""Width of tables, in columns, if stdout is no terminal."""


def print_json(value: Any) -> None:
    """Print a value as JSON; the value may contain pydantic models."""
    sys.stdout.write(json.dumps(_plain(value), indent=2) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def print_table(columns: Iterable[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """Print a table, or the text `empty` if the table has no rows."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    lines = [[text(cell) for cell in row] for row in rows]
    if not lines:
        typer.echo(empty)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=table.columns == [])
    for line in lines:
        table.add_row(*line)
    Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDE).print(table)


def text(cell: object) -> str:
    """Format one cell."""
    if cell is None or cell == "":
        return "-"
    if isinstance(cell, float):
        return f"{cell:.1f}"
    if isinstance(cell, list | tuple):
        return ", ".join(str(each) for each in cell) or "-"
    return str(cell)
