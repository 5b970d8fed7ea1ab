"""`sluice scaler`: shows how many workers each tier needs, and sets what the scaler may do."""

from typing import Annotated

import typer

from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import AsJson, print_json, print_table
from sluice_ops.model.ids import TierName
from sluice_ops.model.scaler import Mode
from sluice_ops.model.tier import is_light
from sluice_ops.queries.formats import ago

app = typer.Typer()


@app.command(epilog="Example: sluice scaler, or: sluice scaler act enrich")
def scaler(
    mode: Annotated[
        Mode | None,
        typer.Argument(
            metavar="MODE", help="act: set the workers. advise: only tell the number. off: decide nothing."
        ),
    ] = None,
    tier: Annotated[str | None, typer.Argument(metavar="TIER", help="The tier whose mode to set.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show how many workers each tier needs; set the mode.

    Without arguments, the command lists the last decision about each tier, also the decision to
    change nothing. The controller decides every 15 seconds. A mode that is set here stands above
    the site file's `scaler`.
    """
    from sluice_ops.channel.trail_queue import cli_user  # noqa: PLC0415
    from sluice_ops.operations.connect import open_channel  # noqa: PLC0415
    from sluice_ops.operations.scaling import set_mode  # noqa: PLC0415
    from sluice_ops.operations.snapshot import snapshot  # noqa: PLC0415
    from sluice_ops.queries import describe  # noqa: PLC0415

    if mode is not None:
        tiers = snapshot().tiers
        if tier is None or tier not in tiers:
            named = "no tier is named" if tier is None else f'there is no tier "{tier}"'
            message = f"{named}: write `sluice scaler {mode} TIER`, with one of {', '.join(sorted(tiers))}"
            raise WrongUsageError(message)
        if mode is not Mode.OFF and tiers[TierName(tier)].spec.light:
            raise WrongUsageError(is_light(tiers[TierName(tier)].spec))
        with open_channel() as channel:
            set_mode(channel, TierName(tier), mode, cli_user())
        then = "" if mode is Mode.ACT else ", and then it takes back a number that it has set"
        typer.echo(f"The scaler is in mode {mode} for {tier}; its next decision comes within 15 s{then}.")
        return
    lines = describe.scaler(snapshot())
    if as_json:
        print_json(lines)
        return
    print_table(
        ("tier", "mode", "slots", "wanted", "since", "reason"),
        ((line.tier, line.mode, line.slots, line.wanted, ago(line.since), line.reason) for line in lines),
        "The scaler has decided nothing yet: its first decisions come 15 s after the controller leads.",
    )
