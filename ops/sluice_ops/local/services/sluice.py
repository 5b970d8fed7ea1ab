"""Sluice's own processes as services.

They are the controller, an agent for each host, the runner of burst hosts, the audit, the feed, and
the job that makes class data.
"""

import os
import threading
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from sluice_ops.channel.client import Channel
from sluice_ops.local.layout import ADDRESS, Layout
from sluice_ops.local.machines import cpu_share
from sluice_ops.local.memory import processors
from sluice_ops.local.start.command import run_to_end
from sluice_ops.local.start.service import NotReadyError, Program, Service
from sluice_ops.local.start.steps import Step
from sluice_ops.model import paths
from sluice_ops.model.assignment import DECOMMISSIONED_EXIT
from sluice_ops.site import endpoints, spark
from sluice_ops.site.site_file import Site

PUBLISH_SECONDS = 300.0
FEED_RATE = 20
"""Records per second of a pipeline's feed."""


def environment(layout: Layout) -> dict[str, str]:
    """Return the environment of Sluice's processes under supervisord."""
    return {
        "PATH": f"{layout.python.parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "PYTHONUNBUFFERED": "1",
        "MALLOC_ARENA_MAX": "2",
        "NO_PROXY": f"{ADDRESS},localhost",
        "no_proxy": f"{ADDRESS},localhost",
    }


def settings(layout: Layout) -> dict[str, str]:
    """Return the environment of a command that uses this platform from outside supervisord."""
    of_home = {
        "SLUICE_HOME": str(layout.home),
        "SLUICE_SITE": str(layout.site),
        "SLUICE_ENDPOINTS": str(layout.endpoints),
    }
    return dict(os.environ) | environment(layout) | of_home


def validation_step(layout: Layout) -> Step:
    """Return the step that checks the transforms of new code in Spark.

    The step runs while the services start that publishing needs.
    """

    def act(halt: threading.Event) -> str:
        command = [str(layout.python), "-m", "sluice.commands.validation"]
        run_to_end(command, settings(layout), layout.logs / "validation.log", halt, PUBLISH_SECONDS)
        return "every tier's transform is valid"

    return Step("transforms", act)


def publish_step(layout: Layout) -> Step:
    """Return the step that creates the pipeline's streams and tables, and publishes its tiers."""

    def act(halt: threading.Event) -> str:
        command = [str(layout.python), "-m", "sluice.commands.publish"]
        run_to_end(command, settings(layout), layout.logs / "publish.log", halt, PUBLISH_SECONDS)
        return "streams, tables and tiers are published"

    return Step("pipeline", act, needs=("zookeeper", "kafka", "postgres", "transforms"))


def clear_class_data(layout: Layout) -> None:
    """Remove AOT caches that are for another Java, Spark or jars, and unfinished ones."""
    wanted = {spark.cache_of_tiers(layout.home), spark.cache_of_workers(layout.home)}
    for name in ("tier", "worker"):
        for old in set(layout.archives.glob(f"{name}*")) - wanted:
            old.unlink()  # a running JVM still has the file mapped


def feed_modules(site: Site) -> list[str]:
    """Return the module that feeds the pipeline with example records, if the pipeline has one."""
    try:
        package = find_spec(site.pipeline)
    except Exception:  # noqa: BLE001 — the pipeline's own code; its validation reports the cause
        return []
    folders = (package and package.submodule_search_locations) or []
    return [f"{site.pipeline}.feed" for folder in folders if (Path(folder) / "feed.py").exists()]


def require_node(layout: Layout, error: str, *any_of: str) -> None:
    """Raise NotReadyError with this text unless the channel has one of the nodes, or a leader."""
    with Channel(endpoints.Endpoints.model_validate_json(layout.endpoints.read_text()).zookeeper) as channel:
        exists = (channel.children(path) if path == paths.LEADER else channel.exists(path) for path in any_of)
        if any(exists):
            return
    raise NotReadyError(error)


def services(layout: Layout, site: Site) -> list[Service]:
    """Return Sluice's own services: the controller, the agents, the audit, the feed and helpers."""
    variables = environment(layout)
    share = cpu_share(site, processors())

    def program(*words: str, nice: int = 0, stop_seconds: int = 15) -> Program:
        return Program((str(layout.python), "-m", *words), variables, nice=nice, stop_seconds=stop_seconds)

    def agent(name: str) -> Service:
        def ready() -> None:
            error = f"host {name} has not registered"
            require_node(layout, error, paths.live(name), paths.decommissioned(name))

        words = ("sluice_ops.agent", "--host", name, "--cpu-share", f"{share:g}")
        agent = replace(program(*words), last_exit=DECOMMISSIONED_EXIT)
        return Service(f"agent-{name}", agent, ready, needs=("zookeeper",))

    def leads() -> None:
        require_node(layout, "no controller leads", paths.LEADER)

    def runs() -> None:
        """Check nothing: supervisord knows whether the process runs."""

    feeds = [
        Service("feed", program(module, "--rate", str(FEED_RATE), nice=5), runs, needs=("pipeline",))
        for module in feed_modules(site)
    ]
    return [
        # does not need "pipeline": it starts published tiers at once, and new ones once they are
        # published
        Service(
            "controller",
            program(
                "sluice_ops.controller",
                "--site",
                str(layout.site),
                "--metrics",
                f"{ADDRESS}:{layout.ports.metrics}",
            ),
            leads,
            needs=("zookeeper", "kafka", "postgres", "spark"),
            ports=(layout.ports.metrics,),
        ),
        *(agent(host.name) for host in site.hosts),
        Service("ec2-runner", program("sluice_ops.local.ec2_runner"), runs, needs=("ec2", "zookeeper")),
        Service("audit", program("sluice.audit", nice=5), runs, needs=("pipeline",)),
        *feeds,
        # Last, because it would slow down the first start. Killed at a stop: its JVMs would
        # continue to write.
        Service(
            "class-data",
            Program(
                (str(layout.python), "-m", "sluice.commands.class_data"),
                variables,
                nice=5,
                once=True,
                stop_signal="KILL",
            ),
            runs,
            prepare=partial(clear_class_data, layout),
            needs=("first-record" if feeds else "tiers",),
        ),
    ]
