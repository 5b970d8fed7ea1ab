"""Sluice's own processes as services: the controller, one agent for each host, the runner of burst hosts, its streams, audit, feed."""

import os
import threading

from ops import endpoints, spark
from ops.channel.client import Channel
from ops.model import paths
from ops.platform.command import run_to_end
from ops.platform.layout import ADDRESS, Layout, PlatformError
from ops.platform.priority import niced
from ops.platform.service import NotReadyError, Program, Service
from ops.platform.steps import Step
from ops.site import Site

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
    of_home = {"SLUICE_HOME": str(where.home), "SLUICE_SITE": str(where.site), "SLUICE_ENDPOINTS": str(where.endpoints)}
    return dict(os.environ) | environment(where) | of_home


def publishing(where: Layout) -> Step:
    """Return the step that makes the pipeline's streams and tables and publishes its tiers."""

    def act(halt: threading.Event) -> str:
        command = [str(where.python), "-m", "pipeline.publish"]
        run_to_end(command, settings(where), where.logs / "publish.log", halt, PUBLISH_SECONDS)
        return "streams, tables and tiers are there"

    return Step("pipeline", act, needs=("zookeeper", "kafka", "postgres"))


def class_data(where: Layout) -> Step:
    """Return the step that has the JVMs of tiers and Workers start sooner from the next start on; again when Java, Spark or jars change."""

    def act(halt: threading.Event) -> str:
        wanted = [spark.cache_of_tiers(where.home), spark.cache_of_workers(where.home)]
        if all(cache.exists() for cache in wanted):
            return "kept from an earlier start"
        command = niced(where, (str(where.python), "-m", "pipeline.classdata"), nice=5)
        try:
            run_to_end(list(command), settings(where), where.logs / "class-data.log", halt, PUBLISH_SECONDS)
        except PlatformError as error:
            return f"not kept, tiers start without it, only slower: {str(error).splitlines()[0]}"
        for name in ("tier", "worker"):
            for old in set(where.archives.glob(f"{name}*")) - set(wanted):
                old.unlink()  # who runs from it has it mapped
        return "classes of the tiers' and Workers' JVMs kept for later starts"

    return Step("class-data", act, needs=("pipeline", "jars"))


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

        return Service(f"agent-{name}", program("ops.agent", "--host", name), ready, needs=("zookeeper",))

    def leads() -> None:
        channel_has(where, paths.LEADER, "no controller leads")

    def runs() -> None:
        """Supervisord sees whether it stays up; there is nothing to ask it."""

    return [
        # Not after "pipeline": tiers that were published before are started at once, and new ones when they are published.
        Service(
            "controller",
            program("ops.controller", "--site", str(where.site), "--metrics", f"{ADDRESS}:{where.ports.metrics}"),
            leads,
            needs=("zookeeper", "kafka", "postgres", "spark"),
            ports=(where.ports.metrics,),
        ),
        *(agent(host.name) for host in site.hosts),
        Service("ec2-runner", program("ops.cloud.runner"), runs, needs=("ec2", "zookeeper")),
        Service("audit", program("pipeline.audit", nice=5), runs, needs=("pipeline",)),
        Service("feed", program("pipeline.feed", "--rate", str(FEED_RATE), nice=5), runs, needs=("pipeline",)),
    ]
