"""`python -m sluice_ops.local.compose JOB`: the jobs and health checks of docker-compose.yaml.

Each service has its own volume at /etc/sluice, with the endpoints file and the credentials of its
roles. The job `keys` fills all volumes and keeps existing passwords, so a second start uses the
same ones. `services` prepares Kafka, ZooKeeper and PostgreSQL; `tiers` starts the tiers.
"""

import argparse
import json
import os
import sys
import threading
import urllib.error
import urllib.request
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from confluent_kafka.admin import AdminClient

from sluice_ops.channel import Channel, ChannelAwayError, access_lists
from sluice_ops.local import fetch_jars, first_record
from sluice_ops.local.layout import Layout, Ports
from sluice_ops.local.parts import fetch_step, in_a_bucket, pipeline_name
from sluice_ops.local.services import airflow, kafka_users, zookeeper
from sluice_ops.model.access import KEPT, Role
from sluice_ops.model.database import AIRFLOW, WORKERS
from sluice_ops.model.kafka_access import User
from sluice_ops.model.spark import SPARK_SECURITY
from sluice_ops.process import metrics_server
from sluice_ops.site import credentials, database_roles, jars, project
from sluice_ops.site.brokers import brokers, with_user
from sluice_ops.site.endpoints import AirflowEndpoint, Endpoints, load
from sluice_ops.site.files import write_private
from sluice_ops.site.installation import PlatformError

KEYS = Path("/keys")
HERE = Path("/etc/sluice")
"""The mount point of a service's own folder of `KEYS`."""
SHIPPED = Path("/opt/sluice/shipped")
"""The home that the image was built with; it contains the jars."""
PASSWORDS = "airflow-passwords.json"
KAFKAS_USER = 1000
"""The numeric user of the broker's image."""


@dataclass(frozen=True)
class Holder:
    """The credentials of one kind of service."""

    roles: tuple[Role, ...] = ()
    """Roles in ZooKeeper."""
    users: tuple[User, ...] = ()
    """Users of Kafka."""
    databases: tuple[Role, ...] = ()
    """Roles in PostgreSQL."""


HOLDERS = {
    "admin": Holder(KEPT, tuple(User), WORKERS),
    "airflow": Holder((Role.OPERATOR,), (User.OPERATOR,), (Role.OPERATOR,)),
    "controller": Holder((Role.CONTROLLER,)),
    "hosts": Holder((Role.AGENT, Role.DRIVER), (User.DRIVER,), (Role.DRIVER,)),
    "outside": Holder((Role.SOURCE,), (User.OUTSIDE,)),
    "publisher": Holder(
        (Role.PUBLISHER, Role.AUDIT), (User.PUBLISHER, User.AUDIT), (Role.PUBLISHER, Role.AUDIT)
    ),
}
"""Volume → its credentials. Only the jobs `keys` and `services` mount the volume `admin`."""


def installation(folder: Path) -> Layout:
    """Return the installation with its secrets in `folder`; it uses no ports of this machine."""
    return Layout(home=folder, ports=Ports.above(0), site=project.site_path())


def endpoints(admin: Layout) -> Endpoints:
    """Return the endpoints file, the same for every service; `HERE` differs by service."""
    keys = admin.secrets()
    made = credentials.make(admin.credentials)
    return Endpoints(
        kafka=f"sasl://kafka:9092?users={HERE / 'kafka-users'}",
        zookeeper=f"zookeeper:2181/sluice/{pipeline_name(admin)}",
        postgres=f"postgresql://postgres:5432/sluice?users={HERE / 'postgres-users'}",
        airflow=AirflowEndpoint(url="http://airflow-api:8080"),
        spark="spark://spark-1:7077,spark-2:7077",
        home=project.home(),
        access=made.model_copy(update={"credentials": HERE / "credentials"}),
        spark_secret=keys.spark,
    )


def make_keys(root: Path = KEYS) -> None:
    """Create the missing passwords, and copy to each service's volume the ones it needs."""
    admin = installation(root / "admin")
    kafka_users.address(admin)
    database_roles.make_passwords(admin.postgres_users)
    text = json.dumps(json.loads(endpoints(admin).model_dump_json()), indent=2)
    for name, holder in HOLDERS.items():
        write_private(root / name / "endpoints.json", text)
        for role in holder.roles:
            write_private(root / name / "credentials" / role, (admin.credentials / role).read_text())
        for user in holder.users:
            file = f"{user}.properties"
            write_private(root / name / "kafka-users" / file, (admin.kafka_users / file).read_text())
        for role in holder.databases:
            write_private(root / name / "postgres-users" / role, (admin.postgres_users / role).read_text())
    keys = admin.secrets()
    write_private(root / "postgres" / "password", keys.postgres)
    spark = {**SPARK_SECURITY, "spark.authenticate.secret": keys.spark}
    write_private(root / "spark" / "spark.conf", "".join(f"{key} {value}\n" for key, value in spark.items()))
    _keys_of_airflow(root / "airflow", admin)
    _keys_of_kafka(root / "kafka", admin)


def _keys_of_airflow(folder: Path, admin: Layout) -> None:
    keys = admin.secrets()
    database = f"{AIRFLOW}:{database_roles.password(admin.postgres_users, AIRFLOW)}@postgres:5432/{AIRFLOW}"
    settings = {
        "DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{database}",
        "DATABASE__SQL_ALCHEMY_CONN_ASYNC": f"postgresql+asyncpg://{database}",
        "CORE__FERNET_KEY": keys.airflow_fernet,
        "API__SECRET_KEY": keys.airflow_jwt,
        "API_AUTH__JWT_SECRET": keys.airflow_jwt,
    }
    write_private(
        folder / "airflow.env", "".join(f"AIRFLOW__{key}='{value}'\n" for key, value in settings.items())
    )
    write_private(folder / PASSWORDS, json.dumps(airflow.passwords(admin)))


def _keys_of_kafka(folder: Path, admin: Layout) -> None:
    shipped = (admin.site.parent / "kafka.properties").read_text()
    write_private(folder / "kafka.properties", shipped + kafka_users.settings(admin))
    cluster = folder / "cluster-id"
    if not cluster.exists():
        write_private(cluster, urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "a"))
    if os.geteuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, KAFKAS_USER, KAFKAS_USER)


def prepare_services() -> None:
    """Create Kafka's users, the channel with its access lists, databases, and the jars.

    The services must answer already.
    """
    admin, addresses = installation(HERE), load()
    passwords = {user: brokers(with_user(addresses.kafka, user)).client["sasl.password"] for user in User}
    admin_settings = {**kafka_users.admin(admin), "bootstrap.servers": brokers(addresses.kafka).servers}
    kafka_users.create(AdminClient(admin_settings), passwords)
    servers, _, chroot = addresses.zookeeper.partition("/")
    zookeeper.make_chroot(servers, f"/{chroot}")
    with Channel(addresses.zookeeper, addresses.required_credential(Role.ADMIN)) as channel:
        access_lists.apply(channel.kazoo)
    superuser = f"postgresql://sluice:{admin.secrets().postgres}@postgres:5432/postgres"
    with psycopg.connect(superuser, autocommit=True) as link:
        # no role of Sluice needs these databases
        link.execute("revoke connect on database postgres, template1 from public")
    database_roles.make(superuser, admin.postgres_users)
    _install_jars(installation(project.home()))


def _install_jars(shared: Layout) -> None:
    """Install the jars of this image in the shared home, and remove those of older images."""
    locked = jars.needed(jars.locked(jars.LOCK.read_text()), buckets=in_a_bucket(shared))
    shared.make_folders()
    if jars.faulty(locked, shared.home):
        fetch_jars.borrow(locked, SHIPPED, shared.home)
    fetch_step(shared).act(threading.Event())
    fetch_jars.remove_others(locked, shared.home)


def start_tiers() -> None:
    """Trigger the Airflow DAG of each published tier, unless somebody stopped the tier.

    The DAG starts the tier.
    """
    password = json.loads((HERE / PASSWORDS).read_text())["operator"]
    first_record.supervise(load(), password, threading.Event())


def is_registered(role: Role, host: str | None) -> bool:
    """Return True if a process of this role, and of this host if given, serves metrics.

    The process has a session in ZooKeeper, too.
    """
    with Channel(load().zookeeper) as channel:
        exporters = metrics_server.exporters(channel)
        return any((exporter.role, exporter.host) == (role, host) for exporter in exporters)


def is_healthy(part: str) -> bool:
    """Return True if Airflow's health page reports the part as healthy."""
    url = f"{load().airflow.url}/api/v2/monitor/health"
    with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - from the endpoints file
        return bool(json.load(response)[part]["status"] == "healthy")


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Exit with one line instead of a traceback if a service is away; compose retries the job."""
    try:
        yield
    except (PlatformError, ChannelAwayError, psycopg.Error, urllib.error.URLError, TimeoutError) as error:
        sys.exit(f"{error}")


def main(words: list[str] | None = None) -> int:
    """Run one job or one health check; return 1 if the service is not healthy."""
    parser = argparse.ArgumentParser(prog="python -m sluice_ops.local.compose", description=__doc__)
    jobs = parser.add_subparsers(dest="job", required=True)
    for name in ("keys", "services", "tiers"):
        jobs.add_parser(name)
    registered = jobs.add_parser("registered")
    registered.add_argument("role", type=Role)
    registered.add_argument("host", nargs="?")
    jobs.add_parser("healthy").add_argument("part")
    chosen = parser.parse_args(words)
    with _one_line_errors():
        match chosen.job:
            case "keys":
                make_keys()
            case "services":
                prepare_services()
            case "tiers":
                start_tiers()
            case "registered":
                return 0 if is_registered(chosen.role, chosen.host) else 1
            case "healthy":
                return 0 if is_healthy(chosen.part) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
