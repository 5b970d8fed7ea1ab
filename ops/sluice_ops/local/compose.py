"""What docker-compose.yaml runs once at each start, and asks for health: `python -m sluice_ops.local.compose keys|services|tiers|…`.

Each service has a volume of its own at /etc/sluice, with the endpoints file and the credentials of its role. `keys` fills them all:
what is there stays, so that a second start finds the same passwords.
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
from sluice_ops.site import credentials, database_roles, jars
from sluice_ops.site.brokers import brokers, with_user
from sluice_ops.site.endpoints import AirflowEndpoint, Endpoints, home, load
from sluice_ops.site.files import write_private
from sluice_ops.site.installation import CHECKOUT, PlatformError

KEYS = Path("/keys")
HERE = Path("/etc/sluice")
"""Where each service finds its own folder of `KEYS`."""
SHIPPED = CHECKOUT / "shipped"
"""The home that the image was made with: its jars are below."""
PASSWORDS = "airflow-passwords.json"
KAFKAS_USER = 1000
"""As whom the broker's image runs."""


@dataclass(frozen=True)
class Holder:
    """What one kind of service may prove."""

    roles: tuple[Role, ...] = ()
    users: tuple[User, ...] = ()
    databases: tuple[Role, ...] = ()
    """As whom it works in PostgreSQL."""


HOLDERS = {
    "admin": Holder(KEPT, tuple(User), WORKERS),
    "airflow": Holder((Role.OPERATOR,), (User.OPERATOR,), (Role.OPERATOR,)),
    "controller": Holder((Role.CONTROLLER,)),
    "hosts": Holder((Role.AGENT, Role.DRIVER), (User.DRIVER,), (Role.DRIVER,)),
    "outside": Holder((), (User.OUTSIDE,)),
    "publisher": Holder(
        (Role.PUBLISHER, Role.AUDIT), (User.PUBLISHER, User.AUDIT), (Role.PUBLISHER, Role.AUDIT)
    ),
}
"""Volume → what is in it; only the jobs `keys` and `services` have the admin's."""


def installation(folder: Path) -> Layout:
    """Return the installation whose secrets are in a folder; it has no ports on this machine."""
    return Layout(home=folder, ports=Ports.above(0), site=Path(os.environ["SLUICE_SITE"]))


def endpoints(admin: Layout) -> Endpoints:
    """Return the addresses, the same for every service; what it may prove there is up to its own folder."""
    keys = admin.secrets()
    made = credentials.make(admin.credentials)
    return Endpoints(
        kafka=f"sasl://kafka:9092?users={HERE / 'kafka-users'}",
        zookeeper=f"zookeeper:2181/sluice/{pipeline_name(admin)}",
        postgres=f"postgresql://postgres:5432/sluice?users={HERE / 'postgres-users'}",
        airflow=AirflowEndpoint(url="http://airflow-api:8080"),
        spark="spark://spark-1:7077,spark-2:7077",
        home=home(),
        access=made.model_copy(update={"credentials": HERE / "credentials"}),
        spark_secret=keys.spark,
    )


def make_keys(root: Path = KEYS) -> None:
    """Make all passwords that are not there, and give each service its own."""
    admin = installation(root / "admin")
    kafka_users.address(admin)
    database_roles.make_passwords(admin.postgres_users)
    text = json.dumps(json.loads(endpoints(admin).model_dump_json()), indent=2)
    for name, holder in HOLDERS.items():
        write_private(root / name / "endpoints.json", text)
        for role in holder.roles:
            write_private(root / name / "credentials" / role, (admin.credentials / role).read_text())
        for user in holder.users:
            kept = f"{user}.properties"
            write_private(root / name / "kafka-users" / kept, (admin.kafka_users / kept).read_text())
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
    """Make what the services need of each other once they answer: Kafka's users, the channel with its access lists, databases, jars."""
    admin, where = installation(HERE), load()
    passwords = {user: brokers(with_user(where.kafka, user)).client["sasl.password"] for user in User}
    admin_settings = {**kafka_users.admin(admin), "bootstrap.servers": brokers(where.kafka).servers}
    kafka_users.introduce(AdminClient(admin_settings), passwords)
    servers, _, chroot = where.zookeeper.partition("/")
    zookeeper.make_chroot(servers, f"/{chroot}")
    with Channel(where.zookeeper, where.needed(Role.ADMIN)) as channel:
        access_lists.apply(channel.kazoo)
    superuser = f"postgresql://sluice:{admin.secrets().postgres}@postgres:5432/postgres"
    with psycopg.connect(superuser, autocommit=True) as link:  # those that are nobody's business
        link.execute("revoke connect on database postgres, template1 from public")
    database_roles.make(superuser, admin.postgres_users)
    _bring_jars(installation(home()))


def _bring_jars(shared: Layout) -> None:
    """Have in the shared home the jars of this image, and none of an older one."""
    locked = jars.needed(jars.locked(jars.LOCK.read_text()), buckets=in_a_bucket(shared))
    shared.make_folders()
    if jars.faulty(locked, shared.home):
        fetch_jars.borrow(locked, SHIPPED, shared.home)
    fetch_step(shared).act(threading.Event())
    fetch_jars.remove_others(locked, shared.home)


def start_tiers() -> None:
    """Have Airflow supervise every published tier that nobody has stopped: that is what starts it."""
    password = json.loads((HERE / PASSWORDS).read_text())["operator"]
    first_record.supervise(load(), password, threading.Event())


def is_registered(role: Role, host: str | None) -> bool:
    """Tell whether a process of this role, of this host where one is named, serves its figures and has a session in the channel."""
    with Channel(load().zookeeper) as channel:
        return any((each.role, each.host) == (role, host) for each in metrics_server.exporters(channel))


def is_healthy(part: str) -> bool:
    """Tell whether Airflow's health page says so of a part."""
    with urllib.request.urlopen(f"{load().airflow.url}/api/v2/monitor/health", timeout=5) as answer:  # noqa: S310 - the address is our own
        return bool(json.load(answer)[part]["status"] == "healthy")


@contextmanager
def _plainly() -> Iterator[None]:
    """End with one line where a service does not answer or a person has to mend something; compose tries a job again."""
    try:
        yield
    except (PlatformError, ChannelAwayError, psycopg.Error, urllib.error.URLError, TimeoutError) as error:
        sys.exit(f"{error}")


def main(words: list[str] | None = None) -> int:
    """Run one job, or ask for one service's health: 1 where it is not well."""
    parser = argparse.ArgumentParser(prog="python -m sluice_ops.local.compose", description=__doc__)
    jobs = parser.add_subparsers(dest="job", required=True)
    for name in ("keys", "services", "tiers"):
        jobs.add_parser(name)
    registered = jobs.add_parser("registered")
    registered.add_argument("role", type=Role)
    registered.add_argument("host", nargs="?")
    jobs.add_parser("healthy").add_argument("part")
    chosen = parser.parse_args(words)
    with _plainly():
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
