"""The reference of Sluice's own PostgreSQL tables, from the statements that publishing runs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from docs.site.reference.text import code, table
from sluice.commands.tables import PARTS, RIGHTS
from sluice.migrations import TABLE

_NAME = r'"?(\w+)"?'
_CREATE = re.compile(rf"CREATE TABLE IF NOT EXISTS {_NAME}\s*\(")
_ALTER = re.compile(rf"ALTER TABLE {_NAME} ([^;]*)")
_COMMENT = re.compile(rf"COMMENT ON TABLE {_NAME} IS '((?:[^']|'')*)'")
_ADD = re.compile(rf"ADD COLUMN (?:IF NOT EXISTS )?{_NAME} (.*)", re.DOTALL)
_DROP = re.compile(rf"DROP COLUMN (?:IF EXISTS )?{_NAME}")
_CONSTRAINT = re.compile(r"(PRIMARY KEY|UNIQUE|CHECK|FOREIGN KEY)\b")


@dataclass
class Described:
    """One table: its purpose, its columns with their types, and its primary key."""

    purpose: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    key: str = ""


_BEGIN = r"""# Which PostgreSQL tables does Sluice keep?

`sluice publish` creates and migrates the tables below, beside the tables of your sinks. `\d+ ledger`
in psql shows the same. Read them freely; write none of them. A sink's own tables, and
`NAME_refused`, are in [Pipelines](../pipelines.md#sinks).

Example: how many records each tier with a sink took in the last hour.

    select tier, sum(rows_in) from ledger where at > now() - interval '1 hour' group by tier

"""


def page() -> str:
    """Return the page: each table with its columns and rights."""
    return _BEGIN + "\n".join(_section(name, described) for name, described in sorted(tables().items()))


def _section(name: str, described: Described) -> str:
    rows = [(code(column), code(sql_type)) for column, sql_type in described.columns.items()]
    key = f"Primary key: {code(described.key)}.\n\n" if described.key else ""
    rights = "".join(f"- {code(role)}: {given}\n" for role, given in sorted(RIGHTS.get(name, {}).items()))
    granted = f"Rights of roles:\n\n{rights}\n" if rights else ""
    return f"## {code(name)}\n\n{described.purpose}.\n\n{table(('column', 'type'), rows)}\n{key}{granted}"


def tables() -> dict[str, Described]:
    """Return the tables as all statements leave them in a new database."""
    made: dict[str, Described] = {}
    for text in (TABLE, *(statement.as_string() for part in PARTS.values() for statement in part)):
        for created in _CREATE.finditer(text):
            _create(made.setdefault(created[1], Described()), _in_brackets(text[created.end() :]))
        for altered in _ALTER.finditer(text):
            _alter(made[altered[1]].columns, altered[2])
        for comment in _COMMENT.finditer(text):
            made[comment[1]].purpose = comment[2].replace("''", "'")
    return made


def _create(described: Described, body: str) -> None:
    for part in _parts(body):
        name, _, sql_type = part.partition(" ")
        if part.startswith("PRIMARY KEY"):
            described.key = _in_brackets(part.partition("(")[2])
        elif not _CONSTRAINT.match(part):
            described.columns[name.strip('"')] = sql_type.removesuffix(" PRIMARY KEY")
            described.key = name if "PRIMARY KEY" in sql_type else described.key


def _alter(columns: dict[str, str], actions: str) -> None:
    for action in _parts(actions):
        if added := _ADD.match(action):
            columns.setdefault(added[1], added[2])
        elif dropped := _DROP.match(action):
            columns.pop(dropped[1], None)


def _in_brackets(text: str) -> str:
    """Return the text up to the bracket that closes the one before it."""
    depth = 1
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[:place]
    message = f"a bracket is not closed in: {text}"
    raise ValueError(message)


def _parts(text: str) -> Iterator[str]:
    """Yield the parts between commas that are in no brackets and in no quotes."""
    depth, quoted, begin = 0, False, 0
    for place, letter in enumerate(text):
        quoted ^= letter == "'"
        depth += 0 if quoted else (letter == "(") - (letter == ")")
        if letter == "," and depth == 0 and not quoted:
            yield text[begin:place].strip()
            begin = place + 1
    yield text[begin:].strip()
