"""Ask `sluice.kafka.durability` whether one broker's disk may take acknowledged records along: a look of both doctors."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.model.kafka_access import User

SECONDS = 60.0
THING = "durability"


def look(python: Path, environment: Mapping[str, str], user: User) -> Iterator[Finding]:
    """Look as one of Kafka's users, in a process of its own: the operations side does not import pipelines."""
    command = [str(python), "-m", "sluice.kafka.durability", "--as", user]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    if done.returncode == 0:
        yield Finding(THING, Verdict.OK, done.stdout.strip())
        return
    lines = (done.stderr or done.stdout).strip().splitlines()
    advice = "do what it names; `python -m sluice.commands.publish` refuses such streams too"
    yield Finding(
        THING, Verdict.BAD, "; ".join(lines[-12:]) or "sluice.kafka.durability ended without a word", advice
    )
