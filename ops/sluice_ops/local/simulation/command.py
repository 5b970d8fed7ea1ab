"""`sluice simulate`: how far the control plane carries, as a table or as JSON."""

import logging
import signal
import time
import warnings
from dataclasses import asdict

import typer

from sluice_ops.cli.exit_codes import FAILED, INTERRUPTED, WrongUsageError
from sluice_ops.cli.output import print_json, print_table
from sluice_ops.local.simulation.cluster import Size, SizeError
from sluice_ops.local.simulation.processes import SimulationError
from sluice_ops.local.simulation.run import simulate as run
from sluice_ops.local.simulation.targets import PEAK_BYTES, Figures, Target, targets
from sluice_ops.site.installation import PlatformError

MEBIBYTE = 2**20


def simulate(hosts: int, slots: int, *, as_json: bool) -> None:
    """Measure, then print."""
    began = time.monotonic()
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="No chroot path exists")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        figures = run(
            Size(hosts, slots),
            lambda said: typer.echo(f"{time.monotonic() - began:6.1f} s  {said}", err=True),
        )
    except SizeError as error:
        raise WrongUsageError(str(error)) from None
    except (PlatformError, SimulationError) as error:
        typer.echo(f"sluice: {error}", err=True)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        typer.echo("\nInterrupted: the simulation is stopped, nothing of it is left.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    held = targets(figures)
    if as_json:
        print_json(
            {
                **asdict(figures),
                "targets": {each.figure: {"target": each.target, "met": each.met} for each in held},
            }
        )
        return
    _print(figures, held)


def _interrupt(_number: int, _frame: object) -> None:
    """End it, and do not let a second Ctrl-C disturb the clearing up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _print(figures: Figures, held: list[Target]) -> None:
    print_table(("what", "measured", "target", ""), [_row(each) for each in held], "")
    print_table(
        ("also", "measured"),
        (
            ("cold start of all tiers (s)", f"{figures.cold_start_seconds:.2f}"),
            (
                "a loss answered, median and longest (s)",
                f"{figures.loss_to_assignment_p50_seconds:.2f}, {figures.loss_to_assignment_max_seconds:.2f}",
            ),
            (
                "losses, and those of them that took a driver along",
                f"{figures.losses}, {figures.losses_of_drivers}",
            ),
            (
                "the longest answer where a driver was lost, and where none was (s)",
                f"{_seconds(figures.loss_of_driver_max_seconds)}, {_seconds(figures.loss_without_driver_max_seconds)}",
            ),
            ("znodes, and ephemeral ones among them", f"{figures.znodes}, {figures.ephemerals}"),
            ("data in the tree (MiB)", f"{figures.tree_bytes / MEBIBYTE:.1f}"),
            ("watches", figures.watches),
        ),
        "",
    )
    typer.echo(
        f"{figures.hosts} hosts, {figures.slots} slots, {figures.tiers} tiers. The controllers and ZooKeeper were real; the agents did no\n"
        f"work, but held in the channel what real ones hold, with {figures.sessions} sessions for all of them. A loss counts\n"
        f"from when the host's node is gone ({figures.session_seconds:g} s after its last word), less the {figures.lost_seconds:g} s "
        "that an agent is given."
    )


def _seconds(measured: float | None) -> str:
    return "none" if measured is None else f"{measured:.2f}"


def _row(each: Target) -> tuple[str, str, str, str]:
    scale, form = (MEBIBYTE, ".0f") if each.target == PEAK_BYTES else (1, ".3f")
    return (
        each.what,
        f"{each.measured / scale:{form}}",
        f"{each.target / scale:{form}}",
        "met" if each.met else "MISSED",
    )
