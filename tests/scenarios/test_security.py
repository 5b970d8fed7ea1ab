"""What a running platform shows to those whom it does not concern, after it has worked."""

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
from tests.scenarios.live import PATIENCE, ROOT, Live, until
from tests.tls_broker import produce_error

pytestmark = [pytest.mark.timeout(900)]  # the first of all waits for the platform to come up
LARGE = 64 * 1024 * 1024
ELSEWHERE = ("jars", "cds", "data/kafka", "data/postgres", "uv")
"""Folders below the home that hold other people's programs, records, or are their server's alone."""


@pytest.fixture
def where(live: Live) -> endpoints.Endpoints:
    return endpoints.Endpoints.model_validate_json((live.home / "endpoints.json").read_text())


@pytest.fixture
def secret(live: Live) -> dict[str, str]:
    """Return every secret of the platform by what it is for."""
    found: dict[str, str] = json.loads((live.home / "secrets.json").read_text())
    kept = {
        f"the credential of {path.name}": path.read_text().strip()
        for path in (live.home / "credentials").iterdir()
    }
    own = {
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
    assert len(found) + len(kept) > 10
    assert len(own) >= len(HOSTS)
    assert len(users) == len(User)
    return found | kept | own | users | roles


def shown(text: str, secret: dict[str, str]) -> set[str]:
    return {name for name, value in secret.items() if value in text}


def files(live: Live) -> Iterator[Path]:
    for folder, names, inside in os.walk(live.home):
        names[:] = [
            name for name in names if str((Path(folder) / name).relative_to(live.home)) not in ELSEWHERE
        ]
        yield from (
            path for name in inside if (path := Path(folder) / name).is_file() and not path.is_symlink()
        )


def test_every_node_is_changed_by_its_own_roles_only(live: Live, where: endpoints.Endpoints) -> None:
    assert live.ask("access") == {"ok": True, "others": [], "unknown": []}
    with (
        Channel(where.zookeeper, where.needed(Role.DRIVER)) as driver,
        pytest.raises(NotAllowedError, match="this needs the role controller"),
    ):
        driver.put(paths.assignment("h1"), Assignment())
    with Channel(where.zookeeper, where.needed(Role.AGENT)) as agent:
        for host in HOSTS:
            with pytest.raises(NotAllowedError, match=f"this needs the agent of {host}"):
                agent.delete(paths.live(host))
    told = live.ask("logs", "refused", "-n", "100")["lines"]
    assert any("driver" in line and f"znode=/sluice/hits{paths.assignment('h1')}\t" in line for line in told)


def test_who_changed_something_is_in_the_trail_and_nobody_can_take_it_out(live: Live) -> None:
    live.sluice("pause", "counts")
    live.sluice("resume", "counts")

    def told() -> list[tuple[str, str]]:
        return [
            (each["what"], each["outcome"]) for each in live.ask("trail", "--by", f"cli:{getpass.getuser()}")
        ]

    assert told()[-4:] == [
        ("pause counts", "begun"),
        ("pause counts", "done"),
        ("resume counts", "begun"),
        ("resume counts", "done"),
    ]
    rows = "select role, layer from trail where what = 'resume counts'"
    until("the audit has moved it", PATIENCE, lambda: len(live.rows(rows)) >= 2)
    assert set(live.rows(rows)) == {("controller", "person")}
    assert told()[-1] == ("resume counts", "done")
    for statement in ("delete from trail", "update trail set by = 'nobody'", "truncate trail"):
        with pytest.raises(psycopg.errors.RaiseException, match="only added to"):
            live.rows(statement)


def test_the_channel_holds_no_secret(where: endpoints.Endpoints, secret: dict[str, str]) -> None:
    with Channel(where.zookeeper) as channel:
        walked = list(access_lists.walk(channel.kazoo))
        assert len(walked) > 50
        assert {
            path: found for path in walked if (found := shown(channel.kazoo.get(path)[0].decode(), secret))
        } == {}


def test_no_command_line_has_a_secret(secret: dict[str, str]) -> None:
    lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert any("sluice.driver" in line for line in lines)
    assert [line for line in lines if shown(line, secret)] == []


def test_what_holds_a_secret_is_its_owners_alone_and_no_log_does(live: Live, secret: dict[str, str]) -> None:
    looked, open_to_others, logs = 0, {}, {}
    for path in files(live):
        if (size := path.stat().st_size) > LARGE:
            continue
        looked += size > 0
        found = shown(path.read_text(errors="replace"), secret)
        if found and path.stat().st_mode & 0o077:
            open_to_others[str(path)] = found
        if found and (
            "log" in path.suffix or path.name == "log" or "logs" in path.relative_to(live.home).parts
        ):
            logs[str(path)] = found
    assert looked > 20
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
    beyond = {
        who: addresses
        for who, addresses in listening.items()
        if not all(each.startswith("127.") or each == "::1" for each in addresses)
    }
    assert beyond == {}


def test_a_worker_without_the_secret_is_not_taken_by_the_master(
    live: Live, where: endpoints.Endpoints, tmp_path: Path
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
    installation = Installation(tmp_path, tmp_path, tmp_path, tmp_path, where.spark, None, facts)
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
            "the master has refused it",
            PATIENCE,
            lambda: "Failed to connect to master" in (tmp_path / "log").read_text(),
        )
        page = f"http://127.0.0.1:{Ports.above(PORT_BASE).spark_page}/json/"
        with urllib.request.urlopen(page, timeout=10) as answer:
            workers = {each["host"] for each in json.load(answer)["workers"]}
        assert workers
        assert facts.address not in workers
    finally:
        worker.kill()
        worker.wait()


def test_kafka_takes_its_users_only_and_each_for_its_own_part(where: endpoints.Endpoints) -> None:
    assert produce_error({"bootstrap.servers": brokers(where.kafka).servers}, b"forged") == "_MSG_TIMED_OUT"
    assert (
        produce_error(brokers(where.kafka_as(User.DRIVER)).client, b"forged") == "TOPIC_AUTHORIZATION_FAILED"
    )


def test_from_a_drivers_environment_no_dag_runs_and_no_table_goes(live: Live) -> None:
    driver = next(process for process in psutil.process_iter() if "sluice.driver" in process.cmdline())
    environ = driver.environ()
    text = Path(environ["SLUICE_ENDPOINTS"]).read_text()
    passwords = json.loads((live.home / "secrets.json").read_text())
    assert shown(text + json.dumps(environ), passwords) == {"spark"}, "which drivers prove to the master"
    where = endpoints.Endpoints.model_validate_json(text)
    run = json.dumps({"dag_run_id": "mine", "logical_date": None, "conf": {"host": "h1"}}).encode()
    request = urllib.request.Request(
        f"{where.airflow.url}/api/v2/dags/drain_host/dagRuns",
        run,
        {"Content-Type": "application/json"},
        method="POST",
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)
    with refused.value:
        assert refused.value.code == 401
    with psycopg.connect(where.postgres_as(Role.DRIVER), autocommit=True) as link:
        assert link.execute("SELECT count(*) > 0 FROM ledger").fetchone() == (True,), "it is a driver's"
        for statement in (b"DROP TABLE delivered", b"COPY ledger TO PROGRAM 'cat'"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                link.execute(statement)
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(make_conninfo(where.postgres_as(Role.DRIVER), dbname="airflow"))


def test_a_viewer_sees_runs_in_airflow_and_starts_none(live: Live) -> None:
    viewer = live.session("viewer", live.layout.secrets().airflow_viewer)
    assert viewer("GET", "/dags/drain_host")["dag_id"] == "drain_host"
    with pytest.raises(urllib.error.HTTPError) as refused:
        viewer(
            "POST",
            "/dags/drain_host/dagRuns",
            {"dag_run_id": "mine", "logical_date": None, "conf": {"host": "h1"}},
        )
    with refused.value:
        assert refused.value.code == 403
    operator = live.session("operator", live.layout.secrets().airflow_operator)
    with pytest.raises(urllib.error.HTTPError) as hidden:
        operator("GET", "/connections")
    with hidden.value:
        assert hidden.value.code == 403, "connections hold logins, and are the admin's"
