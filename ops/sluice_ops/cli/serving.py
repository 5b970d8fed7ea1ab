"""`sluice agent` and `sluice controller`: run the agent of a host, or a controller."""

from pathlib import Path
from typing import Annotated

import typer

from sluice_ops.cli.become import become, option_words

app = typer.Typer()

ZooKeeper = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT/CHROOT", help="A channel without access lists, instead of the endpoints file's."
    ),
]


@app.command(
    epilog="Example: sluice agent --host h1; after a drain, with the agent stopped: "
    "sluice agent --host h1 --stop-all"
)
def agent(  # noqa: PLR0913 - one parameter for each option
    host: Annotated[str, typer.Option(metavar="NAME", help="The host's name, as in the site file.")],
    *,
    zookeeper: ZooKeeper = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Of a host outside the site file: the address of its slots."),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Of a host outside the site file: its zone. Default: onprem."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="LABELS", help="Of a host outside the site file: its labels, separated by commas."
        ),
    ] = None,
    cpu: Annotated[
        float | None,
        typer.Option(metavar="CORES", help="Of a host outside the site file: its cores for slots.", min=0.1),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Of a host outside the site file: its memory for slots, such as 4g."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The token of this host from `sluice token`, for the first start. "
            "Deleted after the registration.",
        ),
    ] = None,
    stop_all: Annotated[
        bool, typer.Option("--stop-all", help="Stop every slot and driver of the host, then exit.")
    ] = False,
) -> None:
    """Run the agent of this host.

    The agent keeps the assigned slots and drivers running, and reports their state. It runs until
    Ctrl-C or SIGTERM. Its slots and drivers run on, and the next agent of the host takes them over.
    On real hosts systemd runs the agent: see the page "Hosts" of the documentation.
    """
    options: dict[str, object] = {
        "--zookeeper": zookeeper,
        "--token-file": token_file,
        "--address": address,
        "--zone": zone,
        "--labels": labels,
        "--cpu": cpu,
        "--memory": memory,
    }
    become("sluice_ops.agent", *option_words({"--host": host, **options}), *["--stop-all"] * stop_all)


@app.command(epilog="Example: sluice controller --name c1 --metrics 10.0.0.5:9464")
def controller(
    *,
    site: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The site file. Default: SLUICE_SITE.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of this controller in logs and status.")
    ] = None,
    zookeeper: ZooKeeper = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Address of its metrics. Default: a free port.")
    ] = None,
    lost_seconds: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Seconds without an agent after which a host is lost.", min=0),
    ] = None,
) -> None:
    """Run a controller.

    Run two or three on different machines: one leads, the others are standbys. A controller runs
    until Ctrl-C or SIGTERM. All its state is in ZooKeeper.
    """
    options = {
        "--site": site,
        "--name": name,
        "--zookeeper": zookeeper,
        "--metrics": metrics,
        "--lost-seconds": lost_seconds,
    }
    become("sluice_ops.controller", *option_words(options))
