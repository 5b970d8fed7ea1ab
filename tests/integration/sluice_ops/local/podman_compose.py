"""docker-compose.yaml under podman, for machines without a Docker engine.

Every key of the file is carried out, or is an error.
"""

import json
import os
import re
import shlex
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.lab import ROOT

FILE = ROOT / "docker-compose.yaml"
DEADLINE_SECONDS = 300
"""The time in which each service is healthy, and each job has ended, on two busy cores."""
PROCESS_LIMIT = 4096
"""Open files, and processes. Podman's default is more than some machines allow."""
VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Z_]+):-(?P<default>[^}]*)\})")
KNOWN_KEYS = {
    "build",
    "cap_add",
    "cap_drop",
    "cgroup",
    "command",
    "depends_on",
    "deploy",
    "environment",
    "healthcheck",
    "hostname",
    "image",
    "logging",
    "ports",
    "profiles",
    "restart",
    "security_opt",
    "stop_grace_period",
    "volumes",
}


def load(variables: dict[str, str]) -> dict[str, Any]:
    """Read the file as compose does: merged, and with variables or their defaults filled in."""

    def fill_in(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: fill_in(item) for key, item in value.items()}
        if isinstance(value, list):
            return [fill_in(item) for item in value]
        if isinstance(value, str):
            return VARIABLE.sub(
                lambda match: "$" if match["dollar"] else variables.get(match["name"], match["default"]),
                value,
            )
        return value

    compose_file: dict[str, Any] = fill_in(yaml.safe_load(FILE.read_text()))
    for name, service in compose_file["services"].items():
        assert not service.keys() - KNOWN_KEYS, (
            f"{name}: this module does not support {service.keys() - KNOWN_KEYS}"
        )
    return compose_file


class Podman:
    """Podman with its own store."""

    def __init__(self, folder: Path) -> None:
        """Keep images and containers below `folder`."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.limits = [f"{name}={PROCESS_LIMIT}:{PROCESS_LIMIT}" for name in ("nofile", "nproc")]
        limits = ", ".join(f'"{limit}"' for limit in self.limits)
        (folder / "containers.conf").write_text(
            f"[containers]\ndefault_ulimits = [{limits}]\n"
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
            f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{folder / "networks"}"\n'
        )
        self.environment = os.environ | {"CONTAINERS_CONF": str(folder / "containers.conf")}

    def __call__(self, *words: str, check: bool = True, seconds: float = 600) -> str:
        """Run a command; return its output."""
        command = [
            "podman",
            "--root",
            str(self.folder / "store"),
            "--runroot",
            str(self.folder / "run"),
            *words,
        ]
        done = subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            cwd=ROOT,
        )
        assert not check or done.returncode == 0, (
            f"{shlex.join(words)}: {done.stderr[-2000:]}{done.stdout[-2000:]}"
        )
        return done.stdout

    def succeeds(self, *words: str) -> bool:
        """Tell whether a command ends with 0."""
        try:
            self(*words, seconds=60)
        except (AssertionError, subprocess.TimeoutExpired):
            return False
        return True

    def has(self, image: str) -> bool:
        """Tell whether an image exists."""
        return self.succeeds("image", "exists", image)


@dataclass
class Compose:
    """A running project."""

    podman: Podman
    variables: dict[str, str]
    profiles: frozenset[str] = frozenset()
    file: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        """Read the compose file."""
        self.file = load(self.variables)

    @property
    def name(self) -> str:
        """The project's name."""
        return str(self.file["name"])

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        """The services of the chosen profiles, each after its dependencies."""
        chosen = {
            name: service
            for name, service in self.file["services"].items()
            if "profiles" not in service or self.profiles & set(service["profiles"])
        }
        ordered: dict[str, dict[str, Any]] = {}
        while len(ordered) < len(chosen):
            ready = [
                name
                for name in chosen
                if name not in ordered and chosen[name].get("depends_on", {}).keys() <= ordered.keys()
            ]
            assert ready, "services depend on each other in a circle"
            ordered |= {name: chosen[name] for name in ready}
        return ordered

    def containers(self, service: str) -> list[str]:
        """Return the names of a service's containers."""
        count = self.file["services"][service].get("deploy", {}).get("replicas", 1)
        return [f"{self.name}-{service}-{number}" for number in range(1, count + 1)]

    def up(self) -> None:
        """Start every service after its dependencies are healthy, or have ended with 0."""
        if not self.podman.succeeds("network", "exists", self.name):
            self.podman("network", "create", self.name)
        for service, settings in self.services.items():
            for other, how in settings.get("depends_on", {}).items():
                self.wait(other, how["condition"])
            for container in self.containers(service):
                self.podman(
                    "run",
                    "--detach",
                    "--name",
                    container,
                    *self.options(service),
                    settings["image"],
                    *settings.get("command", []),
                )
        for service, settings in self.services.items():
            self.wait(
                service, "service_healthy" if "healthcheck" in settings else "service_completed_successfully"
            )

    def options(self, service: str) -> list[str]:
        """Return a service's settings as podman's options.

        podman does not restart jobs: `wait` starts a failed job again.
        """
        settings = self.file["services"][service]
        words = ["--network", f"{self.name}:alias={service}", "--restart", settings["restart"]]
        words += [f"--env={key}={value}" for key, value in settings.get("environment", {}).items()]
        words += [f"--volume={self._volume(volume)}" for volume in settings.get("volumes", [])]
        words += [f"--publish={port}" for port in settings.get("ports", [])]
        for key in ("cap_add", "cap_drop", "security_opt"):
            words += [
                f"--{key.replace('_', '-')}={value.replace(':true', '')}" for value in settings.get(key, [])
            ]
        words += [f"--hostname={settings['hostname']}"] if "hostname" in settings else []
        words += [f"--cgroupns={settings['cgroup']}"] if "cgroup" in settings else []
        words += (
            [f"--stop-timeout={settings['stop_grace_period'].removesuffix('s')}"]
            if "stop_grace_period" in settings
            else []
        )
        log = settings["logging"]
        return [*words, f"--log-driver={log['driver']}", f"--log-opt=max-size={log['options']['max-size']}"]

    def _volume(self, text: str) -> str:
        source, _, rest = text.partition(":")
        if source in self.file["volumes"]:
            return f"{self.name}_{source}:{rest}"
        return f"{(ROOT / source).resolve()}:{rest}"

    def wait(self, service: str, condition: str) -> None:
        """Wait until a service meets a dependency's condition."""
        for container in self.containers(service):
            if condition == "service_healthy":
                self._until_healthy(container, self.file["services"][service]["healthcheck"]["test"])
            else:
                self._until_ended(container)

    def healthy(self, service: str) -> bool:
        """Tell whether all containers of a service pass their health check."""
        test = self.file["services"][service]["healthcheck"]["test"]
        return all(
            self.podman.succeeds("exec", container, *_check(test)) for container in self.containers(service)
        )

    def _until_healthy(self, container: str, test: list[str]) -> None:
        end = time.monotonic() + DEADLINE_SECONDS
        while not self.podman.succeeds("exec", container, *_check(test)):
            assert time.monotonic() < end, f"{container} is not healthy: {self.log(container)}"
            time.sleep(1)

    def _until_ended(self, container: str) -> None:
        end = time.monotonic() + DEADLINE_SECONDS
        while (state := self.state(container))["Status"] != "exited" or state["ExitCode"] != 0:
            assert time.monotonic() < end, f"{container} has not ended with 0: {self.log(container)}"
            time.sleep(1)

    def state(self, container: str) -> dict[str, Any]:
        """Return podman's state of a container."""
        container_state: dict[str, Any] = json.loads(self.podman("inspect", container))[0]["State"]
        return container_state

    def log(self, container: str) -> str:
        """Return the last lines of a container's log."""
        words = [
            "podman",
            "--root",
            str(self.podman.folder / "store"),
            "--runroot",
            str(self.podman.folder / "run"),
            "logs",
            "--tail",
            "40",
        ]
        done = subprocess.run(
            [*words, container], env=self.podman.environment, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def run(self, service: str, *words: str, check: bool = True) -> str:
        """Run a command as a service, in a new container; return its output."""
        options = [
            option for option in self.options(service) if not option.startswith(("--publish", "--hostname"))
        ]
        return self.podman(
            "run",
            "--rm",
            *_without_restart(options),
            self.file["services"][service]["image"],
            *words,
            check=check,
        )

    def down(self) -> None:
        """Stop every service before its dependencies, and remove the containers; volumes stay."""
        for service in reversed(self.services):
            for container in self.containers(service):
                if self.podman.succeeds("container", "exists", container):
                    self.podman("stop", container, check=False)
                    self.podman("rm", "--force", container)
        self.podman("network", "rm", "--force", self.name, check=False)

    def clean(self) -> None:
        """Stop all services, and delete their data."""
        self.down()
        for volume in self.file["volumes"]:
            self.podman("volume", "rm", "--force", f"{self.name}_{volume}", check=False)


def _check(test: list[str]) -> list[str]:
    kind, *words = test
    return ["sh", "-c", words[0]] if kind == "CMD-SHELL" else words


def _without_restart(options: list[str]) -> list[str]:
    at = options.index("--restart")
    return options[:at] + options[at + 2 :]
