"""A process's figures for Prometheus: served at `/metrics`, and announced in the channel so that they are found.

Drivers, agents, controllers and the audit each bring a collector, which reads at a scrape what its process knows already. `/targets` names
all that are announced, in the form of Prometheus' HTTP service discovery. What goes wrong here is said, and never stops the process.
"""

import json
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Protocol, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from pydantic import BaseModel

from sluice_ops.channel import ChannelAwayError, ConflictError, Read
from sluice_ops.model import paths
from sluice_ops.model.exporter import Exporter, targets

log = structlog.get_logger()

M = TypeVar("M", bound=BaseModel)

LOOK_SECONDS = 1.0
"""Between two looks whether the announcement is still there; it goes with the channel's session."""


class Announcer(Protocol):
    """What is asked of the channel."""

    @property
    def connected(self) -> bool:
        """Whether a request would be sent now."""

    @property
    def session(self) -> int | None:
        """The session that holds what is announced."""

    def exists(self, path: str) -> bool:
        """Tell whether there is a node at `path`."""

    def children(self, path: str) -> list[str]:
        """Return the names below `path`."""

    def read(self, path: str, model: type[M]) -> Read[M] | None:
        """Return the value at `path`."""

    def create(self, path: str, value: BaseModel, *, ephemeral: bool, sequence: bool) -> bool:
        """Create a node."""


def serve(channel: Announcer, exporter: Exporter, collector: Collector) -> None:
    """Serve a process's figures at the exporter's address until the process ends; port 0 takes a free one."""
    threading.Thread(target=_serve, args=(channel, exporter, collector), name="metrics", daemon=True).start()


def exporters(channel: Announcer) -> list[Exporter]:
    """Return where figures are served now."""
    found = (
        channel.read(f"{paths.EXPORTERS}/{name}", Exporter) for name in channel.children(paths.EXPORTERS)
    )
    return sorted(
        {each.value for each in found if each is not None},
        key=lambda each: (each.role, str(each.labels), each.address),
    )


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each scrape in a thread of its own, and looks after the announcement in between."""

    daemon_threads = True

    def __init__(self, channel: Announcer, exporter: Exporter) -> None:
        host, _, port = exporter.address.rpartition(":")
        super().__init__((host, int(port)), _Quiet)
        self._channel = channel
        self._announced: int | None = None
        self.exporter = exporter.model_copy(update={"address": f"{host}:{self.server_port}"})

    def service_actions(self) -> None:
        """Announce it, once for each session."""
        channel, session = self._channel, self._channel.session
        if not channel.connected or session == self._announced:
            return
        try:
            if channel.exists(paths.EXPORTERS):  # whoever starts the platform makes it
                channel.create(
                    paths.exporter(self.exporter.role), self.exporter, ephemeral=True, sequence=True
                )
                self._announced = session
        except (ChannelAwayError, ConflictError) as error:
            log.info("where the figures are is announced later", error=str(error))


class _Quiet(WSGIRequestHandler):
    """Logs no requests: they come every few seconds."""

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


class _Channel:
    """What every process knows of its channel."""

    def __init__(self, channel: Announcer) -> None:
        self._channel = channel

    def collect(self) -> Iterable[Metric]:
        """Tell whether it is there."""
        yield GaugeMetricFamily(
            "sluice_channel_connected",
            "Whether ZooKeeper answers this process.",
            value=self._channel.connected,
        )


def registry(channel: Announcer, collector: Collector) -> CollectorRegistry:
    """Return all figures of a process: its own, its channel's, and those that every Python process has."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # when a histogram was made tells nobody anything
    made = CollectorRegistry()
    ProcessCollector(registry=made)
    made.register(_Channel(channel))
    made.register(collector)
    return made


def _serve(channel: Announcer, exporter: Exporter, collector: Collector) -> None:
    try:
        server = _Server(channel, exporter)
    except OSError as error:
        log.warning(
            "figures are not served; everything else goes on", address=exporter.address, error=str(error)
        )
        return
    server.set_app(_app(channel, make_wsgi_app(registry(channel, collector))))
    log.info("figures are served", url=f"http://{server.exporter.address}/metrics")
    server.serve_forever(LOOK_SECONDS)


def _app(channel: Announcer, metrics: Callable[..., Any]) -> Callable[..., Any]:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if environ["PATH_INFO"] != "/targets":
            return metrics(environ, start_response)
        try:
            status, found = "200 OK", json.dumps(targets(exporters(channel)))
        except (ChannelAwayError, ConflictError) as error:
            status, found = (
                "503 Service Unavailable",
                json.dumps({"away": str(error)}),
            )  # Prometheus keeps the list that it has
        start_response(status, [("Content-Type", "application/json")])
        return [found.encode()]

    return answer
