"""Sluice's own processes as services: controller, one agent for each host, runner of burst hosts, streams, audit, feed, class data."""

import os
import threading
from functools import partial

from sluice_ops.channel.client import Channel
from sluice_ops.local.layout import ADDRESS, Layout
from sluice_ops.local.start.command import run_to_end
from sluice_ops.local.start.service import NotReadyError, Program, Service
from sluice_ops.local.start.steps import Step
from sluice_ops.model import paths
from sluice_ops.site import endpoints, spark
from sluice_ops.site.site_file import Site

PUBLISH_SECONDS = 300.0
FEED_RATE = 20
"""Records per second of the shipped feed."""


def environment(where: Layout) -> dict[str, str]:
    """Return what Sluice's processes find their way by."""
    return {
        "PATH": f"{where.python.parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "PYTHONUNBUFFERED": "1",
        "MALLOC_ARENA_MAX": "2",
        "NO_PROXY": f"{ADDRESS},localhost",
        "no_proxy": f"{ADDRESS},localhost",
    }


def settings(where: Layout) -> dict[str, str]:
    """Return the environment of a command that speaks to this platform from outside of supervisord."""
    of_home = {
        "SLUICE_HOME": str(where.home),
        "SLUICE_SITE": str(where.site),
        "SLUICE_ENDPOINTS": str(where.endpoints),
    }
    return dict(os.environ) | environment(where) | of_home


def validating(where: Layout) -> Step:
    """Return the step that tries the transforms of new code, which takes a Spark, while the services that publishing needs come up."""

    def act(halt: threading.Event) -> str:
        command = [str(where.python), "-m", "sluice.commands.validation"]
        run_to_end(command, settings(where), where.logs / "validation.log", halt, PUBLISH_SECONDS)
        return "every tier's transform is valid"

    return Step("transforms", act)


def publishing(where: Layout) -> Step:
    """Return the step that makes the pipeline's streams and tables and publishes its tiers."""

    def act(halt: threading.Event) -> str:
        command = [str(where.python), "-m", "sluice.commands.publish"]
        run_to_end(command, settings(where), where.logs / "publish.log", halt, PUBLISH_SECONDS)
        return "streams, tables and tiers are there"

    return Step("pipeline", act, needs=("zookeeper", "kafka", "postgres", "transforms"))


def clear_class_data(where: Layout) -> None:
    """Remove what was kept of the JVMs of tiers and Workers for another Java, Spark or jars, or was left half written."""
    wanted = {spark.cache_of_tiers(where.home), spark.cache_of_workers(where.home)}
    for name in ("tier", "worker"):
        for old in set(where.archives.glob(f"{name}*")) - wanted:
            old.unlink()  # who runs from it has it mapped


def channel_has(where: Layout, path: str, what: str) -> None:
    """Return when the channel has a node; NotReadyError says what is missed."""
    with Channel(endpoints.Endpoints.model_validate_json(where.endpoints.read_text()).zookeeper) as channel:
        there = channel.children(path) if path == paths.LEADER else channel.exists(path)
    if not there:
        raise NotReadyError(what)


def services(where: Layout, site: Site) -> list[Service]:
    """Describe them all."""
    around = environment(where)

    def program(*words: str, nice: int = 0, stop_seconds: int = 15) -> Program:
        return Program((str(where.python), "-m", *words), around, nice=nice, stop_seconds=stop_seconds)

    def agent(name: str) -> Service:
        def ready() -> None:
            channel_has(where, paths.live(name), f"host {name} has not registered")

        return Service(
            f"agent-{name}", program("sluice_ops.agent", "--host", name), ready, needs=("zookeeper",)
        )

    def leads() -> None:
        channel_has(where, paths.LEADER, "no controller leads")

    def runs() -> None:
        """Supervisord sees whether it stays up; there is nothing to ask it."""

    return [
        # Not after "pipeline": tiers that were published before are started at once, and new ones when they are published.
        Service(
            "controller",
            program(
                "sluice_ops.controller",
                "--site",
                str(where.site),
                "--metrics",
                f"{ADDRESS}:{where.ports.metrics}",
            ),
            leads,
            needs=("zookeeper", "kafka", "postgres", "spark"),
            ports=(where.ports.metrics,),
        ),
        *(agent(host.name) for host in site.hosts),
        Service("ec2-runner", program("sluice_ops.local.ec2_runner"), runs, needs=("ec2", "zookeeper")),
        Service("audit", program("sluice.audit", nice=5), runs, needs=("pipeline",)),
        Service("feed", program("hits.feed", "--rate", str(FEED_RATE), nice=5), runs, needs=("pipeline",)),
        # After all else, since the first start is the only one that it would slow down; killed at a stop, as its JVMs would go on writing.
        Service(
            "class-data",
            Program(
                (str(where.python), "-m", "sluice.commands.class_data"),
                around,
                nice=5,
                once=True,
                stop_signal="KILL",
            ),
            runs,
            prepare=partial(clear_class_data, where),
            needs=("first-record",),
        ),
    ]
