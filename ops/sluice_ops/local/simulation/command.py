"""`sluice simulate`: measure the control plane's limits, and print a table or JSON."""

import logging
import signal
import time
import warnings
from dataclasses import asdict

import typer

from sluice_ops.cli.errors import WrongUsageError
from sluice_ops.cli.output import print_json, print_table
from sluice_ops.local.simulation.cluster import Size, SizeError
from sluice_ops.local.simulation.processes import SimulationError
from sluice_ops.local.simulation.run import simulate as run
from sluice_ops.local.simulation.targets import PEAK_BYTES, Figures, Target, targets
from sluice_ops.model.exit_codes import FAILED, INTERRUPTED
from sluice_ops.site.installation import PlatformError

MEBIBYTE = 2**20


def simulate(hosts: int, slots: int, *, as_json: bool) -> None:
    """Run a simulation and print its figures."""
    began = time.monotonic()
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="No chroot path exists")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        figures = run(
            Size(hosts, slots),
            lambda event: typer.echo(f"{time.monotonic() - began:6.1f} s  {event}", err=True),
        )
    except SizeError as error:
        raise WrongUsageError(str(error)) from None
    except (PlatformError, SimulationError) as error:
        typer.echo(f"sluice: {error}", err=True)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        typer.echo(
            "\nInterrupted: the simulation has stopped, and its processes and files are removed.", err=True
        )
        raise typer.Exit(INTERRUPTED) from None
    compared = targets(figures)
    if as_json:
        print_json(
            {
                **asdict(figures),
                "targets": {
                    target.figure: {"target": target.target, "met": target.met} for target in compared
                },
            }
        )
        return
    _print(figures, compared)


def _interrupt(_number: int, _frame: object) -> None:
    """Raise KeyboardInterrupt; ignore a second Ctrl-C while the simulation cleans up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _print(figures: Figures, compared: list[Target]) -> None:
    with_driver = _seconds(figures.loss_of_driver_max_seconds)
    without_driver = _seconds(figures.loss_without_driver_max_seconds)
    print_table(("figure", "measured", "target", ""), [_row(target) for target in compared], "")
    print_table(
        ("other figure", "measured"),
        (
            ("cold start of all tiers (s)", f"{figures.cold_start_seconds:.2f}"),
            (
                "time to answer a loss, median and longest (s)",
                f"{figures.loss_to_assignment_p50_seconds:.2f}, {figures.loss_to_assignment_max_seconds:.2f}",
            ),
            ("losses, and losses of a driver", f"{figures.losses}, {figures.losses_of_drivers}"),
            (
                "longest time to answer, with and without a lost driver (s)",
                f"{with_driver}, {without_driver}",
            ),
            ("znodes, and ephemeral znodes", f"{figures.znodes}, {figures.ephemerals}"),
            ("data in ZooKeeper (MiB)", f"{figures.tree_bytes / MEBIBYTE:.1f}"),
            ("watches", figures.watches),
        ),
        "",
    )
    typer.echo(
        f"{figures.hosts} hosts, {figures.slots} slots, {figures.tiers} tiers. "
        "Controllers and ZooKeeper were real.\nAgents ran no units, but had the nodes and watches of real "
        f"agents, in {figures.sessions} sessions.\nThe time to answer a loss begins when the host's node is "
        f"deleted ({figures.session_seconds:g} s after its last heartbeat),\nand leaves out the "
        f"{figures.lost_seconds:g} s that the controller waits for the agent."
    )


def _seconds(measured: float | None) -> str:
    return "none" if measured is None else f"{measured:.2f}"


def _row(target: Target) -> tuple[str, str, str, str]:
    scale, form = (MEBIBYTE, ".0f") if target.target == PEAK_BYTES else (1, ".3f")
    return (
        target.label,
        f"{target.measured / scale:{form}}",
        f"{target.target / scale:{form}}",
        "met" if target.met else "MISSED",
    )
