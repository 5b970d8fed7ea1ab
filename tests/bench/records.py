"""The records that the load sends, each made of its number and of its due time. Pure."""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

Maker = Callable[[int, int], str]
"""Makes a record of its number and its due time (ns since 1970)."""


class Amount(NamedTuple):
    """A number in a template, which grows from one use of the template to the next."""

    base: int
    each_turn: int = 0
    """What is added with each use of the template before."""
    timed: int = 0
    """1: the due time (ms since 1970) is added."""


class Template(NamedTuple):
    """The text of a record with `%d` for each amount."""

    text: str
    amounts: Sequence[Amount]


def chain(number: int, due: int) -> str:
    return f'{{"id": {number}, "sent": {due}}}'


def counted(number: int, due: int) -> str:
    """Make a record of which each stage counts up `hops`."""
    return f'{{"id": {number}, "sent": {due}, "user": "user-{number % 1000}", "hops": 0}}'


SMALL: dict[str, Maker] = {"chain": chain, "counted": counted}


def template(record: dict[str, object], amounts: dict[str, Amount]) -> Template:
    """Return the template of a record in which some fields, or the ends of texts, are amounts."""
    fields = []
    for name, value in record.items():
        text = json.dumps(value).replace("%", "%%")
        if name in amounts:
            text = f'"{value}%d"' if isinstance(value, str) else "%d"
        fields.append(f'"{name}": {text}')
    return Template(f"{{{', '.join(fields)}}}", [amounts[name] for name in record if name in amounts])


def from_templates(templates: Sequence[Template]) -> Maker:
    """Return what makes record N of the templates in turn, from number 0 on."""

    def made(number: int, due: int) -> str:
        turns, place = divmod(number, len(templates))
        text, amounts = templates[place]
        at = due // 1_000_000
        return text % tuple(base + turns * each_turn + at * timed for base, each_turn, timed in amounts)

    return made


def written(templates: Sequence[Template]) -> str:
    """Return the text of a file of templates."""
    return json.dumps(templates)


def read(text: str) -> Maker:
    """Return what makes records of a file of templates."""
    return from_templates(
        [Template(text, [Amount(*amount) for amount in amounts]) for text, amounts in json.loads(text)]
    )
