"""The folders, ports and secrets of one installation of the embedded platform.

Two installations on a machine differ in their home and in SLUICE_PORT_BASE, and share nothing.
"""

import hashlib
import os
import secrets
import sys
import sysconfig
import tempfile
from base64 import urlsafe_b64encode
from dataclasses import dataclass, fields
from pathlib import Path

from pydantic import Field, ValidationError

from sluice_ops.model.resources import Frozen
from sluice_ops.site import project, spark
from sluice_ops.site.files import write_private
from sluice_ops.site.installation import PlatformError

ADDRESS = "127.0.0.1"
DEFAULT_BASE = 27000
LOWEST_BASE = 1024
LONGEST_SOCKET_PATH = 107
"""Linux's limit for the path of a Unix socket, in bytes."""


@dataclass(frozen=True)
class Ports:
    """The fixed ports, counted from SLUICE_PORT_BASE."""

    zookeeper: int
    kafka: int
    kafka_controller: int
    postgres: int
    spark: int
    spark_page: int
    ec2: int
    airflow: int
    metrics: int
    """The controller's port, which gives Prometheus the addresses of all other metrics."""

    @classmethod
    def above(cls, base: int) -> "Ports":
        """Return the ports that begin at `base` + 1."""
        return cls(**{field.name: base + number for number, field in enumerate(fields(cls), start=1)})

    def named(self) -> dict[str, int]:
        """Return the name and number of every port."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _random() -> str:
    return secrets.token_urlsafe(18)


def _fernet() -> str:
    return urlsafe_b64encode(secrets.token_bytes(32)).decode()


class Secrets(Frozen):
    """Random passwords and keys, created once for each home."""

    postgres: str = Field(default_factory=_random)
    """The password of PostgreSQL's superuser, with which `sluice up` creates the roles.

    No running process has it.
    """
    airflow: str = Field(default_factory=_random)
    """The password of Airflow's user `admin`, for the person who installed the platform."""
    airflow_operator: str = Field(default_factory=_random)
    """The password of Airflow's user `operator`, who runs runbooks.

    `sluice up` unpauses and triggers the tiers' DAGs as this user.
    """
    airflow_viewer: str = Field(default_factory=_random)
    spark: str = Field(default_factory=_random)
    """The secret with which Spark's master, workers and drivers authenticate."""
    kafka: str = Field(default_factory=_random)
    """The password of Kafka's admin, who creates the users; no process of Sluice is this user."""
    airflow_jwt: str = Field(default_factory=_random)
    airflow_fernet: str = Field(default_factory=_fernet)


@dataclass(frozen=True)
class Layout:
    """One installation: `home` contains everything except the site file and the Python."""

    home: Path
    ports: Ports
    site: Path
    python: Path = Path(sys.executable)

    @property
    def conf(self) -> Path:
        """Configuration files of the services; each start writes them again."""
        return self.home / "conf"

    @property
    def data(self) -> Path:
        """The data folders of the services."""
        return self.home / "data"

    @property
    def logs(self) -> Path:
        """One log file for each program."""
        return self.home / "logs"

    @property
    def archives(self) -> Path:
        """AOT caches, from which JVMs start faster."""
        return self.home / "cds"

    @property
    def endpoints(self) -> Path:
        """The endpoints file, which every process of Sluice reads."""
        return self.home / "endpoints.json"

    @property
    def credentials(self) -> Path:
        """A password file for each role of the channel."""
        return self.home / "credentials"

    @property
    def kafka_users(self) -> Path:
        """A password file for each user of Kafka."""
        return self.home / "kafka-users"

    @property
    def postgres_users(self) -> Path:
        """A password file for each role of PostgreSQL."""
        return self.home / "postgres-users"

    @property
    def airflow(self) -> Path:
        """The AIRFLOW_HOME."""
        return self.home / "airflow"

    @property
    def broker_jars(self) -> Path:
        """The jars of Kafka's broker."""
        return self.home / "jars" / "broker"

    @property
    def packages(self) -> Path:
        """The environment's folder of Python packages."""
        return Path(sysconfig.get_path("purelib"))

    @property
    def spark_home(self) -> Path:
        """The folder of the installed pyspark."""
        return spark.home()

    @property
    def spark_jars(self) -> Path:
        """Spark's jars, which include ZooKeeper and Ivy."""
        return self.spark_home / "jars"

    @property
    def socket(self) -> Path:
        """Supervisord's socket: in the home, or in the temporary folder if the path is too long."""
        path = self.home / "run" / "supervisor.sock"
        if len(os.fsencode(path)) + len(".12345678") <= LONGEST_SOCKET_PATH:
            return path
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"sluice-{digest}.sock"

    @property
    def pidfile(self) -> Path:
        """Supervisord's pid file."""
        return self.home / "run" / "supervisord.pid"

    def make_folders(self) -> None:
        """Create the folders of the programs; PlatformError if the disk is full or read-only."""
        try:
            for folder in (
                self.conf,
                self.data,
                self.logs,
                self.archives,
                self.airflow,
                self.home / "run",
                self.home / "hosts",
            ):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = (
                f"cannot write to {self.home} ({error.strerror}): "
                "make room there, or set SLUICE_HOME to another folder"
            )
            raise PlatformError(message) from error

    def secrets(self) -> Secrets:
        """Return the secrets; the first call creates them. PlatformError if the file is damaged."""
        path = self.home / "secrets.json"
        try:
            secrets = Secrets.model_validate_json(path.read_bytes()) if path.exists() else Secrets()
        except ValidationError as error:
            message = (
                f"{path} is damaged: restore it from a backup; "
                "without a backup, `sluice clean` starts over, and deletes all data"
            )
            raise PlatformError(message) from error
        # a newer version of Sluice may have more secrets
        if not path.exists() or secrets.model_fields_set < Secrets.model_fields.keys():
            write_private(path, secrets.model_dump_json())
        return secrets


def port_base() -> int:
    """Return the base of the ports: SLUICE_PORT_BASE, or the home's last base, or the default."""
    requested = os.environ.get("SLUICE_PORT_BASE")
    file = project.home() / "port-base"
    if requested is None:
        last = file.read_text().strip() if file.exists() else str(DEFAULT_BASE)
        if not last.isdecimal():
            message = (
                f"{file} does not contain a number: write the last SLUICE_PORT_BASE into it, "
                f"or remove the file to use {DEFAULT_BASE}"
            )
            raise PlatformError(message)
        return int(last)
    count = len(fields(Ports))
    highest = 65535 - count
    if not requested.isdecimal() or not LOWEST_BASE <= int(requested) <= highest:
        message = (
            f"SLUICE_PORT_BASE={requested} is not a number from {LOWEST_BASE} to {highest}: "
            f"choose another; the platform uses the {count} ports above it"
        )
        raise PlatformError(message)
    return int(requested)


def current_layout() -> Layout:
    """Return this installation, from SLUICE_HOME, SLUICE_PORT_BASE and SLUICE_SITE or defaults."""
    return Layout(home=project.home(), ports=Ports.above(port_base()), site=project.site_path())
