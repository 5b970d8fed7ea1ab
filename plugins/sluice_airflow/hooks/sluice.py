"""Connections from Airflow to a pipeline: one per task, and one shared by each long-lived process.

`SluiceHook` finds the pipeline: by an Airflow connection of the type `sluice`, or without one by
this process's environment (SLUICE_SITE, SLUICE_ENDPOINTS, SLUICE_HOME).
"""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from sluice_ops.channel import Channel, ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.ids import BATCH
from sluice_ops.model.status import ControllerStatus
from sluice_ops.model.tier import PublishedTier
from sluice_ops.planning.pipeline_drain import Measured
from sluice_ops.queries.figures import Figures, read_figures
from sluice_ops.queries.in_flight import measure
from sluice_ops.site import endpoints, project, site_file
from sluice_ops.site.site_file import SiteError

if TYPE_CHECKING:
    from sluice_ops.cloud.ec2 import Cloud

CONNECT_SECONDS = 10.0
"""How long a task waits for ZooKeeper before Airflow retries the task."""
SHARED_CONNECT_SECONDS = 3.0
"""How long the triggerer and the page wait for ZooKeeper; both ask again soon."""

# operators read the task's log: an opened connection is no news to them
logging.getLogger("kazoo").setLevel(logging.WARNING)


class ConnectionFieldError(ValueError):
    """An Airflow connection, or one of its fields, is missing or unusable; the message names it."""


class SluiceHook(BaseHook):
    """A pipeline's control channel, services and files."""

    conn_name_attr = "sluice_conn_id"
    conn_type = "sluice"
    hook_name = "Sluice"

    def __init__(self, sluice_conn_id: str | None = None) -> None:
        """Find the pipeline by this connection; None: by this process's environment."""
        super().__init__()
        self.sluice_conn_id = sluice_conn_id
        self._fields: dict[str, str] | None = None

    @property
    def site_path(self) -> Path:
        """The path of the site file."""
        return project.site_path() if self.sluice_conn_id is None else self._path("site")

    @property
    def endpoints_path(self) -> Path:
        """The path of the endpoints file."""
        return endpoints.file() if self.sluice_conn_id is None else self._path("endpoints")

    @property
    def home(self) -> Path:
        """The folder of alerts and of the list of published tiers."""
        if self.sluice_conn_id is None:
            return project.home()
        return self._path("home") if self._field("home") else self.endpoints_path.parent

    @property
    def dashboard(self) -> str | None:
        """The address of the pipeline's dashboard, if the connection has one."""
        return None if self.sluice_conn_id is None else self._field("dashboard")

    def site(self) -> site_file.Site:
        """Return the content of the site file."""
        return site_file.load(self.site_path)

    def endpoints(self) -> endpoints.Endpoints:
        """Return the content of the endpoints file."""
        return endpoints.load(None if self.sluice_conn_id is None else self.endpoints_path)

    def published(self) -> tuple[PublishedTier, ...]:
        """Return the published tiers that this version knows; none before the first publish."""
        tiers = []
        for tier in self._published():
            with suppress(ValueError):
                tiers.append(PublishedTier.model_validate(tier, extra="ignore"))
        return tuple(tiers)

    def _published(self) -> list[dict[str, Any]]:
        try:
            tiers = json.loads((self.home / "tiers.json").read_text())
        except (OSError, ValueError):
            return []
        return [tier for tier in tiers if isinstance(tier, dict)] if isinstance(tiers, list) else []

    def tiers(self) -> tuple[str, ...]:
        """Return the names of the published tiers, or else of the tiers with a share in the site
        file.
        """
        published = tuple(tier["name"] for tier in self._published() if "name" in tier)
        return published or tuple(name for name in self.site().shares if name != BATCH)

    def figures(self) -> Figures:
        """Return the figures in PostgreSQL. On an error, the result only has `missing`."""
        try:
            return read_figures(self.endpoints())
        except FileNotFoundError as error:
            return Figures(missing=str(error))

    def measured(self) -> Measured:
        """Return what PostgreSQL says about records between the tiers; on an error, only why."""
        try:
            return measure(self.endpoints())
        except FileNotFoundError as error:
            return Measured(missing=str(error))

    def cloud(self) -> "Cloud":
        """Return the pipeline's instances on EC2."""
        from sluice_ops.cloud.ec2 import Cloud  # noqa: PLC0415 - the DAG processor must not load boto3

        return Cloud(self.endpoints(), self.site().ec2)

    def channel(self) -> Channel:
        """Return an unconnected channel to the pipeline's ZooKeeper, with the operator's
        credential.
        """
        services = self.endpoints()
        return Channel(services.zookeeper, services.credential(Role.OPERATOR))

    @contextmanager
    def open(self) -> Iterator[Channel]:
        """Connect to the pipeline's control channel, and disconnect at the end."""
        channel = self.channel().start(seconds=CONNECT_SECONDS)
        try:
            yield channel
        finally:
            channel.stop()

    def test_connection(self) -> tuple[bool, str]:
        """Tell whether the pipeline answers to the operator, and in a sentence what was found.

        Airflow calls this for the connection form's button Test.
        """
        try:
            pipeline = self.site().pipeline
            self.endpoints().required_credential(Role.OPERATOR)
            with self.open() as channel:
                read = channel.read(paths.CONTROLLER_STATUS, ControllerStatus)
            figures = self.figures()
        except (ValueError, OSError, SiteError, ChannelAwayError) as error:
            return False, str(error)
        if read is None:
            return False, (
                "ZooKeeper answers, but no controller has written a status. Start a controller, and "
                "check that `zookeeper` in the endpoints file names the pipeline's own path"
            )
        if figures.missing is not None:
            return False, f"ZooKeeper answers, but {figures.missing}"
        tiers = ", ".join(sorted(read.value.tiers)) or "none yet"
        return True, f"Pipeline {pipeline}: controller {read.value.leader} leads. Tiers: {tiers}"

    def _path(self, field: str) -> Path:
        value = self._field(field)
        if not value:
            filled = ", ".join(sorted(key for key, given in (self._fields or {}).items() if given))
            message = (
                f"connection {self.sluice_conn_id}: the field {field!r} is empty; it is the path of a file "
                f"on Airflow's machines. The connection's extra has: {filled or 'nothing'}. "
                "Edit the connection in Airflow: Admin, Connections"
            )
            raise ConnectionFieldError(message)
        if not Path(value).is_absolute():
            message = (
                f"connection {self.sluice_conn_id}: the field {field!r} is {value!r}; it takes an absolute "
                "path, such as /etc/sluice/site.yaml"
            )
            raise ConnectionFieldError(message)
        return Path(value)

    def _field(self, name: str) -> str | None:
        if self._fields is None:
            try:
                connection = self.get_connection(str(self.sluice_conn_id))
            except AirflowNotFoundException as error:
                message = (
                    f"Airflow has no connection {self.sluice_conn_id!r}: add it with the type Sluice in "
                    "Airflow under Admin, Connections"
                )
                raise ConnectionFieldError(message) from error
            if connection.conn_type != self.conn_type:
                message = (
                    f"connection {self.sluice_conn_id} has the type {connection.conn_type!r}; "
                    "Sluice takes connections of the type 'sluice'"
                )
                raise ConnectionFieldError(message)
            self._fields = dict(connection.extra_dejson)
        value = self._fields.get(name)
        return str(value) if value else None


class SharedChannel:
    """The one connection of a long-lived process to a pipeline: the triggerer or the API server.

    The first caller connects, and later callers share the connection. kazoo reconnects by itself.
    If the first connection fails, the next caller tries again.
    """

    def __init__(self, hook: SluiceHook) -> None:
        """Connect later: many processes import this module, and few of them need the channel."""
        self._hook = hook
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._bells: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def get(self) -> Channel:
        """Return the connected channel; any thread may call this.

        Raise ChannelAwayError if ZooKeeper does not answer, or while another thread connects.
        """
        if self._channel is not None:
            return self._channel
        if not self._lock.acquire(blocking=False):
            message = "another thread is connecting to ZooKeeper"
            raise ChannelAwayError(message)
        try:
            if self._channel is None:
                channel = self._hook.channel()
                channel.on_wake(self._ring)
                self._channel = channel.start(seconds=SHARED_CONNECT_SECONDS)
            return self._channel
        finally:
            self._lock.release()

    def close(self) -> None:
        """Disconnect; the next caller connects again."""
        with self._lock:
            if self._channel is not None:
                self._channel.stop()
                self._channel = None

    def _ring(self) -> None:
        for bell, loop in list(self._bells.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(bell.set)

    @contextmanager
    def bell(self) -> Iterator[asyncio.Event]:
        """Yield an event of the running loop; it is set when a watched node or the connection
        changes.
        """
        bell = asyncio.Event()
        self._bells[bell] = asyncio.get_running_loop()
        try:
            yield bell
        finally:
            del self._bells[bell]


@cache
def shared_channel(sluice_conn_id: str | None) -> SharedChannel:
    """Return this process's connection to a pipeline."""
    return SharedChannel(SluiceHook(sluice_conn_id))
