"""A PostgreSQL server of a test, without the other services of a lab."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab import ROOT, free_base, kill_services


@contextmanager
def database(home: Path) -> Iterator[str]:
    """Start PostgreSQL in `home`; yield its address."""
    env = {
        **os.environ,
        "SLUICE_HOME": str(home),
        "SLUICE_PORT_BASE": str(free_base()),
        "SLUICE_SITE": str(ROOT / "site.yaml"),
    }
    env.pop("SLUICE_ENDPOINTS", None)
    try:
        subprocess.run(
            [sys.executable, "-m", "sluice_ops.local.parts", "up", "--only", "postgres"],
            env=env,
            cwd=ROOT,
            check=True,
        )
        yield json.loads((home / "endpoints.json").read_text())["postgres"]
    finally:
        kill_services(home)
