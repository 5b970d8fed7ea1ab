"""Secrets and access on a platform that has worked: no secret is readable, and each role can do
only its own work.
"""

import getpass
import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sluice_ops.agent.units.commands import Installation, command, environment, resources_file
from sluice_ops.channel import Channel, NotAllowedError, access_lists
from sluice_ops.local.layout import Layout, Ports
from sluice_ops.local.processes import processes
from sluice_ops.model import paths
from sluice_ops.model.access import Role
from sluice_ops.model.assignment import Assignment, HostFacts, Unit, UnitKind, label_of, slot_id
from sluice_ops.model.database import WORKERS
from sluice_ops.model.ids import HostName, Incarnation, Tenant
from sluice_ops.model.kafka_access import User
from sluice_ops.model.resources import Quantum
from sluice_ops.site import endpoints
from sluice_ops.site.brokers import brokers
from tests.lab import HOSTS
from tests.scenarios.conftest import PORT_BASE
from tests.scenarios.live import ROOT, WAIT_SECONDS, Live, until
from tests.tls_broker import produce_error

pytestmark = [pytest.mark.timeout(900)]  # the first test waits until the platform is up
LARGE = 64 * 1024 * 1024
IGNORED_FOLDERS = ("jars", "cds", "data/kafka", "data/postgres", "uv")
"""Folders below the home with foreign programs, with records, or private to one server."""


@pytest.fixture
def platform(live: Live) -> endpoints.Endpoints:
    return endpoints.Endpoints.model_validate_json((live.home / "endpoints.json").read_text())


@pytest.fixture
def secrets(live: Live) -> dict[str, str]:
    """Return every secret of the platform, by its purpose."""
    passwords: dict[str, str] = json.loads((live.home / "secrets.json").read_text())
    credentials = {
        f"the credential of {path.name}": path.read_text().strip()
        for path in (live.home / "credentials").iterdir()
    }
    host_credentials = {
        f"the credential of {path.parent.name}": path.read_text()
        for path in (live.home / "hosts").glob("*/credential")
    }
    users = {
        f"Kafka's {path.stem}": path.read_text().strip().removeprefix("password=")
        for path in (live.home / "kafka-users").iterdir()
    }
    roles = {
        f"PostgreSQL's {path.name}": path.read_text().strip().rpartition(":")[2]
        for path in (live.home / "postgres-users").iterdir()
    }
    assert len(roles) == len(WORKERS) + 1
    assert len(passwords) + len(credentials) > 10
    assert len(host_credentials) >= len(HOSTS)
    assert len(users) == len(User)
    return passwords | credentials | host_credentials | users | roles


def secrets_in(text: str, secrets: dict[str, str]) -> set[str]:
    return {name for name, value in secrets.items() if value in text}


def files(live: Live) -> Iterator[Path]:
    for folder, names, inside in os.walk(live.home):
        names[:] = [
            name for name in names if str((Path(folder) / name).relative_to(live.home)) not in IGNORED_FOLDERS
        ]
        yield from (
            path for name in inside if (path := Path(folder) / name).is_file() and not path.is_symlink()
        )


def test_every_node_is_changed_by_its_own_roles_only(live: Live, platform: endpoints.Endpoints) -> None:
    assert live.sluice_json("access") == {"ok": True, "others": [], "unknown": []}
    with (
        Channel(platform.zookeeper, platform.required_credential(Role.DRIVER)) as driver,
        pytest.raises(NotAllowedError, match="this needs the role controller"),
    ):
        driver.put(paths.assignment("h1"), Assignment())
    with Channel(platform.zookeeper, platform.required_credential(Role.AGENT)) as agent:
        for host in HOSTS:
            with pytest.raises(NotAllowedError, match=f"this needs the agent of {host}"):
                agent.delete(paths.live(host))
    refusals = live.sluice_json("logs", "refused", "-n", "100")["lines"]
    assert any(
        "driver" in line and f"znode=/sluice/hits{paths.assignment('h1')}\t" in line for line in refusals
    )


def test_the_trail_names_the_user_and_cannot_be_changed(live: Live) -> None:
    live.sluice("pause", "counts")
    live.sluice("resume", "counts")

    def trail() -> list[tuple[str, str]]:
        return [
            (entry["what"], entry["outcome"])
            for entry in live.sluice_json("trail", "--by", f"cli:{getpass.getuser()}")
        ]

    assert trail()[-4:] == [
        ("pause counts", "begun"),
        ("pause counts", "done"),
        ("resume counts", "begun"),
        ("resume counts", "done"),
    ]
    rows = "select role, layer from trail where what = 'resume counts'"
    until("the audit has copied the trail to PostgreSQL", WAIT_SECONDS, lambda: len(live.rows(rows)) >= 2)
    assert set(live.rows(rows)) == {("controller", "person")}
    assert trail()[-1] == ("resume counts", "done")
    for statement, reason in (
        ("delete from trail", "table trail: this row is too young to delete"),
        ("update trail set by = 'nobody'", "table trail accepts only new rows"),
        ("truncate trail", "table trail accepts only new rows"),
    ):
        with pytest.raises(psycopg.errors.RaiseException, match=reason):
            live.rows(statement)


def test_the_channel_holds_no_secret(platform: endpoints.Endpoints, secrets: dict[str, str]) -> None:
    with Channel(platform.zookeeper) as channel:
        nodes = list(access_lists.walk(channel.kazoo))
        assert len(nodes) > 50
        assert {
            path: found
            for path in nodes
            if (found := secrets_in(channel.kazoo.get(path)[0].decode(), secrets))
        } == {}


def test_no_command_line_has_a_secret(secrets: dict[str, str]) -> None:
    lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert any("sluice.driver" in line for line in lines)
    assert [line for line in lines if secrets_in(line, secrets)] == []


def test_files_with_secrets_are_private_and_no_log_has_one(live: Live, secrets: dict[str, str]) -> None:
    nonempty_files, open_to_others, logs = 0, {}, {}
    for path in files(live):
        if (size := path.stat().st_size) > LARGE:
            continue
        nonempty_files += size > 0
        exposed = secrets_in(path.read_text(errors="replace"), secrets)
        if exposed and path.stat().st_mode & 0o077:
            open_to_others[str(path)] = exposed
        if exposed and (
            "log" in path.suffix or path.name == "log" or "logs" in path.relative_to(live.home).parts
        ):
            logs[str(path)] = exposed
    assert nonempty_files > 20
    assert open_to_others == {}
    assert logs == {}


def test_everything_listens_on_loopback_only(live: Live) -> None:
    platform = processes(Layout(home=live.home, ports=Ports.above(PORT_BASE), site=ROOT / "site.yaml"))
    listening = {}
    for process, name in platform.items():
        try:
            addresses = [
                link.laddr.ip for link in process.net_connections("inet") if link.status == psutil.CONN_LISTEN
            ]
        except psutil.Error:
            continue
        listening[name, process.pid] = [address.removeprefix("::ffff:") for address in addresses]
    assert sum(map(bool, listening.values())) > 8
    exposed = {
        service: addresses
        for service, addresses in listening.items()
        if not all(address.startswith("127.") or address == "::1" for address in addresses)
    }
    assert exposed == {}


def test_the_master_refuses_a_worker_without_the_secret(
    live: Live, platform: endpoints.Endpoints, tmp_path: Path
) -> None:
    facts = HostFacts(name=HostName("stranger"), address="127.0.3.9", zone="onprem", cpu=1, memory=1024)
    unit = Unit(
        id=slot_id("stranger", 1, 0),
        kind=UnitKind.SLOT,
        tenant=Tenant("stranger"),
        incarnation=Incarnation(1),
        quantum=Quantum(cpu=1, memory=700, threads=1),
        label=label_of("stranger", 1),
    )
    installation = Installation(tmp_path, tmp_path, tmp_path, tmp_path, platform.spark, None, facts)
    (tmp_path / "resources.json").write_text(json.dumps(resources_file(unit)))
    with (tmp_path / "log").open("w") as log:
        worker = subprocess.Popen(
            command(unit, tmp_path, installation),
            env=environment(unit, tmp_path, installation, live.env),
            stdout=log,
            stderr=log,
        )
    try:
        until(
            "the master has refused the worker",
            WAIT_SECONDS,
            lambda: "Failed to connect to master" in (tmp_path / "log").read_text(),
        )
        page = f"http://127.0.0.1:{Ports.above(PORT_BASE).spark_page}/json/"
        with urllib.request.urlopen(page, timeout=10) as answer:
            workers = {worker_json["host"] for worker_json in json.load(answer)["workers"]}
        assert workers
        assert facts.address not in workers
    finally:
        worker.kill()
        worker.wait()


def test_kafka_accepts_each_user_for_its_own_topics_only(platform: endpoints.Endpoints) -> None:
    assert (
        produce_error({"bootstrap.servers": brokers(platform.kafka).servers}, b"forged") == "_MSG_TIMED_OUT"
    )
    assert (
        produce_error(brokers(platform.kafka_as(User.DRIVER)).client, b"forged")
        == "TOPIC_AUTHORIZATION_FAILED"
    )


def test_a_drivers_credentials_start_no_dag_and_drop_no_table(live: Live) -> None:
    environs = [
        process.environ() for process in psutil.process_iter() if "sluice.driver" in process.cmdline()
    ]
    environ = next(each for each in environs if each["SLUICE_HOME"] == str(live.home))
    text = Path(environ["SLUICE_ENDPOINTS"]).read_text()
    passwords = json.loads((live.home / "secrets.json").read_text())
    assert secrets_in(text + json.dumps(environ), passwords) == {"spark"}, (
        "drivers prove this secret to Spark's master"
    )
    platform = endpoints.Endpoints.model_validate_json(text)
    run = json.dumps({"dag_run_id": "mine", "logical_date": None, "conf": {"host": "h1"}}).encode()
    request = urllib.request.Request(
        f"{platform.airflow.url}/api/v2/dags/drain_host/dagRuns",
        run,
        {"Content-Type": "application/json"},
        method="POST",
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)
    with refused.value:
        assert refused.value.code == 401
    with psycopg.connect(platform.postgres_as(Role.DRIVER), autocommit=True) as link:
        assert link.execute("SELECT count(*) > 0 FROM ledger").fetchone() == (True,), (
            "drivers may read the ledger"
        )
        for statement in (b"DROP TABLE delivered", b"COPY ledger TO PROGRAM 'cat'"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                link.execute(statement)
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(make_conninfo(platform.postgres_as(Role.DRIVER), dbname="airflow"))


def test_a_viewer_in_airflow_sees_runs_and_starts_none(live: Live) -> None:
    viewer = live.log_in("viewer", live.layout.secrets().airflow_viewer)
    assert viewer("GET", "/dags/drain_host")["dag_id"] == "drain_host"
    with pytest.raises(urllib.error.HTTPError) as refused:
        viewer(
            "POST",
            "/dags/drain_host/dagRuns",
            {"dag_run_id": "mine", "logical_date": None, "conf": {"host": "h1"}},
        )
    with refused.value:
        assert refused.value.code == 403
    operator = live.log_in("operator", live.layout.secrets().airflow_operator)
    with pytest.raises(urllib.error.HTTPError) as hidden:
        operator("GET", "/connections")
    with hidden.value:
        assert hidden.value.code == 403, "connections hold logins; only the admin may read them"
