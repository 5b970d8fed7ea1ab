"""Where the services are: one file, written by the embedded platform or by the site, read by every process.

`SLUICE_ENDPOINTS` names it; without that it is `endpoints.json` in `SLUICE_HOME`. It names the folder with the credentials of
this machine's processes in the channel.
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
from sluice_ops.site import database
from sluice_ops.site.brokers import OTHERS, BrokersError, brokers, signed
from sluice_ops.site.validation_errors import explain


class EndpointsError(ValueError):
    """The endpoints file, or an address, cannot be used; the message says which and why."""


class AirflowEndpoint(Frozen):
    """Airflow's API server. Nothing that reads this file logs in there; keys of earlier versions (`user`, `password`) are passed over."""

    model_config = ConfigDict(extra="ignore")

    url: str


class Access(Frozen):
    """The roles of the channel; `sluice access --make` writes it."""

    credentials: Path
    """A folder with a file for each role that processes of this machine have: its password."""
    roles: dict[Role, str]
    """How access lists know each role."""
    tls: Tls | None = None
    """Where ZooKeeper serves with TLS: its port in `zookeeper` is the secure one then. None: it is spoken to in the clear."""

    def credential(self, role: Role) -> Credential:
        """Read the credential of a role, with or without the password."""
        kept = self.credentials / role
        try:
            password = kept.read_text().strip()
            mode = kept.stat().st_mode
        except (FileNotFoundError, PermissionError):
            return Credential(role, str(self.credentials), self.roles, tls=self.tls)
        if mode & OTHERS:
            message = f"{kept} can be read by everybody on this machine: chmod o= {kept}"
            raise EndpointsError(message)
        if self.roles.get(role) != id_of(role, password):
            message = (
                f"{kept} is not the credential that the endpoints file knows for {role}: "
                "copy both from where `sluice access --make` was run"
            )
            raise EndpointsError(message)
        return Credential(role, str(self.credentials), self.roles, password, self.tls)


def _checked(kafka: str) -> str:
    brokers(kafka)
    return kafka


def ensemble(zookeeper: str) -> str:
    """Check an address of ZooKeeper."""
    try:
        servers, _ = collect_hosts(zookeeper)
    except ValueError:
        servers = []
    if not all(host for host, _ in servers) or not servers:
        message = (
            f"{zookeeper!r} is no address of ZooKeeper: write it like z1:2181,z2:2181,z3:2181/sluice/hits"
        )
        raise EndpointsError(message)
    return zookeeper


def _of_postgres(url: str) -> str:
    if not re.match(r"postgres(ql)?://\S", url):
        message = (
            "write it like postgresql://HOST:5432/sluice?users=FOLDER"  # what was written may hold a password
        )
        raise EndpointsError(message)
    try:
        database.users_of(url)
    except database.DatabaseError as error:
        raise EndpointsError(str(error)) from error
    return url


class Endpoints(Frozen):
    """Addresses of everything that Sluice talks to."""

    kafka: Annotated[str, AfterValidator(_checked)]
    """`host:port`, several with commas; with TLS and users as `ops/sluice_ops/site/brokers.py` says. Who asks is added by `kafka_as`."""
    zookeeper: Annotated[str, AfterValidator(ensemble)]
    """`host:port/chroot`, several servers with commas."""
    postgres: Annotated[str, AfterValidator(_of_postgres)]
    """A URL as `ops/sluice_ops/site/database.py` says. Who asks is added by `postgres_as`."""
    airflow: AirflowEndpoint
    spark: str
    """`spark://host:port`."""
    ec2: str | None = None
    """The EC2 endpoint; None for the cloud's own."""
    home: Path
    """A folder that all hosts share: checkpoints and the archive are below it."""
    access: Access | None = None
    """Who may write what in the channel; None: everybody everything."""
    spark_secret: str | None = Field(default=None, repr=False)
    """What the Spark master, workers and drivers prove to each other, and encrypt what they say with. None: they do neither."""

    @property
    def spark_settings(self) -> dict[str, str]:
        """Return what an application has to say so that master and workers take it: the secret is in it."""
        return (
            {}
            if self.spark_secret is None
            else {**SPARK_SECURITY, "spark.authenticate.secret": self.spark_secret}
        )

    def kafka_as(self, user: User) -> str:
        """Return Kafka's address for one of its users; EndpointsError where the user's password is not here."""
        address = signed(self.kafka, user)
        try:
            brokers(address).client  # noqa: B018 — to say it now, and not in the midst of work
        except BrokersError as error:
            raise EndpointsError(str(error)) from error
        return address

    def postgres_as(self, role: Role) -> str:
        """Return PostgreSQL's address for one of its roles; EndpointsError where the role's password is not here."""
        try:
            return database.signed(self.postgres, role)
        except database.DatabaseError as error:
            raise EndpointsError(str(error)) from error

    def credential(self, role: Role) -> Credential | None:
        """Return what proves a role in the channel, as far as it is here; None in a channel that is open to all."""
        if self.access is None:
            return None
        refuse_unreadable(self.access.tls)
        return self.access.credential(role)

    def needed(self, role: Role) -> Credential | None:
        """Return it for a process that is of no use without; EndpointsError where there is none."""
        found = self.credential(role)
        if found is not None and found.password is None:
            message = (
                f"{found.folder}/{role} is not there, or not for user {os.geteuid()}: "
                f"copy the credential of {role} there from where `sluice access --make` was run"
            )
            raise EndpointsError(message)
        return found


def refuse_unreadable(tls: Tls | None) -> None:
    """Name a file of TLS that is not to be read here: of the attempt to speak without it, all that is heard is that nobody answers."""
    for key, kept in (
        {} if tls is None else {"ca": tls.ca, "certificate": tls.certificate, "key": tls.key}
    ).items():
        if kept is not None and not os.access(kept, os.R_OK):
            message = f"access.tls.{key}: {kept} is not there, or not for user {os.geteuid()}: copy it there, or correct the path"
            raise EndpointsError(message)


def home() -> Path:
    """Where everything of this installation lives."""
    return Path(os.environ.get("SLUICE_HOME", ".sluice")).resolve()


def file() -> Path:
    """Where the endpoints file is."""
    return Path(os.environ.get("SLUICE_ENDPOINTS", home() / "endpoints.json")).resolve()


def load() -> Endpoints:
    """Read the endpoints file; FileNotFoundError says what to do."""
    path = file()
    try:
        return Endpoints.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        message = f"{path} does not exist: start the platform with `make up`, or name the site's file in SLUICE_ENDPOINTS"
        raise FileNotFoundError(message) from error
    except ValidationError as error:
        raise EndpointsError("\n".join(f"{path}: {line}" for line in explain(error, Endpoints))) from error
    except OSError as error:
        message = f"{path} cannot be read by user {os.geteuid()}: {error.strerror}"
        raise EndpointsError(message) from error
