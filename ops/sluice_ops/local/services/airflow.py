"""Airflow's four processes on PostgreSQL, set up by environment alone: thrifty, and quick enough for runbooks of a few seconds a step."""

import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from urllib.parse import quote

import psycopg

from sluice_ops.local.layout import ADDRESS, Layout
from sluice_ops.local.services.postgres import connect
from sluice_ops.local.start.command import run_to_end
from sluice_ops.local.start.service import NotReadyError, Program, Service
from sluice_ops.local.start.steps import Step
from sluice_ops.model.database import AIRFLOW
from sluice_ops.site import database_roles
from sluice_ops.site.files import write_private
from sluice_ops.site.installation import CHECKOUT
from sluice_ops.site.java import home_for_spark

GIVES_WAY = 5
"""Airflow is never inside the hand-over gap: it yields the processor to what serves records."""
ROLES = {"admin": "admin", "operator": "user", "viewer": "viewer"}
"""Airflow's users, and the role of each: an operator starts and ends runs, and neither sees nor changes connections and variables."""
MIGRATION_SECONDS = 300
FRESH_SECONDS = 15


def environment(where: Layout) -> dict[str, str]:
    """Return Airflow's settings; each is `AIRFLOW__SECTION__KEY`, described in Airflow's configuration reference."""
    ports, keys = where.ports, where.secrets()
    database_roles.make_passwords(where.postgres_users)
    database = f"{AIRFLOW}:{database_roles.password(where.postgres_users, AIRFLOW)}@{ADDRESS}:{ports.postgres}/{AIRFLOW}"
    settings: dict[str, dict[str, object]] = {
        "core": {
            "dags_folder": CHECKOUT / "dags",
            "plugins_folder": CHECKOUT / "plugins",
            "load_examples": False,
            "executor": "LocalExecutor",
            "parallelism": 4,
            "dags_are_paused_at_creation": False,
            "fernet_key": keys.airflow_fernet,
            "simple_auth_manager_users": ",".join(f"{user}:{role}" for user, role in ROLES.items()),
            "simple_auth_manager_passwords_file": where.airflow / "passwords.json",
            "execution_api_server_url": f"http://{ADDRESS}:{ports.airflow}/execution/",
            "hostname_callable": "socket.gethostname",
            "default_task_retry_delay": 5,
            "killed_task_cleanup_time": 20,
            "dag_run_conf_overrides_params": True,
        },
        "database": {
            "sql_alchemy_conn": f"postgresql+psycopg2://{database}",
            "sql_alchemy_conn_async": f"postgresql+asyncpg://{database}",
            "sql_alchemy_pool_size": 3,
        },
        "api": {
            "host": ADDRESS,
            "port": ports.airflow,
            "workers": 1,
            "base_url": f"http://{ADDRESS}:{ports.airflow}",
            "secret_key": keys.airflow_jwt,
            "log_stream_buffer_size": 1,
        },
        "api_auth": {"jwt_secret": keys.airflow_jwt},
        "scheduler": {
            "job_heartbeat_sec": 3,
            "scheduler_heartbeat_sec": 3,
            "scheduler_idle_sleep_time": 0.5,
            "scheduler_health_check_threshold": 15,
            "orphaned_tasks_check_interval": 15,
            "task_instance_heartbeat_timeout": 30,
            "task_instance_heartbeat_timeout_detection_interval": 5,
            "trigger_timeout_check_interval": 5,
            "task_queued_timeout": 60,
            "task_queued_timeout_check_interval": 15,
            "parsing_cleanup_interval": 60,
            "enable_health_check": False,
        },
        "dag_processor": {
            "parsing_processes": 1,
            "refresh_interval": 20,
            "min_file_process_interval": 120,
            "dag_file_processor_timeout": 120,
            "print_stats_interval": 0,
        },
        "triggerer": {"job_heartbeat_sec": 3, "triggerer_health_check_threshold": 12, "capacity": 100},
        "execution_api": {"jwt_expiration_time": 3600},
        "logging": {"colored_console_log": False},
    }
    flat = {
        f"AIRFLOW__{section.upper()}__{key.upper()}": str(value)
        for section, pairs in settings.items()
        for key, value in pairs.items()
    }
    master = quote(f"spark://{ADDRESS}", safe="")
    return flat | {
        "AIRFLOW_HOME": str(where.airflow),
        "AIRFLOW_CONN_SPARK_DEFAULT": f"spark://{master}:{ports.spark}/?deploy-mode=client",
        "JAVA_HOME": str(home_for_spark(where.home)),
        "SPARK_HOME": str(where.spark_home),
        "SPARK_LOCAL_IP": ADDRESS,
        "PYSPARK_PYTHON": str(where.python),
        "PATH": f"{where.python.parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "SLUICE_HOME": str(where.home),
        "SLUICE_SITE": str(where.site),
        "SLUICE_ENDPOINTS": str(where.endpoints),
        "PYTHONUNBUFFERED": "1",
        "MALLOC_ARENA_MAX": "2",
        "_AIRFLOW__SKIP_DATABASE_EXECUTOR_COMPATIBILITY_CHECK": "1",
        "NO_PROXY": f"{ADDRESS},localhost",
        "no_proxy": f"{ADDRESS},localhost",
    }


def passwords(where: Layout) -> dict[str, str]:
    """Return the passwords of Airflow's users."""
    keys = where.secrets()
    return {"admin": keys.airflow, "operator": keys.airflow_operator, "viewer": keys.airflow_viewer}


def migration(where: Layout) -> Step:
    """Return the step that makes Airflow's tables, or brings them to this version; it does nothing where they are."""
    marker = where.airflow / "migrated"

    def act(halt: threading.Event) -> str:
        wanted = version("apache-airflow")
        write_private(where.airflow / "passwords.json", json.dumps(passwords(where)))
        if marker.exists() and marker.read_text() == f"{wanted} {_revision(where)}":
            return f"already at {wanted}"
        log = where.logs / "airflow-migrate.log"
        command = [str(where.python.parent / "airflow"), "db", "migrate"]
        run_to_end(command, os.environ | environment(where), log, halt, MIGRATION_SECONDS)
        marker.write_text(f"{wanted} {_revision(where)}")
        return f"tables made for {wanted}"

    return Step("airflow-tables", act, needs=("postgres",))


def _revision(where: Layout) -> str | None:
    try:
        with connect(where, "airflow") as link:
            found = link.execute("select version_num from alembic_version").fetchone()
    except psycopg.errors.UndefinedTable:
        return None
    return str(found[0]) if found else None


def health(where: Layout) -> dict[str, dict[str, str | None]]:
    """Ask the API server how all parts of Airflow are."""
    with urllib.request.urlopen(
        f"http://{ADDRESS}:{where.ports.airflow}/api/v2/monitor/health", timeout=5
    ) as answer:
        found: dict[str, dict[str, str | None]] = json.load(answer)
    return found


def services(where: Layout) -> list[Service]:
    """Describe the four processes. None serves logs: all write them below one AIRFLOW_HOME, where the API server reads them."""
    settings = environment(where)

    def program(*words: str, after: tuple[str, ...] = ()) -> Program:
        command = (*after, str(where.python.parent / "airflow"), *words)
        return Program(command, settings, directory=where.airflow, nice=GIVES_WAY, stop_seconds=6)

    def beats(part: str) -> Callable[[], None]:
        def ready() -> None:
            found = health(where)[part]
            beat = found.get(f"latest_{part}_heartbeat")
            if found["status"] != "healthy" or beat is None:
                message = f"Airflow's health page says that it is {found['status']}"
                raise NotReadyError(message)
            if time.time() - datetime.fromisoformat(beat).timestamp() > FRESH_SECONDS:
                message = f"its last heartbeat is from {beat}"
                raise NotReadyError(message)

        return ready

    def answers() -> None:
        if health(where)["metadatabase"]["status"] != "healthy":
            message = "it does not reach its database"
            raise NotReadyError(message)
        # what tasks talk to is put together at its first request, which takes seconds: this one, not the first task of a runbook
        with urllib.request.urlopen(f"http://{ADDRESS}:{where.ports.airflow}/execution/health", timeout=60):
            pass

    alone = (str(where.python), "-m", "sluice_ops.local.airflow_scheduler")
    needs, late = ("airflow-tables",), ("airflow-tables", "airflow-api")
    return [
        Service(
            "airflow-api",
            program("api-server"),
            answers,
            needs=needs,
            patience=300,
            ports=(where.ports.airflow,),
        ),
        Service(
            "airflow-scheduler",
            program("scheduler", "--skip-serve-logs", after=alone),
            beats("scheduler"),
            needs=late,
            patience=300,
        ),
        Service("airflow-dags", program("dag-processor"), beats("dag_processor"), needs=needs, patience=300),
        Service(
            "airflow-triggerer",
            program("triggerer", "--skip-serve-logs"),
            beats("triggerer"),
            needs=late,
            patience=300,
        ),
    ]
