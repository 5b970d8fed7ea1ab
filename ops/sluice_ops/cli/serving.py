"""`sluice agent` and `sluice controller`: they become the processes that serve a host, or the whole pipeline."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer

app = typer.Typer()

ZooKeeper = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT/CHROOT", help="Another channel than the endpoints file's, one that is open to all."
    ),
]


@app.command(
    epilog="Example: sluice agent --host h1, or, once it was drained and its agent stopped: sluice agent --host h1 --stop-all"
)
def agent(  # noqa: PLR0913 - each is a choice of the caller
    host: Annotated[str, typer.Option(metavar="NAME", help="The host's name, as in the site file.")],
    *,
    zookeeper: ZooKeeper = None,
    address: Annotated[
        str | None, typer.Option(help="For a host that is not in the site file: where its slots listen.")
    ] = None,
    zone: Annotated[str | None, typer.Option(help="Likewise: its zone; onprem if not given.")] = None,
    labels: Annotated[str | None, typer.Option(help="Likewise: its labels, with commas.")] = None,
    cpu: Annotated[float | None, typer.Option(help="Likewise: the cores that it gives.", min=0.1)] = None,
    memory: Annotated[
        str | None, typer.Option(help="Likewise: the memory that it gives, such as 4g.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="What `sluice token` has made for this host: it joins with it, once; the file goes when the host is registered."
        ),
    ] = None,
    stop_all: Annotated[
        bool, typer.Option("--stop-all", help="End every slot and driver of the host, then exit.")
    ] = False,
) -> None:
    """Serve this host: keep the slots and drivers that are assigned to it running, and say what is seen.

    It runs until Ctrl-C or SIGTERM; what it has started goes on, and the next agent of the host takes it over. On real hosts systemd keeps
    it running: docs/hosts.md.
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
    _become("sluice_ops.agent", {"--host": host, **options}, *(["--stop-all"] if stop_all else []))


@app.command(epilog="Example: sluice controller --name c1 --metrics 10.0.0.5:9464")
def controller(
    *,
    site: Annotated[Path | None, typer.Option(help="The site file; without it, SLUICE_SITE.")] = None,
    name: Annotated[str | None, typer.Option(help="How it is called in logs and status.")] = None,
    zookeeper: ZooKeeper = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where its figures are; a free port if not given.")
    ] = None,
    lost_seconds: Annotated[
        float | None, typer.Option(help="How long an agent may be away before its host is lost.", min=0)
    ] = None,
) -> None:
    """Decide what runs where. Start two or three, on different machines: one leads, the others stand by.

    It runs until Ctrl-C or SIGTERM, and holds nothing that would be lost with it.
    """
    options = {
        "--site": site,
        "--name": name,
        "--zookeeper": zookeeper,
        "--metrics": metrics,
        "--lost-seconds": lost_seconds,
    }
    _become("sluice_ops.controller", options)


def _become(module: str, options: Mapping[str, object], *flags: str) -> NoReturn:
    """Replace this process, so that signals, and the exit code, are those of the process that serves."""
    words = [sys.executable, "-m", module]
    for option, value in options.items():
        words += [f"{option}={value}"] if value is not None else []
    os.execvp(words[0], [*words, *flags])  # noqa: S606 - it becomes the process
