"""Check whether the loss of one broker's disk could lose acknowledged records. Both doctors use it.

The check runs `python -m sluice.commands.durability`.
"""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from sluice_ops.doctor.finding import Finding, Verdict
from sluice_ops.model.kafka_access import User

SECONDS = 60.0
"""Limit of the check's process."""
NAME = "durability"


def check(python: Path, environment: Mapping[str, str], user: User) -> Iterator[Finding]:
    """Check all streams as one of Kafka's users.

    The check is a process of its own, because the control plane does not import pipelines.
    """
    command = [str(python), "-m", "sluice.commands.durability", "--as", user]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    if done.returncode == 0:
        yield Finding(NAME, Verdict.OK, done.stdout.strip())
        return
    lines = (done.stderr or done.stdout).strip().splitlines()
    sentence = "; ".join(lines[-12:]) or (
        f"`python -m sluice.commands.durability` ended with exit code {done.returncode} and printed nothing"
    )
    advice = "do what each line says; until then `sluice publish` refuses weak streams"
    yield Finding(NAME, Verdict.BAD, sentence, advice)
