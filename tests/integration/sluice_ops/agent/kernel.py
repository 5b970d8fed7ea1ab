"""Another kernel over this machine's files (user-mode Linux, an ordinary process), for what this machine's own kernel is not set up for."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.integration.sluice_ops.agent.conftest import REPOSITORY

LINUX = "linux.uml"
WORDS = (
    "mem=2048M",
    "root=/dev/root",
    "rootfstype=hostfs",
    "rootflags=/",
    "rw",
    "con=null",
    "con0=null,fd:1",
    "quiet",
)
INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs /mnt
cd {repository}
{python} -m pytest {tests} -o addopts= -p no:cacheprovider -q --color=no --basetemp=/mnt/tests
echo "ended with $?"
halt -f
"""


def run(tests: str, folder: Path, seconds: float) -> str:
    """Run tests under it, as its root, with control groups of version 2 alone; return what they say, and `ended with 0` in the end."""
    found = shutil.which(LINUX)
    assert found is not None, (
        "this test needs user-mode Linux (Debian and Ubuntu: apt install user-mode-linux)"
    )
    init = folder / "init"
    words = {"repository": REPOSITORY, "python": sys.executable, "tests": tests}
    init.write_text(INIT.format_map({name: shlex.quote(str(word)) for name, word in words.items()}))
    init.chmod(0o755)
    command = [found, *WORDS, f"init={init}"]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
    ).stdout
