"""A second kernel over this machine's files: user-mode Linux, which is an ordinary process.

Tests use it for settings that this machine's own kernel does not have.
"""

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
    """Run tests in the second kernel, as root, with only control groups of version 2.

    Return their output; it ends with `ended with 0` if they pass.
    """
    linux = shutil.which(LINUX)
    assert linux is not None, (
        "this test needs user-mode Linux (Debian and Ubuntu: apt install user-mode-linux)"
    )
    init = folder / "init"
    values = {"repository": REPOSITORY, "python": sys.executable, "tests": tests}
    init.write_text(INIT.format_map({name: shlex.quote(str(value)) for name, value in values.items()}))
    init.chmod(0o755)
    command = [linux, *WORDS, f"init={init}"]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
    ).stdout
