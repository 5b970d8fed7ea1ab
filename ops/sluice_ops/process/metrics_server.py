"""Serve a process's metrics to Prometheus at `/metrics`, and announce the address in the channel.

Drivers, agents, controllers and the audit each have a collector, which reads values that its
process holds already. `/targets` lists all announced addresses for Prometheus' HTTP service
discovery. An error here is logged, and never stops the process.
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
"""The time between two checks of the announcement, which disappears with the channel's session."""


class Announcer(Protocol):
    """The part of the channel that this module needs."""

    @property
    def connected(self) -> bool:
        """Whether ZooKeeper is connected."""

    @property
    def session(self) -> int | None:
        """The id of the session that holds the announcement."""

    def exists(self, path: str) -> bool:
        """Tell whether there is a node at `path`."""

    def children(self, path: str) -> list[str]:
        """Return the names of the nodes below `path`."""

    def read(self, path: str, model: type[M]) -> Read[M] | None:
        """Return the value at `path`."""

    def create(self, path: str, value: BaseModel, *, ephemeral: bool, sequence: bool) -> bool:
        """Create a node."""


def serve(channel: Announcer, exporter: Exporter, collector: Collector) -> None:
    """Serve a process's metrics at the exporter's address until the process ends.

    Port 0 means any free port.
    """
    threading.Thread(target=_serve, args=(channel, exporter, collector), name="metrics", daemon=True).start()


def exporters(channel: Announcer) -> list[Exporter]:
    """Return the announced addresses of all processes, sorted by role, labels and address."""
    nodes = (
        channel.read(f"{paths.EXPORTERS}/{name}", Exporter) for name in channel.children(paths.EXPORTERS)
    )
    return sorted(
        {node.value for node in nodes if node is not None},
        key=lambda exporter: (exporter.role, str(exporter.labels), exporter.address),
    )


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each scrape in a separate thread, and announces its address in between."""

    daemon_threads = True

    def __init__(self, channel: Announcer, exporter: Exporter) -> None:
        host, _, port = exporter.address.rpartition(":")
        super().__init__((host, int(port)), _SilentHandler)
        self._channel = channel
        self._announced: int | None = None
        """The session in which the address was announced."""
        self.exporter = exporter.model_copy(update={"address": f"{host}:{self.server_port}"})

    def service_actions(self) -> None:
        """Announce the address once per session."""
        channel, session = self._channel, self._channel.session
        if not channel.connected or session == self._announced:
            return
        try:
            if channel.exists(paths.EXPORTERS):  # the start of the platform creates this node
                channel.create(
                    paths.exporter(self.exporter.role), self.exporter, ephemeral=True, sequence=True
                )
                self._announced = session
        except (ChannelAwayError, ConflictError) as error:
            log.info(
                "the metrics address cannot be announced in the channel; the process retries",
                error=str(error),
            )


class _SilentHandler(WSGIRequestHandler):
    """Logs no requests, because they come every few seconds."""

    def log_message(self, *_words: object) -> None:
        """Do nothing."""


class _ChannelMetrics:
    """The metrics of a process's channel."""

    def __init__(self, channel: Announcer) -> None:
        self._channel = channel

    def collect(self) -> Iterable[Metric]:
        """Yield whether ZooKeeper is connected."""
        yield GaugeMetricFamily(
            "sluice_channel_connected",
            "Whether ZooKeeper answers this process.",
            value=self._channel.connected,
        )


def registry(channel: Announcer, collector: Collector) -> CollectorRegistry:
    """Return the metrics of a process: its own, its channel's, and those of every Python
    process.
    """
    # The creation times of histograms are of no use.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    metrics = CollectorRegistry()
    ProcessCollector(registry=metrics)
    metrics.register(_ChannelMetrics(channel))
    metrics.register(collector)
    return metrics


def _serve(channel: Announcer, exporter: Exporter, collector: Collector) -> None:
    try:
        server = _Server(channel, exporter)
    except OSError as error:
        log.warning(
            "the metrics server cannot start; the process continues without metrics",
            address=exporter.address,
            error=str(error),
        )
        return
    server.set_app(_app(channel, make_wsgi_app(registry(channel, collector))))
    log.info("metrics server started", url=f"http://{server.exporter.address}/metrics")
    server.serve_forever(LOOK_SECONDS)


def _app(channel: Announcer, metrics: Callable[..., Any]) -> Callable[..., Any]:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if environ["PATH_INFO"] != "/targets":
            return metrics(environ, start_response)
        try:
            status, body = "200 OK", json.dumps(targets(exporters(channel)))
        except (ChannelAwayError, ConflictError) as error:
            # After a 503, Prometheus keeps its last list.
            status, body = "503 Service Unavailable", json.dumps({"away": str(error)})
        start_response(status, [("Content-Type", "application/json")])
        return [body.encode()]

    return answer
