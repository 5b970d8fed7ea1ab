"""Airflow's four processes on PostgreSQL, configured by environment variables only.

The settings need little memory, and are fast enough for runbooks with steps of a few seconds.
"""

import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

import psycopg

from sluice_ops.local.layout import ADDRESS, Layout
from sluice_ops.local.services.postgres import connect
from sluice_ops.local.start.command import run_to_end
from sluice_ops.local.start.service import NotReadyError, Program, Service
from sluice_ops.local.start.steps import Step
from sluice_ops.model.database import AIRFLOW
from sluice_ops.site import database_roles, project
from sluice_ops.site.files import write_private
from sluice_ops.site.java import home_for_spark

NICE = 5
"""The niceness of Airflow, except its API server.

Processes that serve records go first. No handover gap depends on Airflow. The API server shows
people what happens on a busy machine.
"""
ROLES = {"admin": "admin", "operator": "user", "viewer": "viewer"}
"""Airflow's users with their roles.

`operator` starts and ends runs, but neither sees nor changes connections and variables.
"""
MIGRATION_SECONDS = 300
"""Limit for `airflow db migrate`."""
FRESH_SECONDS = 15
"""The oldest heartbeat of a healthy process."""


def dags_folder() -> Path:
    """Return the folder of the project's DAG files."""
    return project.folder().resolve() / "dags"


def environment(layout: Layout) -> dict[str, str]:
    """Return the environment of Airflow's processes.

    Airflow's configuration reference describes each `AIRFLOW__SECTION__KEY`.
    """
    ports, keys = layout.ports, layout.secrets()
    database_roles.make_passwords(layout.postgres_users)
    password = database_roles.password(layout.postgres_users, AIRFLOW)
    database = f"{AIRFLOW}:{password}@{ADDRESS}:{ports.postgres}/{AIRFLOW}"
    settings: dict[str, dict[str, object]] = {
        "core": {
            "dags_folder": dags_folder(),
            "load_examples": False,
            "executor": "LocalExecutor",
            "parallelism": 4,
            "dags_are_paused_at_creation": False,
            "fernet_key": keys.airflow_fernet,
            "simple_auth_manager_users": ",".join(f"{user}:{role}" for user, role in ROLES.items()),
            "simple_auth_manager_passwords_file": layout.airflow / "passwords.json",
            "execution_api_server_url": f"http://{ADDRESS}:{ports.airflow}/execution/",
            "hostname_callable": "socket.gethostname",
            "default_task_retry_delay": 5,
            "killed_task_cleanup_time": 20,
            "dag_run_conf_overrides_params": True,
            "test_connection": "Enabled",
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
        "AIRFLOW_HOME": str(layout.airflow),
        "AIRFLOW_CONN_SPARK_DEFAULT": f"spark://{master}:{ports.spark}/?deploy-mode=client",
        "JAVA_HOME": str(home_for_spark(layout.home)),
        "SPARK_HOME": str(layout.spark_home),
        "SPARK_LOCAL_IP": ADDRESS,
        "PYSPARK_PYTHON": str(layout.python),
        "PATH": f"{layout.python.parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "SLUICE_HOME": str(layout.home),
        "SLUICE_SITE": str(layout.site),
        "SLUICE_ENDPOINTS": str(layout.endpoints),
        "PYTHONUNBUFFERED": "1",
        "MALLOC_ARENA_MAX": "2",
        "_AIRFLOW__SKIP_DATABASE_EXECUTOR_COMPATIBILITY_CHECK": "1",
        "NO_PROXY": f"{ADDRESS},localhost",
        "no_proxy": f"{ADDRESS},localhost",
    }


def passwords(layout: Layout) -> dict[str, str]:
    """Return the password of each of Airflow's users."""
    keys = layout.secrets()
    return {"admin": keys.airflow, "operator": keys.airflow_operator, "viewer": keys.airflow_viewer}


def migration_step(layout: Layout) -> Step:
    """Return the step that creates Airflow's tables or migrates them to the installed version."""
    marker = layout.airflow / "migrated"

    def act(halt: threading.Event) -> str:
        installed = version("apache-airflow")
        write_private(layout.airflow / "passwords.json", json.dumps(passwords(layout)))
        if marker.exists() and marker.read_text() == f"{installed} {_revision(layout)}":
            return f"already at {installed}"
        log = layout.logs / "airflow-migrate.log"
        command = [str(layout.python.parent / "airflow"), "db", "migrate"]
        run_to_end(command, os.environ | environment(layout), log, halt, MIGRATION_SECONDS)
        marker.write_text(f"{installed} {_revision(layout)}")
        return f"tables migrated to {installed}"

    return Step("airflow-tables", act, needs=("postgres",))


def _revision(layout: Layout) -> str | None:
    try:
        with connect(layout, "airflow") as link:
            row = link.execute("select version_num from alembic_version").fetchone()
    except psycopg.errors.UndefinedTable:
        return None
    return str(row[0]) if row else None


def health(layout: Layout) -> dict[str, dict[str, str | None]]:
    """Return the health of Airflow's parts, from the API server's health page."""
    url = f"http://{ADDRESS}:{layout.ports.airflow}/api/v2/monitor/health"
    with urllib.request.urlopen(url, timeout=5) as response:
        parts: dict[str, dict[str, str | None]] = json.load(response)
    return parts


def services(layout: Layout) -> list[Service]:
    """Return the four processes as services.

    None of them serves logs: the API server reads all logs from the shared AIRFLOW_HOME.
    """
    settings = environment(layout)

    def program(*words: str, before: tuple[str, ...] = (), nice: int = NICE) -> Program:
        command = (*before, str(layout.python.parent / "airflow"), *words)
        return Program(command, settings, directory=layout.airflow, nice=nice, stop_seconds=6)

    def sends_heartbeats(part: str) -> Callable[[], None]:
        def ready() -> None:
            state = health(layout)[part]
            heartbeat = state.get(f"latest_{part}_heartbeat")
            if state["status"] != "healthy" or heartbeat is None:
                message = f"Airflow's health page reports {part} as {state['status']}"
                raise NotReadyError(message)
            if time.time() - datetime.fromisoformat(heartbeat).timestamp() > FRESH_SECONDS:
                message = f"the last heartbeat of {part} is from {heartbeat}"
                raise NotReadyError(message)

        return ready

    def answers() -> None:
        if health(layout)["metadatabase"]["status"] != "healthy":
            message = "Airflow cannot reach its database"
            raise NotReadyError(message)
        # the first request builds the API for tasks, which takes seconds: do it before the first
        # task
        with urllib.request.urlopen(f"http://{ADDRESS}:{layout.ports.airflow}/execution/health", timeout=60):
            pass

    scheduler = (str(layout.python), "-m", "sluice_ops.local.airflow_scheduler")
    tables, tables_and_api = ("airflow-tables",), ("airflow-tables", "airflow-api")
    return [
        Service(
            "airflow-api",
            program("api-server", nice=0),
            answers,
            needs=tables,
            ready_seconds=300,
            ports=(layout.ports.airflow,),
        ),
        Service(
            "airflow-scheduler",
            program("scheduler", "--skip-serve-logs", before=scheduler),
            sends_heartbeats("scheduler"),
            needs=tables_and_api,
            ready_seconds=300,
        ),
        Service(
            "airflow-dags",
            program("dag-processor"),
            sends_heartbeats("dag_processor"),
            needs=tables,
            ready_seconds=300,
        ),
        Service(
            "airflow-triggerer",
            program("triggerer", "--skip-serve-logs"),
            sends_heartbeats("triggerer"),
            needs=tables_and_api,
            ready_seconds=300,
        ),
    ]
