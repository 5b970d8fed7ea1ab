"""Where everything of one installation is: folders, ports, secrets. Everything else in this package is told by this.

Two checkouts beside each other differ in their home and in SLUICE_PORT_BASE; nothing else is shared between them.
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
from sluice_ops.site import spark
from sluice_ops.site.files import write_private
from sluice_ops.site.installation import CHECKOUT, PlatformError

ADDRESS = "127.0.0.1"
DEFAULT_BASE = 27000
LOWEST_BASE = 1024
LONGEST_SOCKET_PATH = 107
"""What Linux allows for the path of a Unix socket, in bytes."""


@dataclass(frozen=True)
class Ports:
    """The fixed ports, counted from a base that SLUICE_PORT_BASE sets."""

    zookeeper: int
    kafka: int
    kafka_controller: int
    postgres: int
    spark: int
    spark_page: int
    ec2: int
    airflow: int
    metrics: int
    """The controller's, which tells Prometheus of all others."""

    @classmethod
    def above(cls, base: int) -> "Ports":
        """Count them from `base` + 1."""
        return cls(**{field.name: base + number for number, field in enumerate(fields(cls), start=1)})

    def named(self) -> dict[str, int]:
        """Return every port by what it is for."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _random() -> str:
    return secrets.token_urlsafe(18)


def _fernet() -> str:
    return urlsafe_b64encode(secrets.token_bytes(32)).decode()


class Secrets(Frozen):
    """Passwords and keys, made at random once for each home."""

    postgres: str = Field(default_factory=_random)
    """Of PostgreSQL's superuser, as whom `sluice up` makes the roles: no process has it."""
    airflow: str = Field(default_factory=_random)
    """The password of Airflow's user `admin`, for whoever installed the platform: no process has it."""
    airflow_operator: str = Field(default_factory=_random)
    """Of its user `operator`, who runs runbooks; `sluice up` un-pauses and triggers the tiers' as this one."""
    airflow_viewer: str = Field(default_factory=_random)
    spark: str = Field(default_factory=_random)
    """What Spark's master, workers and drivers prove to each other."""
    kafka: str = Field(default_factory=_random)
    """The password of Kafka's admin, who makes the users; no process of Sluice works as it."""
    airflow_jwt: str = Field(default_factory=_random)
    airflow_fernet: str = Field(default_factory=_fernet)


@dataclass(frozen=True)
class Layout:
    """One installation."""

    home: Path
    ports: Ports
    site: Path
    python: Path = Path(sys.executable)

    @property
    def conf(self) -> Path:
        """Generated configuration: written anew at each start."""
        return self.home / "conf"

    @property
    def data(self) -> Path:
        """What the services keep."""
        return self.home / "data"

    @property
    def logs(self) -> Path:
        """One log for each program."""
        return self.home / "logs"

    @property
    def archives(self) -> Path:
        """Class data of the JVMs, to start them sooner."""
        return self.home / "cds"

    @property
    def endpoints(self) -> Path:
        """What every process of Sluice reads."""
        return self.home / "endpoints.json"

    @property
    def credentials(self) -> Path:
        """Those of the channel's roles, a file for each."""
        return self.home / "credentials"

    @property
    def kafka_users(self) -> Path:
        """The passwords of Kafka's users, a file for each."""
        return self.home / "kafka-users"

    @property
    def postgres_users(self) -> Path:
        """The passwords of PostgreSQL's roles, a file for each."""
        return self.home / "postgres-users"

    @property
    def airflow(self) -> Path:
        """AIRFLOW_HOME."""
        return self.home / "airflow"

    @property
    def broker_jars(self) -> Path:
        """Kafka's broker."""
        return self.home / "jars" / "broker"

    @property
    def connector_jars(self) -> Path:
        """Spark's Kafka connector."""
        return self.home / "jars" / "connector"

    @property
    def packages(self) -> Path:
        """Where the environment's Python packages are."""
        return Path(sysconfig.get_path("purelib"))

    @property
    def spark_home(self) -> Path:
        """The pyspark of this environment."""
        return spark.home()

    @property
    def spark_jars(self) -> Path:
        """Spark's jars; ZooKeeper and Ivy are among them."""
        return self.spark_home / "jars"

    @property
    def socket(self) -> Path:
        """Supervisord's socket: in the home, or in the temporary folder where the home's path is too long for one."""
        path = self.home / "run" / "supervisor.sock"
        if len(os.fsencode(path)) + len(".12345678") <= LONGEST_SOCKET_PATH:
            return path
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"sluice-{digest}.sock"

    @property
    def pidfile(self) -> Path:
        """Supervisord's."""
        return self.home / "run" / "supervisord.pid"

    def make_folders(self) -> None:
        """Make what the programs expect; a full or read-only disk shows here first."""
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
            message = f"{self.home}: cannot be written ({error.strerror}): make room there, or set SLUICE_HOME to another folder"
            raise PlatformError(message) from error

    def secrets(self) -> Secrets:
        """Read the secrets, made at the first call."""
        path = self.home / "secrets.json"
        try:
            found = Secrets.model_validate_json(path.read_bytes()) if path.exists() else Secrets()
        except ValidationError as error:
            message = f"{path} is damaged: put a copy of it back; without one, `make clean` begins anew, and takes the data with it"
            raise PlatformError(message) from error
        if (
            not path.exists() or found.model_fields_set < Secrets.model_fields.keys()
        ):  # a new version has one more
            write_private(path, found.model_dump_json())
        return found


def home() -> Path:
    """Return SLUICE_HOME, or `.sluice` in the checkout."""
    return Path(os.environ.get("SLUICE_HOME", CHECKOUT / ".sluice")).resolve()


def port_base() -> int:
    """Return the base of the ports: SLUICE_PORT_BASE, or what this home has used before, or the default."""
    asked = os.environ.get("SLUICE_PORT_BASE")
    kept = home() / "port-base"
    if asked is None:
        said = kept.read_text().strip() if kept.exists() else str(DEFAULT_BASE)
        if not said.isdecimal():
            message = f"{kept} holds no number: write there what SLUICE_PORT_BASE was, or remove it for {DEFAULT_BASE}"
            raise PlatformError(message)
        return int(said)
    highest = 65535 - len(fields(Ports))
    if not asked.isdecimal() or not LOWEST_BASE <= int(asked) <= highest:
        message = f"SLUICE_PORT_BASE={asked}: must be a number from {LOWEST_BASE} to {highest}; the {len(fields(Ports))} ports above it are used"
        raise PlatformError(message)
    return int(asked)


def layout() -> Layout:
    """Return this installation: SLUICE_HOME, SLUICE_PORT_BASE and SLUICE_SITE say where, with defaults in the checkout."""
    site = Path(os.environ.get("SLUICE_SITE", CHECKOUT / "site.yaml")).resolve()
    return Layout(home=home(), ports=Ports.above(port_base()), site=site)
