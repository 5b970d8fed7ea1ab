"""A running platform, used only through its CLI, Airflow's REST API, Kafka and PostgreSQL."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import yaml

from sluice_ops.local.layout import Layout, Ports
from sluice_ops.local.services import kafka_users
from sluice_ops.local.services.postgres import connect
from sluice_ops.local.start.supervisord import Supervisor
from sluice_ops.site import spark

ROOT = Path(__file__).resolve().parents[2]

WAIT_SECONDS = 120
"""The deadline of a wait in seconds, long enough for a slow machine.

Other tests measure the real times.
"""
CLASS_DATA_SECONDS = 600
"""The deadline of the job that writes class data, at low priority beside other tests."""
RUN_SECONDS = 1050
"""A run's deadline and its abort, in seconds: by then each run has ended."""
SITE_SECONDS = 3.0
"""By then, the controllers use a changed site file."""


def until(condition: str, seconds: float, check: Callable[[], Any], every: float = 0.5) -> Any:
    """Return the first true answer of `check`; after `seconds`, fail with the condition and the
    last answer.
    """
    end = time.monotonic() + seconds
    last: Any = None
    while time.monotonic() < end:
        last = check()
        if last:
            return last
        time.sleep(every)
    message = f"after {seconds:.0f} s still not true: {condition} (last answer: {last!r})"
    raise AssertionError(message)


def runs_completely(tier: dict[str, Any]) -> bool:
    """Tell whether a tier runs with all its workers."""
    active = [worker["state"] == "active" for worker in tier["workers"]]
    return tier["state"] == "running" and bool(active) and all(active)


DATA_PLANE_STEPS = ("prepare", "cut", "verify", "release")
"""The steps in which the data plane starts, hands over, and ends incarnations."""


@dataclass(frozen=True)
class RunTimes:
    """Where the seconds of a run went."""

    first_effect: float
    """From the trigger until the first step was posted."""
    outside: float
    """From the trigger until the run's end, without the work of the data plane."""
    steps: dict[str, float]


@dataclass
class Live:
    """One platform with its own home and ports."""

    home: Path
    env: dict[str, str]
    endpoints: dict[str, Any] = field(default_factory=dict)
    _session: tuple[Callable[..., Any] | None, float] = (None, 0.0)

    @property
    def layout(self) -> Layout:
        return Layout(
            home=self.home, ports=Ports.above(int(self.env["SLUICE_PORT_BASE"])), site=ROOT / "site.yaml"
        )

    @property
    def kafka(self) -> dict[str, Any]:
        """Return the settings of a Kafka client that may do everything."""
        return kafka_users.admin(self.layout)

    # -- the CLI

    def sluice(
        self, *words: str, seconds: float = WAIT_SECONDS, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run `sluice WORDS` as a user would."""
        command = [str(Path(sys.executable).with_name("sluice")), *words]
        done = subprocess.run(
            command, env=self.env, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
        )
        if check and done.returncode != 0:
            message = (
                f"{' '.join(words)} ended with "
                f"{done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            )
            raise AssertionError(message)
        return done

    def sluice_json(self, *words: str) -> Any:
        """Run `sluice WORDS --json` and return what it prints."""
        return json.loads(self.sluice(*words, "--json").stdout)

    def tiers(self) -> dict[str, dict[str, Any]]:
        return {tier["name"]: tier for tier in self.sluice_json("tiers")}

    def hosts(self) -> dict[str, dict[str, Any]]:
        return {host["name"]: host for host in self.sluice_json("hosts")}

    def all_running(self) -> bool:
        """Tell whether every tier runs with all its workers."""
        tiers = self.tiers()
        return bool(tiers) and all(map(runs_completely, tiers.values()))

    def wait_for_class_data(self) -> None:
        """Wait until the class data of drivers and Workers is written, so that they start as on a
        platform that has run for minutes.
        """

        def has_ended() -> bool:
            return Supervisor(self.layout).states().get("class-data", {}).get("statename") == "EXITED"

        until("the job that writes class data has ended", CLASS_DATA_SECONDS, has_ended)
        log = self.layout.logs / "class-data.log"
        caches = (spark.cache_of_tiers(self.home), spark.cache_of_workers(self.home))
        assert all(cache.exists() for cache in caches), log.read_text()[-3000:]

    def hosts_of(self, tier: str) -> set[str]:
        tier_status = self.tiers()[tier]
        return {tier_status["driver"]["host"], *(worker["host"] for worker in tier_status["workers"])}

    # -- Airflow

    def airflow_api(self, method: str, path: str, body: Any = None) -> Any:
        """Call Airflow's REST API as the operator."""
        call, at = self._session
        if call is None or time.monotonic() - at > 600:
            call = self.log_in("operator", self.layout.secrets().airflow_operator)
            self._session = (call, time.monotonic())
        return call(method, path, body)

    def log_in(self, user: str, password: str) -> Callable[..., Any]:
        """Log in; return a function that calls the API as that user."""
        url = self.endpoints["airflow"]["url"]
        token = self._http("POST", f"{url}/auth/token", {"username": user, "password": password}, "")[
            "access_token"
        ]
        return lambda method, path, body=None: self._http(method, f"{url}/api/v2{path}", body, token)

    @staticmethod
    def _http(method: str, url: str, body: Any, token: str) -> Any:
        request = urllib.request.Request(
            url, method=method, data=None if body is None else json.dumps(body).encode()
        )
        request.add_header("Content-Type", "application/json")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def trigger(self, dag: str, **conf: Any) -> str:
        """Trigger a runbook and return its run's id."""
        run = f"scenario-{dag}-{time.time_ns()}"
        self.airflow_api(
            "POST", f"/dags/{dag}/dagRuns", {"dag_run_id": run, "logical_date": None, "conf": conf}
        )
        return run

    def state(self, dag: str, run: str) -> str:
        """Return a run's state, or `unknown` if Airflow does not answer."""
        try:
            return str(self.airflow_api("GET", f"/dags/{dag}/dagRuns/{run}")["state"])
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return "unknown"

    def runs(self, dag: str) -> dict[str, str]:
        """Return the states of a runbook's runs, by run id."""
        return {
            run["dag_run_id"]: run["state"]
            for run in self.airflow_api("GET", f"/dags/{dag}/dagRuns?limit=1000")["dag_runs"]
        }

    def steps(self, dag: str, run: str) -> dict[str, str | None]:
        answer = self.airflow_api("GET", f"/dags/{dag}/dagRuns/{run}/taskInstances")
        return {task["task_id"]: task["state"] for task in answer["task_instances"]}

    def wait_for_end(self, dag: str, run: str) -> str:
        """Wait until a run ends; return its last state."""
        return str(
            until(
                f"{dag} ends",
                RUN_SECONDS,
                lambda: (state := self.state(dag, run)) in {"success", "failed"} and state,
                every=1.0,
            )
        )

    def run(self, dag: str, **conf: Any) -> str:
        """Trigger a runbook, assert that it succeeds, and return its run's id."""
        run = self.trigger(dag, **conf)
        state = self.wait_for_end(dag, run)
        assert state == "success", (
            f"{dag} {conf} ended {state}: {self.steps(dag, run)}\n{self.log_of_failed(dag, run)}"
        )
        return run

    def times_of(self, dag: str, run: str) -> RunTimes:
        """Return where the seconds of a run went that has ended."""
        named = self.airflow_api("GET", f"/dags/{dag}/dagRuns/{run}")
        triggered, ended = (
            datetime.fromisoformat(named[key]).timestamp() for key in ("queued_at", "end_date")
        )
        change = f"{dag}.{run}"
        posted = min(step["posted_at"] for step in self.sluice_json("operations", change))
        took = next(line["steps"] for line in self.sluice_json("changes") if line["id"] == change)
        work = sum(took.get(step, 0.0) for step in DATA_PLANE_STEPS)
        return RunTimes(posted - triggered, ended - triggered - work, took)

    def log_of_failed(self, dag: str, run: str) -> str:
        """Return the last lines of the failed tasks' logs."""
        lines = []
        for task, state in self.steps(dag, run).items():
            if state in {"failed", "upstream_failed"}:
                folder = (
                    self.home / "airflow" / "logs" / f"dag_id={dag}" / f"run_id={run}" / f"task_id={task}"
                )
                lines += [
                    f"--- {path}\n" + path.read_text(errors="replace")[-2500:]
                    for path in sorted(folder.glob("*.log"))
                ]
        return "\n".join(lines)

    def wait_for_form(self, dag: str, run: str) -> dict[str, Any]:
        """Wait until a task of the run asks a person in Airflow; return what it asks."""

        def open_form() -> dict[str, Any] | None:
            forms = self.airflow_api("GET", f"/dags/{dag}/dagRuns/{run}/hitlDetails")["hitl_details"]
            return next(
                (
                    form
                    for form in forms
                    if not form["response_received"] and form["task_instance"]["state"] == "deferred"
                ),
                None,
            )

        form: dict[str, Any] = until(f"a task of {dag} asks", WAIT_SECONDS, open_form)
        return form

    # -- the site file

    @contextmanager
    def site(self, **keys: Any) -> Iterator[None]:
        """Set keys of the site file; then restore the file."""
        path = Path(self.env["SLUICE_SITE"])
        before = path.read_text()
        path.write_text(yaml.safe_dump(yaml.safe_load(before) | keys))
        time.sleep(SITE_SECONDS)
        try:
            yield
        finally:
            path.write_text(before)

    # -- PostgreSQL

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with connect(self.layout, "sluice") as connection:
            return connection.execute(query, values).fetchall()  # type: ignore[arg-type]

    # -- processes

    def unit_pids(self, start: str) -> dict[str, int]:
        """Return the main pid of each unit whose id starts with `start`, read from the agents'
        files.
        """
        pids = {}
        for path in self.home.glob(f"hosts/*/units/{start}*/pid"):
            pid = int(path.read_text().split()[0])
            if psutil.pid_exists(pid):
                pids[path.parent.name] = pid
        return pids

    def tier_processes_on(self, host: str) -> list[str]:
        """Return the command lines of all tier processes that still run on a host."""
        commands = []
        for process in psutil.process_iter():
            try:
                environment = process.environ()
                if (
                    environment.get("SLUICE_HOME") == str(self.home)
                    and environment.get("SLUICE_HOST") == host
                    and "SLUICE_UNIT" in environment
                ):
                    commands.append(" ".join(process.cmdline())[:120])
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return commands

    def service_pid(self, name: str) -> int:
        """Return the pid of one of the platform's services.

        The environment of each service names the service and the platform's home.
        """
        for process in psutil.process_iter():
            try:
                environment = process.environ()
                if environment.get("SLUICE_SERVICE") != name or environment.get("SLUICE_HOME") != str(
                    self.home
                ):
                    continue
                if any("supervisord" in word for word in process.parent().cmdline()):
                    return process.pid
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        message = f"{name} does not run"
        raise AssertionError(message)


def child_environment(home: Path, port_base: int) -> dict[str, str]:
    """Return the environment for a platform with its own home and ports."""
    return {**os.environ, "SLUICE_HOME": str(home), "SLUICE_PORT_BASE": str(port_base), "COLUMNS": "160"}
