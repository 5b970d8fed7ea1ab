"""The endpoints file: the addresses of all services, and the folder of this machine's credentials.

Every process reads it. The embedded platform writes it; a site writes its own. `SLUICE_ENDPOINTS`
names the file; the default is `endpoints.json` in `SLUICE_HOME`.
"""

import os
import re
from pathlib import Path
from typing import Annotated

from kazoo.hosts import collect_hosts
from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from sluice_ops.model.access import Credential, Role, Tls, id_of
from sluice_ops.model.kafka_access import User
from sluice_ops.model.resources import Frozen
from sluice_ops.model.spark import SPARK_SECURITY
from sluice_ops.site import database, project
from sluice_ops.site.brokers import OTHERS, BrokersError, brokers, with_user
from sluice_ops.site.validation_errors import explain


class EndpointsError(ValueError):
    """The endpoints file or an address is unusable; the message names the key and the cause."""


class AirflowEndpoint(Frozen):
    """Airflow's API server.

    Readers of this file never log in to Airflow. Keys of earlier versions (`user`, `password`) are
    ignored.
    """

    model_config = ConfigDict(extra="ignore")

    url: str


class Access(Frozen):
    """The roles of the channel; `sluice access --make` writes this key."""

    credentials: Path
    """A folder with a password file for each role of this machine's processes."""
    roles: dict[Role, str]
    """The identity of each role in ZooKeeper's access lists."""
    tls: Tls | None = None
    """The certificates for ZooKeeper with TLS; `zookeeper` then names the secure port.

    None: no TLS.
    """

    def credential(self, role: Role) -> Credential:
        """Return a role's credential, without a password if this process cannot read the file.

        EndpointsError if other users can read the file, or if its password is not the role's.
        """
        file = self.credentials / role
        try:
            password = file.read_text().strip()
            mode = file.stat().st_mode
        except (FileNotFoundError, PermissionError):
            return Credential(role, str(self.credentials), self.roles, tls=self.tls)
        if mode & OTHERS:
            message = f"every user of this machine can read {file}; run: chmod o= {file}"
            raise EndpointsError(message)
        if self.roles.get(role) != id_of(role, password):
            message = (
                f"the password in {file} is not the one of {role} in the endpoints file: copy both files "
                "from the machine on which `sluice access --make` was run"
            )
            raise EndpointsError(message)
        return Credential(role, str(self.credentials), self.roles, password, self.tls)


def _check_kafka(kafka: str) -> str:
    brokers(kafka)
    return kafka


def check_zookeeper(zookeeper: str) -> str:
    """Return an address of ZooKeeper; EndpointsError if it is none."""
    try:
        servers, _ = collect_hosts(zookeeper)
    except ValueError:
        servers = []
    if not all(host for host, _ in servers) or not servers:
        message = (
            f"{zookeeper!r} is not an address of ZooKeeper: write it like z1:2181,z2:2181,z3:2181/sluice/hits"
        )
        raise EndpointsError(message)
    return zookeeper


def _check_postgres(url: str) -> str:
    if not re.match(r"postgres(ql)?://\S", url):
        # the message leaves the value out: it may contain a password
        message = (
            "this is not an address of PostgreSQL: write it like postgresql://HOST:5432/sluice?users=FOLDER"
        )
        raise EndpointsError(message)
    try:
        database.users_of(url)
    except database.DatabaseError as error:
        raise EndpointsError(str(error)) from error
    return url


class Endpoints(Frozen):
    """The content of the endpoints file."""

    kafka: Annotated[str, AfterValidator(_check_kafka)]
    """`host:port`, several with commas; `ops/sluice_ops/site/brokers.py` describes TLS and users.

    `kafka_as` adds the user.
    """
    zookeeper: Annotated[str, AfterValidator(check_zookeeper)]
    """`host:port/chroot`, several servers with commas."""
    postgres: Annotated[str, AfterValidator(_check_postgres)]
    """A URL as `ops/sluice_ops/site/database.py` describes. `postgres_as` adds the role."""
    airflow: AirflowEndpoint
    spark: str
    """`spark://host:port`."""
    ec2: str | None = None
    """The EC2 endpoint; None: the region's own."""
    home: Path
    """The folder that all hosts share; checkpoints and the archive are below it."""
    access: Access | None = None
    """The roles and their rights in the channel. None: every process may write everything."""
    spark_secret: str | None = Field(default=None, repr=False)
    """The secret with which Spark's master, workers and drivers authenticate and encrypt.

    None: they do neither.
    """

    @property
    def spark_settings(self) -> dict[str, str]:
        """The settings with which master and workers accept an application; they hold the
        secret.
        """
        return (
            {}
            if self.spark_secret is None
            else {**SPARK_SECURITY, "spark.authenticate.secret": self.spark_secret}
        )

    @property
    def certificates(self) -> tuple[str, ...]:
        """The files with certificates for ZooKeeper, Kafka and PostgreSQL."""
        tls, kafka = None if self.access is None else self.access.tls, brokers(self.kafka)
        named = [] if tls is None else [tls.ca, tls.certificate]
        named += [kafka.ca, kafka.certificate, *database.certificates_of(self.postgres)]
        return tuple(dict.fromkeys(file for file in named if file))

    def kafka_as(self, user: User) -> str:
        """Return Kafka's address for a user; EndpointsError if the password file is unusable."""
        address = with_user(self.kafka, user)
        try:
            brokers(address).client  # noqa: B018 — fail now rather than at the first connection
        except BrokersError as error:
            raise EndpointsError(str(error)) from error
        return address

    def postgres_as(self, role: Role) -> str:
        """Return PostgreSQL's address for a role; EndpointsError if the password file is
        unusable.
        """
        try:
            return database.with_role(self.postgres, role)
        except database.DatabaseError as error:
            raise EndpointsError(str(error)) from error

    def credential(self, role: Role) -> Credential | None:
        """Return a role's credential, without a password if its file is missing.

        None if the channel has no roles.
        """
        if self.access is None:
            return None
        refuse_unreadable(self.access.tls)
        return self.access.credential(role)

    def required_credential(self, role: Role) -> Credential | None:
        """Return a role's credential; EndpointsError if its password is missing.

        None if the channel has no roles.
        """
        credential = self.credential(role)
        if credential is not None and credential.password is None:
            message = (
                f"{credential.folder}/{role} does not exist, or user {os.geteuid()} cannot read it: copy "
                f"the credential of {role} from the machine on which `sluice access --make` was run"
            )
            raise EndpointsError(message)
        return credential


def refuse_unreadable(tls: Tls | None) -> None:
    """Raise EndpointsError if a file of TLS is unreadable.

    Without this check, a connection would only report that ZooKeeper does not answer.
    """
    for key, path in (
        {} if tls is None else {"ca": tls.ca, "certificate": tls.certificate, "key": tls.key}
    ).items():
        if path is not None and not os.access(path, os.R_OK):
            message = (
                f"access.tls.{key}: {path} does not exist, or user {os.geteuid()} cannot read it: "
                "copy the file there, or correct the path"
            )
            raise EndpointsError(message)


def file() -> Path:
    """Return the path of the endpoints file.

    `SLUICE_ENDPOINTS` names it; the default is `endpoints.json` in the home.
    """
    return Path(os.environ.get("SLUICE_ENDPOINTS", project.home() / "endpoints.json")).resolve()


def load(path: Path | None = None) -> Endpoints:
    """Read an endpoints file, by default this process's own.

    FileNotFoundError or EndpointsError if it is missing or unusable.
    """
    own = path is None
    path = path or file()
    try:
        return Endpoints.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        message = (
            f"{path} does not exist: start the platform with `sluice up` in the folder of a project, "
            "or name the site's endpoints file in SLUICE_ENDPOINTS"
            if own
            else f"{path} does not exist: copy the site's endpoints file to this machine"
        )
        raise FileNotFoundError(message) from error
    except ValidationError as error:
        raise EndpointsError("\n".join(f"{path}: {line}" for line in explain(error, Endpoints))) from error
    except OSError as error:
        message = (
            f"user {os.geteuid()} cannot read {path}: {error.strerror}; make the file readable for this user"
        )
        raise EndpointsError(message) from error
