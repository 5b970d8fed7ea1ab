"""The reference of the command line, from the commands themselves."""

import textwrap
from typing import Any

import typer

from docs.site.reference.text import code, escaped, table
from sluice_ops.main import app
from sluice_ops.model.exit_codes import CODES


def page() -> str:
    """Return the page: each command with its help, arguments, options and example."""
    group: Any = typer.main.get_command(app)
    commands = "\n".join(
        _section(name, command) for name, command in sorted(group.commands.items()) if not command.hidden
    )
    return (
        "# Which commands does `sluice` have?\n\n"
        "`sluice status` shows what runs, and the next step for each problem. `sluice COMMAND --help` "
        f"prints what this page says. {CODES}\n\n"
        "Example:\n\n    sluice status\n    sluice drain h1 --dry-run\n\n"
        f"{commands}"
    )


def _section(name: str, command: Any) -> str:
    arguments = [each for each in command.params if not _is_option(each)]
    options = [each for each in command.params if _is_option(each)]
    usage = " ".join([f"sluice {name}", *map(_usage, arguments), *(["[OPTIONS]"] if options else [])])
    rows = [(code(_spelling(each)), _meaning(each)) for each in (*arguments, *options)]
    epilog = (command.epilog or "").removeprefix("Example: ").replace(", or: ", "\n")
    example = f"Example:\n\n{textwrap.indent(epilog, '    ')}\n\n" if epilog else ""
    help_text = escaped(textwrap.dedent(command.help or "").strip())
    listed = f"{table(('argument or option', 'meaning'), rows)}\n" if rows else ""
    return f"## `sluice {name}`\n\n{help_text}\n\n    {usage}\n\n{example}{listed}"


def _is_option(parameter: Any) -> bool:
    return bool(parameter.opts[0].startswith("-"))


def _usage(argument: Any) -> str:
    word = (argument.metavar or argument.name).upper() + ("…" if argument.nargs != 1 else "")
    return word if argument.required else f"[{word}]"


def _spelling(parameter: Any) -> str:
    if not _is_option(parameter):
        return _usage(parameter)
    names = " / ".join((", ".join(parameter.opts), *parameter.secondary_opts))
    return names if parameter.is_flag else f"{names} {parameter.metavar or 'VALUE'}"


def _meaning(parameter: Any) -> str:
    default = parameter.default
    default_text = (
        "" if default in (None, False, (), []) or callable(default) else f" Default: {code(str(default))}."
    )
    repeated = " May be repeated." if _is_option(parameter) and parameter.multiple else ""
    required = " Required." if _is_option(parameter) and parameter.required else ""
    return f"{parameter.help or ''}{required}{repeated}{default_text}"
