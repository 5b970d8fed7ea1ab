"""A lab with real agents and a real controller, used through the command `sluice`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.lab import HOSTS, ROOT, Lab, until


def site_of(shares: str) -> str:
    """Return the site file's lines for three hosts and the tiers' shares."""
    hosts = [
        f"  - {{name: {name}, address: {address}, capacity: {{cpu: 4, memory: 4g}}}}"
        for name, address in HOSTS.items()
    ]
    return "hosts:\n" + "\n".join(hosts) + f"\nshares: {{{shares}}}\n"


def command(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("sluice")), *words]


@contextmanager
def running(lab: Lab, *words: str) -> Iterator[None]:
    with (lab.home / f"{'-'.join(words)}.log").open("wb") as log:
        process = subprocess.Popen(command(*words), env=lab.env, cwd=ROOT, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()


@contextmanager
def with_agents(lab: Lab) -> Iterator[None]:
    """Run an agent on each host; at the end stop the agents and all units."""
    with ExitStack() as stack:
        stack.callback(
            lambda: [
                subprocess.run(
                    command("agent", "--host", name, "--stop-all"), env=lab.env, cwd=ROOT, check=False
                )
                for name in HOSTS
            ]
        )
        for name in HOSTS:
            stack.enter_context(running(lab, "agent", "--host", name))
        yield


@contextmanager
def operated(lab: Lab) -> Iterator[None]:
    """Run agents and a controller; at the end stop them and all units."""
    with with_agents(lab), running(lab, "controller"):
        until("the hosts are registered", lambda: len(sluice(lab, "hosts")) == len(HOSTS), 60)
        yield


def sluice(lab: Lab, *words: str) -> Any:
    done = subprocess.run(
        command(*words, "--json"),
        env=lab.env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def steps(change: Any) -> dict[str, Any]:
    return {step["step"]: step for step in change["steps"]}


def tier_line(lab: Lab, name: str) -> Any:
    """Return the line of `sluice tiers` about a tier."""
    (line,) = [line for line in sluice(lab, "tiers") if line["name"] == name]
    return line
